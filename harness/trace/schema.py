"""What one window's trace says: the contract of `window.json` and `harness report --format json`.

Times are microseconds (float), memory is bytes (int), shares are fractions 0..1. `None` means that the
trace does not tell, never zero. `docs/` defines every number; the functions that compute them say how.
"""

from __future__ import annotations

from typing import Literal

import msgspec

SCHEMA_VERSION = 1

VerdictLabel = Literal[
    "input-bound",
    "sync-bound",
    "overhead-bound",
    "copy-bound",
    "communication-bound",
    "compute-bound",
    "memory-bound",
    "device-bound",
    "cpu-bound",
    "undetermined",
]
IdleCause = Literal["host_late", "sync", "input", "launch", "dependency", "unattributed"]
DeviceWork = Literal["compute", "communication", "memcpy", "memset"]


class DeviceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A device that the trace names, as its `deviceProperties` describe it."""

    index: int
    name: str
    total_memory_bytes: int | None = None
    compute_capability: str | None = None
    """`"9.0"`; ROCm's gfx version for AMD."""
    multiprocessors: int | None = None


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which steps were recorded, and what to know before trusting the rest."""

    first_step: int | None
    """Global step at which recording began; None when neither the harness nor ProfilerStep tells."""
    steps: int
    """Step spans found in the trace."""
    partial: bool
    """Cut short: fewer steps than the schedule asked for."""
    lost_events: int
    """Events of the file that could not be read."""
    unattributed_device_events: int = 0
    """Device events whose launch is not in the window: work of earlier steps, or lost launches."""
    launches_without_work: int = 0
    """Kernel, copy and graph launches in the window that no device event answers: lost device events."""
    cost_us: float | None = None
    """What the window took from the job: extra time of its warm-up and recorded steps against the unprofiled
    median, plus the time that the loop stood still. In a trace alone as far as it was known when that was written; in
    `window.json` all of it."""
    stalls_us: dict[str, float] | None = None
    """How long the loop stood still: `start_us` (the warm-up begins), `begin_us` (recording begins), `stop_us` and
    `export_us` (the window's end). None where only the trace is there."""
    warnings: list[str] = []
    trigger: str | None = None
    """Why it was recorded: `schedule`, `request` or `slow`; None where the harness did not write it."""
    cause: str | None = None
    """What set it off, where no schedule did."""
    passed_over: dict[str, int] = {}
    """Cycles of the schedule that had no window, since the job began, by reason: `budget`, `publisher`,
    `other profiler`, `asked for`, `earlier`."""
    missing_ranks: list[int] = []
    """Ranks that recorded it too, and whose traces did not come in time."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One training step. It ends when the host has left its span and the device has finished what the span
    launched; it lasts from the end of the step before (see `steps.py`)."""

    number: int
    start_us: float
    """From the first event of the window."""
    duration_us: float
    device_busy_us: float
    """Union over streams of the device events that this step launched, on its busiest device."""
    host_us: float
    """The CPU span alone: the time to enqueue, when nothing in it waits for the device."""


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the window's steps."""

    profiled_median_us: float | None
    unprofiled_median_us: float | None
    """Without the profiler: measured by the harness before the window, or handed over; else None."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the window."""

    cpu_time_us: float
    """`Self CPU time total` of torch's table: the sum of all rows' self CPU time."""
    device_time_us: float
    """Sum over `kernel`, `gpu_memcpy` and `gpu_memset`; annotations are spans and not in it."""
    device_busy_us: float
    """Union over the streams of each device, summed over devices."""
    device_span_us: float
    """First start to last end on each device, summed over devices."""
    flops: float | None = None
    """Sum of the operators' FLOPs; None without shapes."""
    events: int = 0
    file_bytes: int = 0
    """Size of the trace file on disk."""
    json_bytes: int = 0
    """Size of the trace decompressed."""


class DeviceTime(msgspec.Struct, frozen=True, kw_only=True):
    """Where one device's time went. Compute + exposed communication + exposed memcpy + idle = span."""

    index: int
    span_us: float
    """First start to last end of any device event."""
    busy_us: float
    """Union over all streams."""
    busy_fraction: float
    """Device time of a step that the step's own launches fill: union over the step time, which is the
    unprofiled one where it is known; busy / span where the trace has no steps."""
    compute_us: float
    """Union of kernels and memsets that are not communication."""
    memcpy_us: float
    """Union of copies."""
    memset_us: float
    """Union of memsets; part of compute."""
    communication_us: float
    """Union of collective and point-to-point kernels."""
    exposed_memcpy_us: float
    """Copies while neither compute nor communication runs."""
    exposed_communication_us: float
    """Communication while no compute runs."""
    idle_us: float
    """No stream runs anything."""
    unattributed_us: float
    """Union of events without a launch in the window; part of the terms above."""


class HostActivity(msgspec.Struct, frozen=True, kw_only=True):
    """What the host was inside of, and for how much of the time in question."""

    name: str
    time_us: float


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Device idle time by reason, summed over devices; `timeline.py` defines the reasons."""

    reason: IdleCause
    time_us: float
    count: int
    """Gaps in which this reason has a part."""
    host: list[HostActivity] = []
    """What the launching thread was doing meanwhile, longest first."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """One of the longest idle gaps."""

    device: int
    start_us: float
    duration_us: float
    reason: IdleCause
    """The reason with the largest part of it."""
    step: int | None
    before: str
    """The device event that ended it."""
    host: str | None
    """What the launching thread was inside of for most of it; None when the launch is not in the window."""


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `key_averages()`: one name, or one name and input shapes.

    Rows with `device_type` "device" are the kernels, copies and memsets themselves, as in torch's table.
    """

    name: str
    input_shapes: list[list[int]] | None
    """As `key_averages(group_by_input_shape=True)` has them: a list of tensors shows as `[]`. None when
    grouped by name alone."""
    device_type: Literal["cpu", "device"] = "cpu"
    is_annotation: bool = False
    count: int
    cpu_time_us: float
    self_cpu_time_us: float
    device_time_us: float
    self_device_time_us: float
    cpu_memory_bytes: int
    self_cpu_memory_bytes: int
    device_memory_bytes: int
    self_device_memory_bytes: int
    peak_memory_bytes: int | None
    """Most bytes allocated at any time while one of its calls ran: on the devices if any allocator event is a
    device's, else on the CPU. None without `[memory]` events that carry totals."""
    flops: float | None
    """Multiply and add count as two; None where shapes or a formula are missing."""


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one kernel, copy or memset."""

    name: str
    kind: DeviceWork
    count: int
    total_us: float
    mean_us: float
    max_us: float
    operator: str | None
    """The operator that launched most of its time; None when the launch is not in the window."""


class Annotation(msgspec.Struct, frozen=True, kw_only=True):
    """A named span: `record_function`, a phase, the optimizer, the data loader."""

    name: str
    count: int
    host_us: float
    device_span_us: float
    """First start to last end of what each call launched, summed over calls."""
    device_busy_us: float
    """Union of what its calls launched."""


REST = "everything else"
"""The phase that is what remains."""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """A share of the step: the annotations directly inside the step span, and what remains."""

    name: str
    count: int
    host_us: float
    host_share: float
    device_us: float
    """Sum of the device events that it launched, the backward pass's included where it waits for them."""
    device_share: float


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of one direction and memory kind."""

    name: str
    """As the driver calls it: `Memcpy HtoD (Pageable -> Device)`."""
    direction: Literal["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other"]
    pageable: bool
    count: int
    bytes: int
    time_us: float
    hidden_us: float
    """While a kernel ran on the same device."""
    operator: str | None
    """Who launched most of it."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of one device."""

    device: int
    stream: int
    events: int
    busy_us: float


class Serialization(msgspec.Struct, frozen=True, kw_only=True):
    """Kernels that ran one after another with room beside them."""

    concurrent_us: float
    """Time with at least two device events at once."""
    serial_small_us: float
    """Time of kernels that ran alone with fewer blocks than the device has multiprocessors: it could have run
    several of them at once (streams, a batched operator, fusion), as far as their data allow."""
    serial_small_count: int
    waiting_streams_us: float
    """Time that events, enqueued and first in their stream, saw another stream work before they started."""
    waiting_streams_count: int
    kernels: list[HostActivity] = []
    """Longest first: the small kernels that ran alone."""


class MemoryPool(msgspec.Struct, frozen=True, kw_only=True):
    """One allocator: the CPU's, or one device's."""

    device_type: Literal["cpu", "device"]
    index: int
    """-1 for the CPU."""
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    start_allocated_bytes: int
    end_allocated_bytes: int
    allocated_total_bytes: int
    """Sum of all allocations in the window."""
    peak_us: float
    """When the peak was reached, from the first event of the window."""
    peak_operator: str | None
    """The innermost operator that ran then."""


class MemoryCurve(msgspec.Struct, frozen=True, kw_only=True):
    """One allocator in the course of the window; lists of one length. No part of a report: it is long."""

    device_type: Literal["cpu", "device"]
    index: int
    """-1 for the CPU."""
    time_us: list[float]
    """From the first event of the window."""
    allocated_bytes: list[int]
    reserved_bytes: list[int]


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """From `[memory]` events: of the devices if any allocator event is a device's, else of the CPU."""

    peak_allocated_bytes: int
    peak_reserved_bytes: int
    pools: list[MemoryPool]
    advice: list[Advice] = []
    """What the operators that allocate most point to: checkpointing or fusion."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the device computes or moves memory, for the operators whose shapes tell."""

    device: str
    coverage: float
    """Share of kernel time known to compute or to move memory: by shapes, or by name where there are none."""
    shape_coverage: float
    """The part of it that is known by shapes."""
    flops: float
    bytes: float
    """Least traffic: every input read once, every output written once."""
    compute_floor_us: float
    """Time at the peak rate of each operator's type."""
    memory_floor_us: float
    """Time at peak bandwidth."""
    compute_bound_us: float
    """Kernel time of the operators whose arithmetic floor is the higher one."""
    memory_bound_us: float
    """Kernel time of the operators whose memory floor is the higher one."""
    achieved_fraction: float
    """The higher floor of each operator over its kernel time."""


class Evidence(msgspec.Struct, frozen=True):
    """One question that the verdict asked, and the answer."""

    measure: str
    value: float
    threshold: float
    meaning: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to change, and where the trace shows it."""

    lever: str
    """Short: `CUDA graphs`, `pinned memory and non_blocking copies`."""
    reason: str
    operator: str | None = None
    line: str | None = None
    """`file.py(12): name`, when Python functions were recorded."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the step. `undetermined` is an honest answer."""

    label: VerdictLabel
    confidence: float
    """0..1: how far the deciding measure lies past its threshold, less what the trace leaves open."""
    evidence: list[Evidence]
    advice: list[Advice] = []


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a window; times of one step, traced."""

    rank: int
    host: str | None
    """From the file's name."""
    source: str
    step_us: float | None
    unprofiled_step_us: float | None
    busy_fraction: float | None
    """Of its busiest device; None where it has none."""
    compute_us: float
    """The union of kernels on its busiest device, or of operators on a host without one."""
    communication_us: float
    """Sum over its collectives."""
    exposed_communication_us: float
    """Transfer and waiting with nothing computed beside them."""
    waiting_us: float | None
    """The part of it in which another rank had not joined the collective. None where no other rank tells."""
    late_us: float | None
    """How long the others waited, exposed, until this rank joined as the last one: their mean."""
    peak_memory_bytes: int | None
    clock_offset_us: float | None
    """Of its clock against the lowest rank's; None where no collective ties the two."""
    verdict: VerdictLabel
    """What bounds this rank, where waiting for others is no communication of its own."""


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind and size in groups of one size, over all ranks. Bandwidth as nccl-tests defines it."""

    kind: str
    bytes: int | None
    """nccl-tests' size: the larger of what a rank puts in and gets out."""
    group_size: int | None
    count: int
    """On the rank that has most of them, in the window."""
    time_us: float
    """Mean over ranks of the sum of its durations."""
    waiting_us: float | None
    """The part of it before the last rank joined."""
    hidden_fraction: float
    """Of the time, with something computed beside it."""
    algorithm_bandwidth: float | None
    """Bytes a second: size over the median time from the last rank's joining to the end, or over the median
    duration where no other rank tells."""
    bus_bandwidth: float | None
    """Times the kind's factor, `collectives.bus_factor`: compares with the speed of a link."""


LateReason = Literal["input", "sync", "host", "copy", "compute"]


class Straggler(msgspec.Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, and what its own trace has more of than theirs."""

    rank: int
    host: str | None
    late_us: float
    """How long the others waited for it in a step, exposed, mean."""
    share: float
    """Of all waiting, the part that ended when this rank joined."""
    reason: LateReason | None
    """What takes longer in its step than in others'; None where nothing does."""
    own_us: float
    """Of the reason, in its step."""
    others_us: float
    """The median of the other ranks."""
    where: str | None
    """The span, operator or loader with most of it."""
    verdict: VerdictLabel
    """What bounds the straggler by that reason, and so the whole job."""


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """Findings across the ranks of a window whose traces are there."""

    ranks: list[Rank]
    collectives: list[Collective]
    """Longest in total first."""
    straggler: Straggler | None = None
    """None where no rank is last clearly more often than the others, or nobody waits long."""
    unmatched_collectives: int = 0
    """Of all ranks, those that no other rank has: waiting is not told from transfer in them."""
    clock_error_us: float | None = None
    """How far the ends of collectives lie apart once clocks are aligned, median of the worst rank: waiting of
    that order means nothing."""
    compute_imbalance: float | None = None
    """Largest over mean compute, less one."""
    memory_imbalance: float | None = None
    """Largest over mean peak memory, less one."""


class WindowReport(msgspec.Struct, frozen=True, kw_only=True):
    """All findings of one rank's trace of one window, and across ranks where their traces were read too."""

    schema_version: int = SCHEMA_VERSION
    harness_version: str
    source: str
    """File name, without its folder."""
    torch_version: str | None
    devices: list[DeviceInfo]
    rank: int
    """0 when the trace knows no process group."""
    world_size: int
    window: Window
    steps: list[Step]
    step_time: StepTime
    totals: Totals
    device: list[DeviceTime]
    idle: list[Idle]
    gaps: list[Gap] = []
    categories: dict[str, int]
    """Events by `cat`, as the file spells it; `unknown` for none."""
    operators: list[Operator]
    operators_by_shape: list[Operator] = []
    """The same calls grouped by name and input shapes; empty without shapes."""
    kernels: list[Kernel]
    annotations: list[Annotation]
    phases: list[Phase] = []
    copies: list[Copy] = []
    streams: list[Stream] = []
    serialization: Serialization | None = None
    memory: Memory | None
    roofline: Roofline | None = None
    verdict: Verdict
    ranks: Ranks | None = None
    """None where the window has no collective and no other rank."""
