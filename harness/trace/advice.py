"""What to change, by verdict, and where the trace shows it."""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.trace.culprits import Culprit, line_of_longest
from harness.trace.reader import Trace
from harness.trace.schema import (
    Advice,
    Annotation,
    Copy,
    DeviceInfo,
    Idle,
    Kernel,
    Memory,
    Operator,
    Serialization,
    VerdictLabel,
)
from harness.trace.shares import Shares
from harness.trace.thresholds import WORTH_ADVICE

FP32_MATRIX = re.compile(r"f32f32_f32f32_f32|sgemm|_sgemm_|scudnn|ffma|_f32_", re.IGNORECASE)
MATRIX = re.compile(r"gemm|nvjet|cutlass|fprop|dgrad|wgrad|conv", re.IGNORECASE)
SCORES = re.compile(r"softmax", re.IGNORECASE)
# An allocator's peak over this share of the device leaves little for fragmentation and the next batch size.
NEARLY_FULL = 0.85


class Findings(NamedTuple):
    """What advice looks at."""

    trace: Trace
    shares: Shares | None
    operators: list[Operator]
    kernels: list[Kernel]
    annotations: list[Annotation]
    copies: list[Copy]
    idle: list[Idle]
    serialization: Serialization | None
    memory: Memory | None
    devices: list[DeviceInfo]
    synchronizing: Culprit | None


def advice(label: VerdictLabel, found: Findings) -> list[Advice]:
    """For the verdict first, then for whatever else takes a tenth of the step or nearly fills the device."""
    share = found.shares
    lists = {
        "input-bound": _input,
        "sync-bound": _sync,
        "overhead-bound": _overhead,
        "copy-bound": _copy,
        "communication-bound": _communication,
        "compute-bound": _compute,
        "memory-bound": _memory_bandwidth,
        "device-bound": _device,
        "cpu-bound": _cpu,
    }
    result = lists[label](found) if label in lists else []
    if share is not None:
        secondary = {
            "input-bound": (share.input, _input),
            "sync-bound": (share.sync, _sync),
            "overhead-bound": (share.host, _overhead),
            "copy-bound": (share.copy, _copy),
            "communication-bound": (share.communication, _communication),
        }
        for other, (value, advise) in sorted(secondary.items(), key=lambda item: -item[1][0]):
            if other != label and value >= WORTH_ADVICE.value:
                result += advise(found)[:1]
    return result + _memory_capacity(found)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of_step(found: Findings, name: str) -> str:
    return _percent(getattr(found.shares, name)) + " of the step" if found.shares is not None else "the step"


def _input(found: Findings) -> list[Advice]:
    doing = next((row.host for row in found.idle if row.reason == "input"), [])
    where = f", mostly in {doing[0].name}" if doing else ""
    loader = next((a for a in found.annotations if "DataLoader" in a.name or a.name == "data"), None)
    return [
        Advice(
            lever="DataLoader workers",
            reason=f"The device is idle for {_of_step(found, 'input')} while the loop fetches a "
            f"batch{where}. "
            "Raise num_workers (with persistent_workers and prefetch_factor) until the loader is ahead of "
            "the "
            "device, or do less for each sample: decode once, cache, move augmentation to the device.",
            operator=loader.name if loader is not None else None,
        ),
        Advice(
            lever="pinned memory",
            reason="pin_memory=True and non_blocking=True let the next batch's copy run beside the model.",
        ),
    ]


def _sync(found: Findings) -> list[Advice]:
    culprit = found.synchronizing
    what = (
        f"{culprit.operator} waited {culprit.calls} times, {culprit.time_us / 1000:.3g} ms in the window. "
        if culprit is not None
        else ""
    )
    return [
        Advice(
            lever="remove .item() and other synchronisations",
            reason=f"The device is idle for {_of_step(found, 'sync')} because the host had waited for it "
            f"and then "
            f"had nothing queued. {what}Keep losses and metrics on the device and read them every n "
            f"steps; avoid "
            ".item(), .cpu(), print(tensor), nonzero and boolean indexing in the step.",
            operator=culprit.operator if culprit is not None else None,
            line=culprit.line if culprit is not None else None,
        )
    ]


