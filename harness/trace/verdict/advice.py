"""What to change, by verdict, and where the trace shows it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from harness.trace.file.columns import Trace
from harness.trace.measure.culprits import Culprit, line_of_longest
from harness.trace.measure.flops import ELEMENTWISE, FLOPS
from harness.trace.measure.operators import communicates
from harness.trace.measure.shares import Shares
from harness.trace.schema import (
    Advice,
    Annotation,
    Copy,
    DeviceInfo,
    Gap,
    Idle,
    IdleCause,
    Kernel,
    Memory,
    Operator,
    Serialization,
    VerdictLabel,
)
from harness.trace.thresholds import LONG_DELAY_US, WORTH_ADVICE

FP32 = re.compile(r"sgemm|scudnn|ffma|f32f32_f32f32_f32|_f32_", re.IGNORECASE)
NOT_FP32 = re.compile(r"tf32|bf16|f16|tensorop|s1688", re.IGNORECASE)
PRODUCT = re.compile(r"gemm|nvjet|cutlass|fprop|dgrad|wgrad|conv", re.IGNORECASE)
# An allocator's peak over this share of the device leaves little for fragmentation and a larger batch.
NEARLY_FULL = 0.85
MEMORY_OPERATORS_NAMED = 3


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
    gaps: list[Gap]
    steps: int
    synchronizing: Culprit | None
    several_ranks: bool
    """Other ranks' traces have told waiting from transfer."""

    @property
    def kernel_us(self) -> float:
        return sum(kernel.total_us for kernel in self.kernels)

    def host_during(self, reason: IdleCause) -> list[str]:
        """Names of what the host did meanwhile, longest first."""
        return [doing.name for row in self.idle if row.reason == reason for doing in row.host]


def advice(label: VerdictLabel, found: Findings) -> list[Advice]:
    """For the verdict first, then for whatever else takes a tenth of the step, then for memory."""
    return (_FOR[label](found) if label in _FOR else []) + side_advice(found, label)


def side_advice(found: Findings, label: VerdictLabel | None = None) -> list[Advice]:
    """For what takes a tenth of the step beside the verdict's label, then for memory."""
    result = []
    if found.shares is not None:
        others = {other: getattr(found.shares, share) for other, share in _SHARE_OF.items() if other != label}
        for other, share in sorted(others.items(), key=lambda item: -item[1]):
            if share >= WORTH_ADVICE.value:
                result += _FOR[other](found)[:1]
    return result + _nearly_full(found)


def memory_advice(found: Findings) -> list[Advice]:
    """What the operators that allocate most point to, largest first.

    Results of products, convolutions and attention are kept for the backward pass: checkpointing recomputes
    them. Results of element-wise operators need not exist: fusion never writes them.
    """
    rows = [row for row in found.operators if row.device_type == "cpu" and not row.is_annotation]
    result: list[Advice] = []
    named: set[int] = set()
    for row in sorted(rows, key=_held, reverse=True):
        kind = row.name.removeprefix("aten::")
        kept, fusible = kind in FLOPS, ELEMENTWISE.fullmatch(kind) is not None
        # A wrapper holds just what it wraps; the outermost speaks for them.
        if not (kept or fusible) or "backward" in kind or _held(row) <= 0 or _held(row) in named:
            continue
        named.add(_held(row))
        what = f"{row.name} holds {_held(row) / 2**20:.4g} MiB more after its {row.count} calls than before."
        result.append(
            _advise(found, "activation checkpointing", f"{what} torch.utils.checkpoint recomputes it.", row.name)
            if kept
            else _advise(found, "fusion", f"{what} torch.compile need not write it.", row.name)
        )
    return result[:MEMORY_OPERATORS_NAMED]


def _held(row: Operator) -> int:
    return row.device_memory_bytes or row.cpu_memory_bytes


