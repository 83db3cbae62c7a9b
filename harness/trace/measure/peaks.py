"""What devices can do at best, from their makers' data sheets: dense rates, no sparsity, boost clock.

Each row of the table names its document. Where a sheet prints tensor rates with sparsity they are halved here, and
where a module shows itself as several devices a row is one of them. A device that is not here has no roofline;
hand over a `DevicePeaks` then.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec


class DevicePeaks(msgspec.Struct, frozen=True):
    """Peak rates of one device. `flops` by `fp64`, `fp32`, `tf32`, `fp16` (and bf16), `fp8`, in FLOP/s; what
    a device lacks is left out."""

    name: str
    bytes_per_s: float
    flops: dict[str, float]


class _Row(NamedTuple):
    pattern: str
    capability: str
    bandwidth_tb: float
    fp64: float
    fp32: float
    tf32: float
    fp16: float
    fp8: float


# TB/s and TFLOP/s; 0 where the device has no such unit. fp64 is the tensor cores' where there are any.
_TABLE = (
    # NVIDIA HGX B200 data sheet, its eight GPUs divided by eight
    _Row(r"B200", "10.0", 8.0, 37, 75, 1125, 2250, 4500),
    # NVIDIA H200 Tensor Core GPU data sheet
    _Row(r"H200 NVL", "9.0", 4.8, 60, 60, 417.5, 835.5, 1670.5),
    _Row(r"H200|GH200", "9.0", 4.8, 67, 67, 494.5, 989.5, 1979),
    # NVIDIA H100 Tensor Core GPU and H100 NVL data sheets
    _Row(r"H100 NVL", "9.0", 3.9, 60, 60, 417.5, 835.5, 1670.5),
    _Row(r"H100 PCIe", "9.0", 2.0, 51, 51, 378, 756, 1513),
    _Row(r"H100", "9.0", 3.35, 67, 67, 494.5, 989.5, 1979),
    # NVIDIA L40S data sheet
    _Row(r"L40S", "8.9", 0.864, 1.4, 91.6, 183, 362, 733),
    # NVIDIA L4 data sheet
    _Row(r"L4\b", "8.9", 0.3, 0.5, 30.3, 60, 121, 242.5),
    # NVIDIA Ada GPU Architecture white paper, appendix A
    _Row(r"RTX 4090", "8.9", 1.008, 1.3, 82.6, 82.6, 165.2, 330.3),
    # NVIDIA A100 Tensor Core GPU data sheets, 40 and 80 GB
    _Row(r"A100.*PCIe.*80GB|A100 80GB PCIe", "8.0", 1.935, 19.5, 19.5, 156, 312, 0),
    _Row(r"A100.*80GB", "8.0", 2.039, 19.5, 19.5, 156, 312, 0),
    _Row(r"A100", "8.0", 1.555, 19.5, 19.5, 156, 312, 0),
    # NVIDIA A10 data sheet
    _Row(r"A10\b", "8.6", 0.6, 1.0, 31.2, 62.5, 125, 0),
    # NVIDIA Ampere GA102 GPU Architecture white paper, appendix A
    _Row(r"RTX 3090\b", "8.6", 0.936, 0.6, 35.6, 35.6, 71, 0),
    # NVIDIA T4 data sheet
    _Row(r"\bT4\b", "7.5", 0.32, 0.25, 8.1, 0, 65, 0),
    # NVIDIA V100 data sheet
    _Row(r"V100.*PCIE", "7.0", 0.9, 7.0, 14.0, 0, 112, 0),
    _Row(r"V100", "7.0", 0.9, 7.8, 15.7, 0, 125, 0),
    # AMD Instinct MI300X data sheet
    _Row(r"MI300X", "9.4", 5.3, 163.4, 163.4, 653.7, 1307.4, 2614.9),
    # AMD Instinct MI250X data sheet, halved: each of the two dies is a device
    _Row(r"MI250X", "9.0", 1.6, 47.85, 47.85, 0, 191.5, 0),
    # AMD Instinct MI210 data sheet
    _Row(r"MI210", "9.0", 1.6, 45.3, 45.3, 0, 181, 0),
)


def peaks_of(name: str, capability: str | None) -> DevicePeaks | None:
    """Peaks of a device by the name and compute capability in its trace; None for one that is not listed, or
    whose capability contradicts its name (a partition or a relabelled device)."""
    for row in _TABLE:
        if re.search(row.pattern, name, re.IGNORECASE):
            if capability is not None and capability != row.capability:
                return None
            rates = {kind: getattr(row, kind) * 1e12 for kind in ("fp64", "fp32", "tf32", "fp16", "fp8")}
            return DevicePeaks(name, row.bandwidth_tb * 1e12, {k: rate for k, rate in rates.items() if rate})
    return None
