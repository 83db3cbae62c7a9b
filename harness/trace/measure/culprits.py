"""Which operator and which line of Python a call belongs to."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.device_time import SYNCHRONIZE
from harness.trace.measure.launches import operator_of
from harness.trace.measure.operators import HostCalls

Ints = NDArray[np.int64]

# Frames that are nobody's own code.
_LIBRARY = re.compile(
    r"^<|^nn\.Module: |(?:^|/)torch/|(?:^|/)(?:threading|contextlib|functools|runpy|_?abc|enum|typing)\.py\("
)


class Culprit(NamedTuple):
    """Where synchronising calls come from."""

    operator: str | None
    line: str | None
    calls: int
    time_us: float


def outermost_operator(trace: Trace, host: HostCalls, place: int) -> int:
    """Place of the outermost operator around a host call, up to the first annotation; -1 for none."""
    found = -1
    while place >= 0 and trace.kind[host.event[place]] != Kind.ANNOTATION:
        if trace.kind[host.event[place]] == Kind.OPERATOR:
            found = place
        place = int(host.calls.parent[place])
    return found


def line_of(trace: Trace, event: int) -> str | None:
    """`file.py(12): name` of the innermost frame around an event that is no library's; of its forward
    operator for one of the backward pass. None without Python functions."""
    python = trace.of(Kind.PYTHON)
    if not len(python):
        return None
    line = _frame(trace, python, int(trace.thread[event]), int(trace.ts[event]))
    if line is not None:
        return line
    operators = trace.of(Kind.OPERATOR)
    holding = operators[
        (trace.thread[operators] == trace.thread[event])
        & (trace.ts[operators] <= trace.ts[event])
        & (trace.end[operators] >= trace.end[event])
        & (trace.sequence[operators] >= 0)
        & (trace.forward_thread[operators] > 0)
    ]
    for backward in holding.tolist():
        forward = operators[
            (trace.sequence[operators] == trace.sequence[backward]) & (trace.forward_thread[operators] == 0)
        ]
        if len(forward):
            return _frame(trace, python, int(trace.thread[forward[0]]), int(trace.ts[forward[0]]))
    return None


def _frame(trace: Trace, python: Ints, thread: int, t: int) -> str | None:
    around = python[(trace.thread[python] == thread) & (trace.ts[python] <= t) & (trace.end[python] > t)]
    for event in around[np.argsort(-trace.ts[around], kind="stable")].tolist():
        name: str = trace.names[int(trace.name[event])]
        if not _LIBRARY.search(name):
            return name
    return None


def synchronizing(trace: Trace, host: HostCalls) -> Culprit | None:
    """The operator inside which most synchronising calls' time goes, and the line of the longest of them."""
    calls = trace.of(Kind.RUNTIME)
    calls = calls[trace.named(calls, SYNCHRONIZE.search)]
    if not len(calls):
        return None
    place = np.full(len(trace), -1, np.int64)
    place[host.event] = np.arange(len(host.event))
    causer = operator_of(trace, trace.external[calls])
    by_operator: dict[int, list[int]] = {}
    for call, operator in zip(calls.tolist(), causer.tolist(), strict=True):
        outer = outermost_operator(trace, host, int(place[operator])) if operator >= 0 else -1
        name = int(trace.name[host.event[outer]]) if outer >= 0 else -1
        by_operator.setdefault(name, []).append(call)
    name, mine = max(by_operator.items(), key=lambda item: int(trace.dur[item[1]].sum()))
    longest = mine[int(trace.dur[mine].argmax())]
    return Culprit(
        operator=trace.names[name] if name >= 0 else trace.names[trace.name[longest]],
        line=line_of(trace, longest),
        time_us=int(trace.dur[mine].sum()) / 1000,
        calls=len(mine),
    )


def line_of_longest(trace: Trace, name: str) -> str | None:
    """The line of the longest call of an operator."""
    if name not in trace.names:
        return None
    at = trace.of(Kind.OPERATOR)
    at = at[trace.name[at] == trace.names.index(name)]
    return line_of(trace, int(at[trace.dur[at].argmax()])) if len(at) else None