def _advise(found: Findings, lever: str, reason: str, operator: str | None = None) -> Advice:
    """One piece of advice, with the line of the operator's longest call."""
    line = line_of_longest(found.trace, operator) if operator is not None else None
    return Advice(lever=lever, reason=" ".join(reason.split()), operator=operator, line=line)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _of_step(found: Findings, share: str) -> str:
    return f"{_percent(getattr(found.shares, share))} of the step" if found.shares is not None else "the step"


def _input(found: Findings) -> list[Advice]:
    doing = found.host_during("input")
    loader = next((a.name for a in found.annotations if "DataLoader" in a.name or a.name == "data"), None)
    return [
        _advise(
            found,
            "DataLoader workers",
            f"""The loop fetches batches while the device is idle for {_of_step(found, "input")},
            {f"mostly in {doing[0]}" if doing else "in no span"}. Raise num_workers (with persistent_workers
            and prefetch_factor) until the loader is ahead of the device, or do less for each sample: decode
            once, cache, move augmentation to the device.""",
            loader,
        ),
        _advise(
            found,
            "pinned memory",
            "pin_memory=True and non_blocking=True let the next batch's copy run beside the model.",
        ),
    ]


def _sync(found: Findings) -> list[Advice]:
    culprit = found.synchronizing
    waited = (
        f"{culprit.operator} waited {culprit.calls} times, {culprit.time_us / 1000:.3g} ms in the window."
        if culprit is not None
        else ""
    )
    item = _advise(
        found,
        "remove .item() and other synchronisations",
        f"""The device is idle for {_of_step(found, "sync")} because the host had waited for it and then had
        nothing queued. {waited} Keep losses and metrics on the device and read them every n steps; avoid
        .item(), .cpu(), print(tensor), nonzero and boolean indexing in the step.""",
    )
    if culprit is None:
        return [item]
    return [Advice(lever=item.lever, reason=item.reason, operator=culprit.operator, line=culprit.line)]


def _overhead(found: Findings) -> list[Advice]:
    """Many small delays are the cost of launching; one long one in each step is something else."""
    late = sum(row.time_us for row in found.idle if row.reason == "host_late")
    late_gaps = [gap for gap in found.gaps if gap.reason == "host_late"]
    long = [gap for gap in late_gaps if gap.duration_us >= LONG_DELAY_US.value][: max(found.steps, 1)]
    if long and sum(gap.duration_us for gap in long) >= 0.5 * late:
        return [_long_delay(found, long, late)]
    return _launch_overhead(found)


def _long_delay(found: Findings, long: list[Gap], late: float) -> Advice:
    share = sum(gap.duration_us for gap in long) / late
    return _advise(
        found,
        "the host's longest delay",
        f"""The device is idle for {_of_step(found, "host")} because launches come too late, and {len(long)}
        long delays are {_percent(min(share, 1.0))} of it: the longest takes {long[0].duration_us / 1000:.3g}
        ms in {long[0].host or "no span"}, until {long[0].before}. Look there for what the host does besides
        launching (I/O, logging, host arithmetic, a lock) and move it off the loop's thread.""",
    )


def _launch_overhead(found: Findings) -> list[Advice]:
    doing = found.host_during("host_late")
    launches = sum(kernel.count for kernel in found.kernels)
    mean = found.kernel_us / launches if launches else 0.0
    result = [
        _advise(
            found,
            "CUDA graphs or torch.compile",
            f"""The device is idle for {_of_step(found, "host")} because launches come too late: {launches}
            device events of {mean:.3g} µs on average. While it waited the host was in
            {", ".join(doing[:3]) or "no span"}. torch.compile(mode="reduce-overhead") or a captured CUDA
            graph launches a whole step at once.""",
            next((name for name in doing if name.startswith("aten::")), None),
        ),
        _advise(
            found,
            "bigger batch",
            """The host's cost of a step hardly grows with the batch; until the device is busy, a larger batch
            is nearly free.""",
        ),
    ]
    optimizer = [a for a in found.annotations if a.name.startswith("Optimizer.step")]
    whole = sum(a.host_us for a in found.annotations if a.name == "ProfilerStep*")
    spent = sum(a.host_us for a in optimizer)
    if optimizer and whole and spent / whole >= WORTH_ADVICE.value:
        name = optimizer[0].name
        result.append(
            _advise(
                found,
                "fused optimizer",
                f"""{name} takes {_percent(spent / whole)} of the host's step; fused=True is one kernel for
                each group of parameters.""",
                name,
            )
        )
    return result