def _overhead(found: Findings) -> list[Advice]:
    doing = next((row.host for row in found.idle if row.reason == "host_late"), [])
    busiest = next((a.name for a in doing if a.name.startswith("aten::")), None)
    launches = sum(kernel.count for kernel in found.kernels)
    mean = sum(kernel.total_us for kernel in found.kernels) / launches if launches else 0.0
    names = ", ".join(a.name for a in doing[:3])
    result = [
        Advice(
            lever="CUDA graphs or torch.compile",
            reason=f"The device is idle for {_of_step(found, 'host')} because launches come too late: "
            f"{launches} "
            f"device events of {mean:.3g} µs on average. While the device waited the host was in "
            f"{names or 'no span'}. "
            'torch.compile(mode="reduce-overhead") or a captured CUDA graph launches a whole step at once.',
            operator=busiest,
            line=line_of_longest(found.trace, busiest) if busiest is not None else None,
        ),
        Advice(
            lever="bigger batch",
            reason="The host's cost of a step does not grow with the batch; until the device is busy a "
            "larger batch "
            "is nearly free.",
        ),
    ]
    optimizer = [a for a in found.annotations if a.name.startswith("Optimizer.step")]
    whole = sum(a.host_us for a in found.annotations if a.name == "ProfilerStep*")
    spent = sum(a.host_us for a in optimizer)
    if optimizer and whole and spent / whole >= WORTH_ADVICE.value:
        result.append(
            Advice(
                lever="fused optimizer",
                reason=f"{optimizer[0].name} takes {_percent(spent / whole)} of the host's step; "
                f"fused=True is one "
                "kernel for each group of parameters.",
                operator=optimizer[0].name,
            )
        )
    return result


def _copy(found: Findings) -> list[Advice]:
    exposed = sorted(found.copies, key=lambda copy: copy.hidden_us - copy.time_us)
    if not exposed:
        return []
    worst = exposed[0]
    rate = worst.bytes / worst.time_us / 1000 if worst.time_us else 0.0
    pinned = (
        "It is pageable memory, which the driver stages and the host waits for: pin_memory=True in the "
        "DataLoader "
        "and .to(device, non_blocking=True)."
        if worst.pageable
        else "Issue it on a stream of its own, one batch ahead of its use."
    )
    return [
        Advice(
            lever="pinned memory and non-blocking copies" if worst.pageable else "overlap copies",
            reason=f"Copies with nothing beside them take {_of_step(found, 'copy')}. {worst.name}: "
            f"{worst.count} "
            f"copies, {worst.bytes / 2**20:.4g} MiB at {rate:.3g} GB/s, "
            f"{_percent(worst.hidden_us / worst.time_us if worst.time_us else 0.0)} hidden behind "
            f"kernels. {pinned}",
            operator=worst.operator,
            line=line_of_longest(found.trace, worst.operator) if worst.operator is not None else None,
        ),
        Advice(
            lever="copy less",
            reason="Send compact types (uint8 images, int32 tokens) and convert on the device.",
        ),
    ]


def _communication(found: Findings) -> list[Advice]:
    kernels = [kernel for kernel in found.kernels if kernel.kind == "communication"]
    if not kernels:
        return []
    top = kernels[0]
    uneven = top.max_us > 2 * top.mean_us
    return [
        Advice(
            lever="find the late rank" if uneven or found.trace.distributed is not None else "overlap",
            reason=f"Communication with no computation beside it takes {_of_step(found, 'communication')}; "
            f"{top.name} runs {top.mean_us / 1000:.3g} ms on average, {top.max_us / 1000:.3g} ms at most. A "
            "collective that waits inside its kernel waits for another rank: compare the ranks' windows.",
            operator=top.operator,
        ),
        Advice(
            lever="bucket size and overlap",
            reason="If all ranks arrive together, tune DDP's bucket_cap_mb, gradient_as_bucket_view, "
            "gradient "
            "accumulation with no_sync(), or compress to bf16 (bf16_compress_hook).",
        ),
    ]


