"""Rows of `key_averages()`, from the file."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.trace.calls import Calls, nest
from harness.trace.reader import Kind, Signature, Trace
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


def host_calls(trace: Trace) -> HostCalls:
    """Nests operators, annotations and runtime calls as torch's table does, which is not always by thread.

    A runtime call stands under the operator that its `External id` names, or, naming none, on the thread that
    stopped the profiler (`setKinetoTID` of torch/csrc/profiler/collection.cpp). Collectives are marked
    asynchronous (`c10d::Work`): they hold nothing and nothing holds them. Python functions hold nothing
    either: they have no rows, and time taken off for them would be in no row at all.
    """
    hidden = np.array([name in HIDDEN_NAMES for name in trace.names], bool)
    collective = np.array([name.startswith(COLLECTIVE_PREFIXES) for name in trace.names], bool)
    counted = np.isin(trace.kind, (Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.OVERHEAD))
    at = np.flatnonzero(counted & ~hidden[trace.name])
    kind, lane = trace.kind[at], trace.thread[at].copy()
    runtime = kind == Kind.RUNTIME
    causer = operator_of(trace, trace.external[at[runtime]])
    lane[runtime] = np.where(causer >= 0, trace.thread[causer], stopping_thread(trace))
    alone = (kind == Kind.OVERHEAD) | ((kind == Kind.ANNOTATION) & collective[trace.name[at]])
    lane[alone] = len(trace.threads) + np.arange(np.count_nonzero(alone))
    calls = nest(trace.ts[at], trace.end[at], lane)
    event = at[calls.event]
    called = calls.parent >= 0
    children = np.bincount(calls.parent[called], minlength=len(event))
    kept = ~(called & (trace.name[event] == trace.name[event[calls.parent]]) & (children[calls.parent] == 1))
    return HostCalls(calls, event, kept)


def stopping_thread(trace: Trace) -> int:
    """The thread that most likely stopped the profiler: that of the last step span, or of most annotations, or
    of most operators; -1 for none."""
    steps = np.array([name.startswith("ProfilerStep#") for name in trace.names], bool)
    annotations, operators = trace.of(Kind.ANNOTATION), trace.of(Kind.OPERATOR)
    for at in (annotations[steps[trace.name[annotations]]], annotations, operators):
        if len(at):
            return int(np.bincount(trace.thread[at]).argmax())
    return -1


def operator_of(trace: Trace, external: Ints) -> Ints:
    """Index of the operator or annotation that each `External id` names; -1 for none."""
    at = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    ids = trace.external[at]
    order = np.argsort(ids, kind="stable")
    if not len(order):
        return np.full(len(external), -1, np.int64)
    found = np.minimum(np.searchsorted(ids[order], external), len(order) - 1)
    at = at[order][found]
    return np.where((trace.external[at] == external) & (external > 0), at, -1)


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
        np.concatenate(([0], np.cumsum(np.where(chosen, allocations.bytes, 0))))
        for chosen in (on_cpu, ~on_cpu)
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


def host_samples(
    trace: Trace, host: HostCalls, launched_by: Ints, peak: Ints, flops: NDArray[np.float64]
) -> Samples:
    """Times and memory of every host span; the folded ones have given theirs to the caller.

    launched_by: for each event of the trace that is work of a device, the operator (index into the trace) to
    which its time belongs, else -1. peak, flops: one value for each event of the trace.
    """
    event, calls = host.event, host.calls
    duration = trace.dur[event]
    place = np.full(len(trace), -1, np.int64)
    place[event] = np.arange(len(event))
    own = np.zeros(len(event), np.int64)
    work = np.flatnonzero(launched_by >= 0)
    np.add.at(own, place[launched_by[work]], trace.dur[work])
    used = memory_usage(trace, trace.ts[event], trace.end[event])

    # A folded span's callees and kernels pass to its caller, so its own self values do as well.
    keeper = np.arange(len(event))
    for i in np.flatnonzero(~host.kept).tolist():
        keeper[i] = keeper[calls.parent[i]]
    selves = []
    for values in (duration, used.cpu, used.device):
        own_share = values - calls.child_sums(values)
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


def operator_rows(trace: Trace, samples: Samples, *, by_shape: bool = False) -> list[Operator]:
    """The table: one row for each name (and input shapes) of host spans, then of device events.

    Python functions have no row, as in torch 2.14. A device annotation has none either: it is a span, and
    torch's row for it doubles the device total.
    """
    ...


def shapes(signature: Signature) -> list[list[int]]:
    """`Input Dims` as torch's table has them: lists of tensors show as `[]`."""
    dims = msgspec.json.decode(signature.dims) if signature.dims else []
    return [[] if any(isinstance(d, list) for d in shape) else shape for shape in dims]