def _copy(found: Findings) -> list[Advice]:
    if not any(copy.time_us for copy in found.copies):
        return []
    worst = max(found.copies, key=lambda copy: copy.time_us - copy.hidden_us)
    rate, hidden = worst.bytes / worst.time_us / 1000, worst.hidden_us / worst.time_us
    remedy = (
        """It is pageable memory, which the driver stages and the host waits for: pin_memory=True in the
        DataLoader and .to(device, non_blocking=True)."""
        if worst.pageable
        else "Issue it on a stream of its own, one batch ahead of its use."
    )
    return [
        _advise(
            found,
            "pinned memory and non-blocking copies" if worst.pageable else "overlap copies",
            f"""Copies with nothing beside them take {_of_step(found, "copy")}. {worst.name}: {worst.count}
            copies, {worst.bytes / 2**20:.4g} MiB at {rate:.3g} GB/s, {_percent(hidden)} hidden behind
            kernels. {remedy}""",
            worst.operator,
        ),
        _advise(found, "copy less", "Send compact types (uint8 images, int32 tokens) and convert on the device."),
    ]


def _communication(found: Findings) -> list[Advice]:
    top = next((kernel for kernel in found.kernels if kernel.kind == "communication"), None)
    if top is None:
        return []
    if found.several_ranks:
        return [
            _advise(
                found,
                "overlap, buckets and less to send",
                f"""The transfer itself, after all ranks have joined, takes {_of_step(found, "communication")} with no
                computation beside it. Let it begin earlier (DDP's bucket_cap_mb, FSDP's prefetch), send less (no_sync()
                while accumulating gradients, bf16_compress_hook), and compare the bus bandwidth with the link's.""",
                top.operator,
            )
        ]
    return [
        _advise(
            found,
            "find the late rank",
            f"""Communication with no computation beside it takes {_of_step(found, "communication")};
            {top.name} runs {top.mean_us / 1000:.3g} ms on average, {top.max_us / 1000:.3g} ms at most. A
            collective whose time is not explained by its bytes is waiting inside its kernel for another
            rank: compare the ranks' windows.""",
            top.operator,
        ),
        _advise(
            found,
            "bucket size and overlap",
            """If all ranks arrive together, tune DDP's bucket_cap_mb, accumulate gradients under no_sync(),
            or send bf16 (bf16_compress_hook).""",
        ),
    ]


def _compute(found: Findings) -> list[Advice]:
    result = []
    slow = next((k for k in found.kernels if k.kind == "compute" and _is_fp32_product(k.name)), None)
    if slow is not None:
        result.append(
            _advise(
                found,
                "lower precision",
                f"""{slow.operator or slow.name} multiplies in fp32, {slow.total_us / 1000:.3g} ms of the
                window. torch.autocast(dtype=torch.bfloat16), or torch.set_float32_matmul_precision("high")
                for TF32, uses the tensor cores.""",
                slow.operator,
            )
        )
    return [
        *result,
        *_attention(found),
        _advise(
            found,
            "less arithmetic",
            """The device computes for most of the step. What is left is a smaller or sparser model, fp8, or
            more devices; only from here on does a faster kernel make a faster step.""",
            _top_operator(found),
        ),
    ]


def _is_fp32_product(kernel: str) -> bool:
    return bool(PRODUCT.search(kernel) and FP32.search(kernel) and not NOT_FP32.search(kernel))