def _compute(found: Findings) -> list[Advice]:
    result = []
    matrix = [k for k in found.kernels if k.kind == "compute" and MATRIX.search(k.name)]
    full = next((k for k in matrix if FP32_MATRIX.search(k.name)), None)
    if full is not None:
        result.append(
            Advice(
                lever="lower precision",
                reason=f"{full.operator or full.name} multiplies in fp32 ({full.total_us / 1000:.3g} ms "
                f"of the window). "
                'torch.autocast(dtype=torch.bfloat16), or torch.set_float32_matmul_precision("high") for '
                "TF32, "
                "uses the tensor cores.",
                operator=full.operator,
                line=line_of_longest(found.trace, full.operator) if full.operator is not None else None,
            )
        )
    result += _attention(found)
    top = _top_operator(found)
    result.append(
        Advice(
            lever="less arithmetic",
            reason="The device computes for most of the step: what is left is a smaller or sparser model, "
            "fp8, or more "
            "devices. Only from here on do faster kernels make a faster step.",
            operator=top,
            line=line_of_longest(found.trace, top) if top is not None else None,
        )
    )
    return result


def _memory_bandwidth(found: Findings) -> list[Advice]:
    top = _top_operator(found)
    return [
        Advice(
            lever="fusion",
            reason="Kernels that read and write memory take most of the step. torch.compile fuses "
            "element-wise chains "
            "into one pass; fused losses, norms and optimizers do the same by hand.",
            operator=top,
            line=line_of_longest(found.trace, top) if top is not None else None,
        ),
        Advice(lever="smaller types", reason="bf16 halves the bytes of every pass."),
        *_attention(found),
    ]


def _attention(found: Findings) -> list[Advice]:
    softmax = [k for k in found.kernels if SCORES.search(k.name) and "log_softmax" not in k.name.lower()]
    products = any(o.name == "aten::bmm" and o.device_time_us for o in found.operators)
    total = sum(k.total_us for k in found.kernels)
    if not softmax or not products or sum(k.total_us for k in softmax) < 0.02 * total:
        return []
    return [
        Advice(
            lever="flash attention",
            reason="Batched products with a softmax between them write the whole score matrix; "
            "F.scaled_dot_product_attention keeps it on the chip.",
            operator=softmax[0].operator,
        )
    ]


def _device(found: Findings) -> list[Advice]:
    result = []
    serial, total = found.serialization, sum(kernel.total_us for kernel in found.kernels)
    if serial is not None and total and serial.serial_small_us >= WORTH_ADVICE.value * total:
        result.append(
            Advice(
                lever="bigger kernels",
                reason=f"{serial.serial_small_count} kernels ran alone on fewer multiprocessors than the "
                f"device has, "
                f"{_percent(serial.serial_small_us / total)} of device time: a bigger batch, "
                f"torch.compile, batched "
                "or foreach operators, or a second stream fill the rest.",
                operator=serial.kernels[0].name if serial.kernels else None,
            )
        )
    if not any(row.flops for row in found.operators):
        result.append(
            Advice(
                lever="record shapes",
                reason="Without record_shapes there are no FLOPs and no least bytes, so nothing says "
                "whether these "
                "kernels compute or move memory.",
            )
        )
    return result


def _cpu(found: Findings) -> list[Advice]:
    top = max(
        (row for row in found.operators if not row.is_annotation),
        key=lambda r: r.self_cpu_time_us,
        default=None,
    )
    return [
        Advice(
            lever="the host's operators",
            reason="No device is in use; the step is as long as its operators on the host. Threads "
            "(torch.set_num_threads), torch.compile and channels_last help there; a device helps more.",
            operator=top.name if top is not None else None,
            line=line_of_longest(found.trace, top.name) if top is not None else None,
        )
    ]


def _top_operator(found: Findings) -> str | None:
    rows = [row for row in found.operators if row.device_type == "cpu" and not row.is_annotation]
    top = max(rows, key=lambda row: row.self_device_time_us, default=None)
    return top.name if top is not None and top.self_device_time_us else None


def _memory_capacity(found: Findings) -> list[Advice]:
    """Activation checkpointing where the device is nearly full."""
    if found.memory is None:
        return []
    for pool in found.memory.pools:
        device = next(
            (d for d in found.devices if pool.device_type == "device" and d.index == pool.index), None
        )
        total = device.total_memory_bytes if device is not None else None
        if total and pool.peak_reserved_bytes >= NEARLY_FULL * total:
            return [
                Advice(
                    lever="activation checkpointing",
                    reason=f"The allocator holds {_percent(pool.peak_reserved_bytes / total)} of the "
                    f"device at its "
                    f"peak, in {pool.peak_operator or 'no operator'}. torch.utils.checkpoint recomputes "
                    f"activations "
                    "instead of keeping them; fusion keeps fewer.",
                    operator=pool.peak_operator,
                )
            ]
    return []
