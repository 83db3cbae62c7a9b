"""Rows of `key_averages()`, from the file."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Signature, Trace
from harness.trace.measure.calls import Calls, nest
from harness.trace.measure.launches import Work, operator_of
from harness.trace.schema import Operator

Ints = NDArray[np.int64]

# torch/autograd/profiler_util.py, `_filter_name`
HIDDEN_NAMES = frozenset(
    {
        "profiler::_record_function_enter",
        "profiler::_record_function_enter_new",
        "profiler::_record_function_exit",
        "aten::is_leaf",
        "aten::output_nr",
        "aten::_version",
    }
)
# c10d's backends name a collective `<backend>:<operation>`.
COLLECTIVE_PREFIXES = ("nccl:", "gloo:", "mpi:", "ucc:", "xccl:", "rccl:", "hccl:")
CPU_DEVICE_TYPES = (0, 4, 5)  # CPU, MKLDNN, IDEEP


class HostCalls(NamedTuple):
    """The host spans that torch's table counts, nested as torch nests them; columns of one length."""

    calls: Calls
    event: Ints
    """Index into the trace, in preorder."""
    kept: NDArray[np.bool_]
    """Not folded into a caller of the same name that called nothing else (`_remove_dup_nodes`)."""
    asynchronous: NDArray[np.bool_]
    """Collectives: they have a total time and nothing of their own."""


def host_calls(trace: Trace) -> HostCalls:
    """Nests operators, annotations and runtime calls as torch's table does, which is not always by thread.

    A runtime call stands on the thread of the operator that its `External id` names, or, naming none, on the
    thread that stopped the profiler, and so does the profiler's own time, `overhead` (`setKinetoTID` of
    torch/csrc/profiler/collection.cpp). Collectives are marked
    asynchronous (`c10d::Work`): they hold nothing and nothing holds them. Python functions hold nothing
    either: they have no rows, and time taken off for them would be in no row at all.
    """
    at = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.OVERHEAD)
    at = at[~trace.named(at, HIDDEN_NAMES.__contains__)]
    kind, lane = trace.kind[at], trace.thread[at].copy()
    runtime = kind == Kind.RUNTIME
    causer = operator_of(trace, trace.external[at[runtime]])
    lane[runtime] = np.where(causer >= 0, trace.thread[causer], stopping_thread(trace))
    lane[kind == Kind.OVERHEAD] = stopping_thread(trace)
    collective = np.zeros(len(at), bool)
    annotated = np.flatnonzero(kind == Kind.ANNOTATION)
    collective[annotated] = trace.named(at[annotated], is_collective)
    lane[collective] = len(trace.threads) + np.arange(np.count_nonzero(collective))
    calls = nest(trace.ts[at], trace.end[at], lane)
    event = at[calls.event]
    called = calls.parent >= 0
    children = np.bincount(calls.parent[called], minlength=len(event))
    kept = ~(called & (trace.name[event] == trace.name[event[calls.parent]]) & (children[calls.parent] == 1))
    return HostCalls(calls, event, kept, collective[calls.event])


def is_collective(name: str) -> bool:
    return name.startswith(COLLECTIVE_PREFIXES)


def communicates(name: str) -> bool:
    """Whether it is a collective or an operator of torch.distributed, which calls one."""
    return is_collective(name) or name.startswith("c10d::")


def stopping_thread(trace: Trace) -> int:
    """The thread that most likely stopped the profiler: that of the step spans, of most annotations, or of
    most operators; -1 for none."""
    annotations, operators = trace.of(Kind.ANNOTATION), trace.of(Kind.OPERATOR)
    steps = annotations[trace.named(annotations, lambda name: name.startswith("ProfilerStep#"))]
    for at in (steps, annotations, operators):
        if len(at):
            return int(np.bincount(trace.thread[at]).argmax())
    return -1


class Usage(NamedTuple):
    """Bytes allocated less bytes freed during each host span, by any thread, and the allocator events that no
    span holds."""

    cpu: Ints
    device: Ints
    outside: Ints
    """Indices of allocator events."""


def memory_usage(trace: Trace, start: Ints, end: Ints) -> Usage:
    """Torch counts by time alone, both ends included (`MemRecordsAcc.in_interval`)."""
    allocations = trace.allocations
    first = np.searchsorted(allocations.ts, start, "left")
    last = np.searchsorted(allocations.ts, end, "right")
    on_cpu = np.isin(allocations.device_type, CPU_DEVICE_TYPES)
    cpu, device = (
        np.concatenate(([0], np.cumsum(np.where(chosen, allocations.bytes, 0)))) for chosen in (on_cpu, ~on_cpu)
    )
    edges = np.zeros(len(allocations.ts) + 1, np.int64)
    np.add.at(edges, first, 1)
    np.add.at(edges, last, -1)
    outside = np.flatnonzero(np.cumsum(edges)[:-1] == 0)
    return Usage(cpu[last] - cpu[first], device[last] - device[first], outside)


