"""Whether a busy device computes or moves memory (Williams, Waterman, Patterson: Roofline, 2009).

For each call with known FLOPs or least bytes, two floors under its kernel time: FLOPs at the peak rate of its
type, and least bytes at peak bandwidth. The higher one bounds it, if its kernels reach a fair part of it;
a kernel far from both is bound by neither (too small, too few blocks, latency).

Without shapes, kernels are known by name only: matrix products, convolutions and attention that fill the
device compute; element-wise, reduction, normalisation and copy kernels that fill it move memory.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.flops import DTYPES, Cost
from harness.trace.measure.launches import Work, telling
from harness.trace.measure.operators import HostCalls
from harness.trace.measure.peaks import DevicePeaks
from harness.trace.schema import Roofline
from harness.trace.thresholds import ATTAINED, FILLED_BLOCKS_PER_SM, FILLED_US

Ints = NDArray[np.int64]

_RATE_OF_DTYPE = {"double": "fp64", "float": "fp32", "c10::Half": "fp16", "c10::BFloat16": "fp16"}
COMPUTES = re.compile(
    r"gemm|nvjet|wgmma|xmma|cutlass|fprop|dgrad|wgrad|convolve|winograd|conv2d|conv3d|flash|fmha|attention|^cijk_"
)
MOVES = re.compile(
    r"elementwise|reduce|softmax|norm|bn_fw|bn_bw|copy|fill|multi_tensor_apply|triton_(?:poi|red|per)|dropout|"
    r"nchwtonhwc|nhwctonchw|transpose|gather|scatter|index|embedding|cat_?array"
)


def roofline(trace: Trace, host: HostCalls, work: Work, cost: Cost, peaks: DevicePeaks | None) -> Roofline | None:
    """The roofline of the kernels in `work`. None without peaks or without kernels."""
    work = work.where((work.kind == Kind.KERNEL) & ~work.communication)
    duration = work.end - work.start
    if peaks is None or not duration.sum():
        return None
    owner = _costed_callers(trace, host, cost)[work.operator]
    owner = np.where(work.operator >= 0, owner, -1)
    time = np.zeros(len(trace), np.int64)
    np.add.at(time, owner[owner >= 0], duration[owner >= 0])
    at = np.flatnonzero(time)
    seconds = time[at] / 1e9
    flops, moved = np.nan_to_num(cost.flops[at]), np.nan_to_num(cost.bytes[at])
    compute, memory = _compute_floor(flops, cost.dtype[at], seconds, peaks), moved / peaks.bytes_per_s
    floor = np.maximum(compute, memory)
    bound = (floor >= ATTAINED.value * seconds) & (floor <= seconds)
    computing, moving = bound & (compute >= memory), bound & (compute < memory)

    covered = np.zeros(len(trace), bool)
    covered[at[bound]] = True
    unknown = ~((owner >= 0) & covered[owner])
    by_name = _known_by_name(trace, work) if not np.any(cost.flops > 0) else np.zeros(len(duration), np.int8)
    named_compute = int(duration[unknown & (by_name == 1)].sum())
    named_memory = int(duration[unknown & (by_name == 2)].sum())
    total = int(duration.sum())
    by_shape = int(time[at[bound]].sum())
    return Roofline(
        device=peaks.name,
        coverage=(by_shape + named_compute + named_memory) / total,
        shape_coverage=by_shape / total,
        flops=math.fsum(flops[bound].tolist()),
        bytes=math.fsum(moved[bound].tolist()),
        compute_floor_us=math.fsum(compute[bound].tolist()) * 1e6,
        memory_floor_us=math.fsum(memory[bound].tolist()) * 1e6,
        compute_bound_us=(int(time[at[computing]].sum()) + named_compute) / 1000,
        memory_bound_us=(int(time[at[moving]].sum()) + named_memory) / 1000,
        achieved_fraction=math.fsum(floor[bound].tolist()) / math.fsum(seconds[bound].tolist()) if bound.any() else 0.0,
    )


def _compute_floor(
    flops: NDArray[np.float64], dtype: NDArray[np.int8], seconds: NDArray[np.float64], peaks: DevicePeaks
) -> NDArray[np.float64]:
    """Seconds at the peak rate. fp32 that beats the fp32 units has run on the tensor cores, as TF32."""
    names = [*DTYPES, ""]
    rates = np.array([_rate(name, peaks) for name in names])
    floor = flops / rates[dtype]
    tf32 = peaks.flops.get("tf32")
    if tf32 is not None:
        faster = (dtype == list(DTYPES).index("float")) & (floor > seconds)
        floor = np.where(faster, flops / tf32, floor)
    return np.asarray(floor, np.float64)


def _rate(dtype: str, peaks: DevicePeaks) -> float:
    kind = "fp8" if "Float8" in dtype else _RATE_OF_DTYPE.get(dtype, "fp32")
    return peaks.flops.get(kind, peaks.flops.get("fp32", np.inf))


def _costed_callers(trace: Trace, host: HostCalls, cost: Cost) -> Ints:
    """For each event of the trace the nearest call, itself or around it, whose FLOPs or bytes are known.
    -1 for none."""
    result = np.full(len(trace), -1, np.int64)
    known = ~np.isnan(cost.flops[host.event]) | ~np.isnan(cost.bytes[host.event])
    nearest = np.where(known, np.arange(len(host.event)), -1)
    depth, parent = host.calls.depth, host.calls.parent
    for level in range(1, int(depth.max(initial=0)) + 1):
        places = np.flatnonzero((depth == level) & (nearest < 0))
        nearest[places] = nearest[parent[places]]
    result[host.event] = np.where(nearest >= 0, host.event[nearest], -1)
    return result


def _known_by_name(trace: Trace, work: Work) -> NDArray[np.int8]:
    """1 for kernels that compute, 2 for those that move memory, 0 for small or unknown ones."""
    computes = trace.named(work.event, lambda name: COMPUTES.search(telling(name)))
    moves = trace.named(work.event, lambda name: MOVES.search(telling(name)))
    kind = np.where(computes, 1, np.where(moves, 2, 0))
    fills = (trace.blocks_per_sm[work.event] >= FILLED_BLOCKS_PER_SM.value) & (
        work.end - work.start >= FILLED_US.value * 1000
    )
    return np.where(fills, kind, 0).astype(np.int8)
