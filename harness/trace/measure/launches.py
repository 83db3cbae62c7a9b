"""Which host call, operator and step each device event belongs to."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.calls import nest

Ints = NDArray[np.int64]

# Collective and point-to-point kernels: NCCL, RCCL, oneCCL, MSCCL++, NVSHMEM, and torch's symmetric memory.
COMMUNICATION = re.compile(
    r"nccl|rccl|oneccl|mscclpp|nvshmem|multimem_(?:all_reduce|one_shot)|(?:one|two)_shot_all_reduce|"
    r"cross_device_reduce|deepep|deep_ep"
)
LAUNCH = re.compile(r"Launch|Memcpy|Memset")


def telling(name: str) -> str:
    """The part of a kernel's name that tells what it is, in lower case; the rest, up to kilobytes of it, is
    template arguments."""
    return name[:160].lower()


class Work(NamedTuple):
    """Device work in order of start; columns of one length."""

    event: Ints
    """Index into the trace."""
    start: Ints
    end: Ints
    device: Ints
    stream: Ints
    kind: NDArray[np.int8]
    communication: NDArray[np.bool_]
    launch: Ints
    """Index of the runtime or driver call with the same correlation; -1 when it is not in the window."""
    operator: Ints
    """Index of the operator or annotation that launched it; -1 for none."""
    launched_at: Ints
    """ns: start of the launch, or of the operator where the file holds no launches; -1 for neither."""

    def on(self, device: int) -> Work:
        return self.where(self.device == device)

    def where(self, chosen: NDArray[np.bool_]) -> Work:
        return Work(
            event=self.event[chosen],
            start=self.start[chosen],
            end=self.end[chosen],
            device=self.device[chosen],
            stream=self.stream[chosen],
            kind=self.kind[chosen],
            communication=self.communication[chosen],
            launch=self.launch[chosen],
            operator=self.operator[chosen],
            launched_at=self.launched_at[chosen],
        )

    @property
    def devices(self) -> list[int]:
        return [int(d) for d in np.unique(self.device)]


def device_work(trace: Trace) -> Work:
    """Links the device's events to the host.

    The operator is the one that the event's `External id` names, as in torch's table; failing that, the one
    that its launch names; failing that, the innermost operator that holds the launch.
    """
    event = np.flatnonzero(trace.on_device)
    event = event[np.argsort(trace.ts[event], kind="stable")]
    launch = _launches(trace, trace.correlation[event])
    operator = operator_of(trace, trace.external[event])
    linked = (operator < 0) & (launch >= 0)
    operator[linked] = operator_of(trace, trace.external[launch[linked]])
    unresolved = (operator < 0) & (launch >= 0)
    if unresolved.any():
        operator[unresolved] = _holding_operators(trace, launch[unresolved])
    launched_at = np.where(launch >= 0, trace.ts[launch], np.where(operator >= 0, trace.ts[operator], np.int64(-1)))
    return Work(
        event=event,
        start=trace.ts[event],
        end=trace.end[event],
        device=trace.device[event],
        stream=trace.stream[event],
        kind=trace.kind[event],
        communication=trace.named(event, lambda name: COMMUNICATION.search(telling(name)))
        & (trace.kind[event] == Kind.KERNEL),
        launch=launch,
        operator=operator,
        launched_at=launched_at,
    )


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


def launches_without_work(trace: Trace, work: Work) -> int:
    """Calls that must have put something on the device, and of which nothing is in the file."""
    calls = trace.of(Kind.RUNTIME)
    calls = calls[trace.named(calls, LAUNCH.search) & (trace.correlation[calls] >= 0)]
    answered = np.isin(trace.correlation[calls], trace.correlation[work.event])
    return int(np.count_nonzero(~answered))


def ambiguous_launches(trace: Trace) -> int:
    """Calls whose correlation another call has as well: which of them launched what, the file does not tell."""
    ids = trace.correlation[trace.of(Kind.RUNTIME)]
    _, count = np.unique(ids[ids >= 0], return_counts=True)
    return int(count[count > 1].sum())


def _launches(trace: Trace, correlation: Ints) -> Ints:
    calls = trace.of(Kind.RUNTIME)
    if not len(calls):
        return np.full(len(correlation), -1, np.int64)
    order = np.lexsort((trace.ts[calls], trace.correlation[calls]))
    calls = calls[order]
    ids = trace.correlation[calls]
    found = calls[np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)]
    return np.where((trace.correlation[found] == correlation) & (correlation >= 0), found, -1)


def _holding_operators(trace: Trace, launch: Ints) -> Ints:
    """The innermost operator around each launch on its thread; -1 for none."""
    operators = trace.of(Kind.OPERATOR)
    calls, which = np.unique(launch, return_inverse=True)
    at = np.concatenate((operators, calls))
    nested = nest(trace.ts[at], trace.end[at], trace.thread[at])
    is_operator = nested.event < len(operators)
    holder = np.where(is_operator, -1, nested.parent)
    while (call := (holder >= 0) & ~is_operator[holder]).any():  # another call, not an operator
        holder[call] = nested.parent[holder[call]]
    result = np.full(len(at), -1, np.int64)
    result[nested.event] = np.where(holder >= 0, at[nested.event[holder]], -1)
    return result[len(operators) :][which]