class Samples(NamedTuple):
    """One line of the table for each call, before grouping: ns and bytes."""

    event: Ints
    cpu: Ints
    self_cpu: Ints
    device: Ints
    self_device: Ints
    cpu_memory: Ints
    self_cpu_memory: Ints
    device_memory: Ints
    self_device_memory: Ints
    peak: Ints
    """Bytes; -1 for unknown."""
    flops: NDArray[np.float64]
    """nan for unknown."""


def host_samples(trace: Trace, host: HostCalls, launched_by: Ints, peak: Ints, flops: NDArray[np.float64]) -> Samples:
    """Times and memory of every host span; the folded ones have given theirs to the caller.

    launched_by: for each event of the trace that is work of a device, the operator (index into the trace) to
    which its time belongs, else -1. peak, flops: one value for each event of the trace.
    """
    event, calls = host.event, host.calls
    duration = trace.dur[event]
    place = np.full(len(trace), -1, np.int64)
    place[event] = np.arange(len(event))
    own = np.zeros(len(event), np.int64)  # device time of what each call launched itself
    work = np.flatnonzero(launched_by >= 0)
    work = work[place[launched_by[work]] >= 0]
    np.add.at(own, place[launched_by[work]], trace.dur[work])
    used = memory_usage(trace, trace.ts[event], trace.end[event])

    # A folded span's callees and kernels pass to its caller, so its own self values do as well.
    keeper = np.arange(len(event))
    for i in np.flatnonzero(~host.kept).tolist():
        keeper[i] = keeper[calls.parent[i]]
    selves = []
    for values in (duration, used.cpu, used.device):
        own_share = np.where(host.asynchronous, 0, values - calls.child_sums(values))
        folded = np.zeros(len(event), np.int64)
        np.add.at(folded, keeper, own_share)
        selves.append(folded)
    self_device = np.zeros(len(event), np.int64)
    np.add.at(self_device, keeper, own)
    kept = host.kept
    return Samples(
        event=event[kept],
        cpu=duration[kept],
        self_cpu=selves[0][kept],
        device=calls.sums(own)[kept],
        self_device=self_device[kept],
        cpu_memory=used.cpu[kept],
        self_cpu_memory=selves[1][kept],
        device_memory=used.device[kept],
        self_device_memory=selves[2][kept],
        peak=peak[event][kept],
        flops=flops[event][kept],
    )


def operator_rows(trace: Trace, samples: Samples, work: Work, *, by_shape: bool = False) -> list[Operator]:
    """The table: one row for each name (and input shapes) of host spans, then of device events, then
    `[memory]` for what was allocated outside every host span. Longest device time first.

    Python functions have no row, as in torch 2.14. A device annotation has none either: it is a span, and
    torch's row for it doubles the device total.
    """
    display, label = trace.labels
    shape, shape_texts = _shape_labels(trace) if by_shape else (np.zeros(len(trace), np.int64), [None])
    rows = _host_rows(trace, samples, display, label, shape, shape_texts)
    rows += _device_rows(trace, work, display, label, by_shape)
    rows += _memory_row(trace, samples, by_shape)
    return sorted(rows, key=lambda row: (-row.device_time_us, -row.cpu_time_us, row.name))