def _memory_bandwidth(found: Findings) -> list[Advice]:
    return [
        _advise(
            found,
            "fusion",
            """Kernels that read and write memory take most of the step. torch.compile fuses element-wise
            chains into one pass; fused losses, norms and optimizers do the same by hand.""",
            _top_operator(found),
        ),
        _advise(found, "smaller types", "bf16 halves the bytes of every pass."),
        *_attention(found),
    ]


def _attention(found: Findings) -> list[Advice]:
    """Attention by hand: batched products and a softmax that is not a loss's, which takes a fiftieth of the
    kernels' time at least."""
    softmax = [k for k in found.kernels if "softmax" in k.name.lower() and "log" not in (k.operator or "")]
    products = any(row.name == "aten::bmm" and row.device_time_us for row in found.operators)
    if not products or not softmax or sum(k.total_us for k in softmax) < 0.02 * found.kernel_us:
        return []
    return [
        _advise(
            found,
            "flash attention",
            """Batched products with a softmax between them write the whole score matrix;
            F.scaled_dot_product_attention keeps it on the chip.""",
            softmax[0].operator,
        )
    ]


def _device(found: Findings) -> list[Advice]:
    result = []
    serial = found.serialization
    if serial is not None and serial.serial_small_us >= WORTH_ADVICE.value * found.kernel_us > 0:
        result.append(
            _advise(
                found,
                "bigger kernels",
                f"""{serial.serial_small_count} kernels ran alone on fewer multiprocessors than the device
                has, {_percent(serial.serial_small_us / found.kernel_us)} of device time: a bigger batch,
                torch.compile, batched or foreach operators, or a second stream fill the rest.""",
            )
        )
    if not any(row.flops for row in found.operators):
        result.append(
            _advise(
                found,
                "record shapes",
                """Without record_shapes there are no FLOPs and no least bytes, so little says whether these
                kernels compute or move memory.""",
            )
        )
    return result


def _cpu(found: Findings) -> list[Advice]:
    rows = [row for row in found.operators if not row.is_annotation and not communicates(row.name)]
    top = max(rows, key=lambda row: row.self_cpu_time_us, default=None)
    return [
        _advise(
            found,
            "the host's operators",
            """No device is in use; the step is as long as its operators on the host. Threads
            (torch.set_num_threads), torch.compile and channels_last help there; a device helps more.""",
            top.name if top is not None else None,
        )
    ]


def _top_operator(found: Findings) -> str | None:
    rows = [row for row in found.operators if row.device_type == "cpu" and not row.is_annotation]
    top = max(rows, key=lambda row: row.self_device_time_us, default=None)
    return top.name if top is not None and top.self_device_time_us else None


def _nearly_full(found: Findings) -> list[Advice]:
    """Where an allocator's peak nearly fills its device."""
    capacity = {device.index: device.total_memory_bytes for device in found.devices}
    result = []
    for pool in found.memory.pools if found.memory is not None else []:
        total = capacity.get(pool.index) if pool.device_type == "device" else None
        if total and pool.peak_reserved_bytes >= NEARLY_FULL * total:
            result.append(
                _advise(
                    found,
                    "activation checkpointing",
                    f"""The allocator holds {_percent(pool.peak_reserved_bytes / total)} of device
                    {pool.index} at its peak, in {pool.peak_operator or "no operator"}.
                    torch.utils.checkpoint recomputes activations instead of keeping them; fusion keeps
                    fewer.""",
                    pool.peak_operator,
                )
            )
    return result


_FOR: dict[VerdictLabel, Callable[[Findings], list[Advice]]] = {
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
_SHARE_OF: dict[VerdictLabel, str] = {
    "input-bound": "input",
    "sync-bound": "sync",
    "overhead-bound": "host",
    "copy-bound": "copy",
    "communication-bound": "communication",
}