def _host_rows(
    trace: Trace, samples: Samples, display: tuple[str, ...], label: Ints, shape: Ints, shape_texts: list[Any]
) -> list[Operator]:
    annotation = (trace.kind[samples.event] == Kind.ANNOTATION).astype(np.int64)
    key = (label[samples.event] * 2 + annotation) * len(shape_texts) + shape[samples.event]
    groups, row = np.unique(key, return_inverse=True)
    count = np.bincount(row, minlength=len(groups))

    def total(values: Ints) -> list[int]:
        sums = np.zeros(len(groups), np.int64)
        np.add.at(sums, row, values)
        return sums.tolist()

    peak = np.full(len(groups), -1, np.int64)
    np.maximum.at(peak, row, samples.peak)
    flops = np.zeros(len(groups))
    known = ~np.isnan(samples.flops)
    np.add.at(flops, row[known], samples.flops[known])
    has_flops = np.bincount(row[known], minlength=len(groups)) > 0
    columns = zip(
        groups.tolist(),
        count.tolist(),
        *(total(values) for values in samples[1:9]),
        peak.tolist(),
        np.where(has_flops, flops, -1).tolist(),
        strict=True,
    )
    return [
        Operator(
            name=display[group // len(shape_texts) // 2],
            input_shapes=shape_texts[group % len(shape_texts)],
            device_type="cpu",
            is_annotation=bool(group // len(shape_texts) % 2),
            count=calls,
            cpu_time_us=cpu / 1000,
            self_cpu_time_us=self_cpu / 1000,
            device_time_us=device / 1000,
            self_device_time_us=self_device / 1000,
            cpu_memory_bytes=cpu_memory,
            self_cpu_memory_bytes=self_cpu_memory,
            device_memory_bytes=device_memory,
            self_device_memory_bytes=self_device_memory,
            peak_memory_bytes=most if most >= 0 else None,
            flops=operations if operations >= 0 else None,
        )
        for (
            group,
            calls,
            cpu,
            self_cpu,
            device,
            self_device,
            cpu_memory,
            self_cpu_memory,
            device_memory,
            self_device_memory,
            most,
            operations,
        ) in columns
    ]


def _device_rows(trace: Trace, work: Work, display: tuple[str, ...], label: Ints, by_shape: bool) -> list[Operator]:
    groups, row = np.unique(label[work.event], return_inverse=True)
    count = np.bincount(row, minlength=len(groups)).tolist()
    time = np.zeros(len(groups), np.int64)
    np.add.at(time, row, work.end - work.start)
    return [
        _row(display[group], by_shape, "device", calls, device_time_us=ns / 1000, self_device_time_us=ns / 1000)
        for group, calls, ns in zip(groups.tolist(), count, time.tolist(), strict=True)
    ]


def _memory_row(trace: Trace, samples: Samples, by_shape: bool) -> list[Operator]:
    outside = memory_usage(trace, trace.ts[samples.event], trace.end[samples.event]).outside
    if not len(outside):
        return []
    size = trace.allocations.bytes[outside]
    on_cpu = np.isin(trace.allocations.device_type[outside], CPU_DEVICE_TYPES)
    cpu, device = int(size[on_cpu].sum()), int(size[~on_cpu].sum())
    return [
        _row(
            "[memory]",
            by_shape,
            "cpu",
            len(outside),
            cpu_memory_bytes=cpu,
            self_cpu_memory_bytes=cpu,
            device_memory_bytes=device,
            self_device_memory_bytes=device,
        )
    ]


_NOTHING: dict[str, Any] = {
    **{field: 0 for field in Operator.__struct_fields__ if field.endswith(("_us", "memory_bytes"))},
    "peak_memory_bytes": None,
    "flops": None,
}


def _row(name: str, by_shape: bool, device_type: Literal["cpu", "device"], count: int, **values: Any) -> Operator:
    shapes: list[list[int]] | None = [] if by_shape else None
    fields = _NOTHING | values
    return Operator(name=name, device_type=device_type, input_shapes=shapes, count=count, **fields)


def _shape_labels(trace: Trace) -> tuple[Ints, list[Any]]:
    """For each event the index of its input shapes among the distinct ones; the first is none, `[]`."""
    texts: list[Any] = [[]]
    of_dims: dict[bytes, int] = {}
    of_shapes: dict[bytes, int] = {b"[]": 0}
    of_signature = []
    for signature in trace.signatures:
        dims = bytes(signature.dims)
        if dims not in of_dims:
            value = shapes(signature)
            of_dims[dims] = of_shapes.setdefault(msgspec.json.encode(value), len(texts))
            if of_dims[dims] == len(texts):
                texts.append(value)
        of_signature.append(of_dims[dims])
    index = np.array([*of_signature, 0], np.int64)  # signature -1 reads the last: none
    return index[trace.signature], texts


def shapes(signature: Signature) -> list[list[int]]:
    """`Input Dims` as torch's table has them: lists of tensors show as `[]`, and so does what is no shape."""
    try:
        return _ALL_SHAPES.decode(signature.dims)
    except msgspec.DecodeError:
        pass
    try:
        dims = msgspec.json.decode(signature.dims)
    except (msgspec.DecodeError, RecursionError):
        return []
    return [shape if _is_shape(shape) else [] for shape in dims] if isinstance(dims, list) else []


_LARGEST = 2**53
_ALL_SHAPES = msgspec.json.Decoder(list[list[Annotated[int, msgspec.Meta(ge=0, le=_LARGEST)]]])


def _is_shape(dims: Any) -> bool:
    return isinstance(dims, list) and all(type(size) is int and 0 <= size <= _LARGEST for size in dims)
