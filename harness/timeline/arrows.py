"""Arrows between slices: from a launch to what it launched, from a forward operator to its backward."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from harness.timeline import perfetto
from harness.timeline.events import Events, Flow
from harness.trace.file.columns import Kind

Ints = NDArray[np.int64]

_FORWARD_BACKWARD = "fwdbwd"
_FURTHEST_BACK = 64


def arrows(events: Events) -> tuple[dict[int, bytes], int]:
    """Of each slice with arrows what `perfetto.events` takes, by its index; and how many arrows there are.

    The file names an arrow's ends by thread and time. A time at which a slice of the right kind starts is that
    slice's; another one is of the innermost slice that holds it.
    """
    slices = _Slices(events)
    starts: dict[tuple[str, int | str], int] = {}
    ends: dict[tuple[str, int | str], list[int]] = defaultdict(list)
    for flow in events.flows:
        event = slices.at(flow)
        if event >= 0:
            if flow.starts:
                starts.setdefault(flow.key, event)
            else:
                ends[flow.key].append(event)
    ids: dict[int, list[int]] = defaultdict(list)
    count = 0
    for key, start in starts.items():
        for end in ends.get(key, ()):
            if end != start:
                count += 1
                ids[start].append(count)
                ids[end].append(count)
    return {event: perfetto.flow(of_event) for event, of_event in ids.items()}, count


class _Slices:
    """Finds the slice that an arrow's end means."""

    def __init__(self, events: Events) -> None:
        self._end = events.end
        order = np.lexsort((-events.dur, events.ts, events.thread))
        order = order[~events.is_instant[order]]
        self._at, self._ts = order, events.ts[order]
        self._threads = np.searchsorted(events.thread[order], np.arange(len(events.threads) + 1))
        of_ends = events.kind != Kind.DEVICE_ANNOTATION
        of_ends &= (events.kind == Kind.OPERATOR) | (events.kind >= Kind.RUNTIME) & (events.kind <= Kind.MEMSET)
        theirs = order[of_ends[order]]
        columns = (theirs, events.kind[theirs] == Kind.OPERATOR, events.thread[theirs], events.ts[theirs])
        self._exact: dict[tuple[bool, int, int], int] = {}
        for event, operator, thread, ts in zip(*(column.tolist() for column in columns), strict=True):
            # Of those that start together: the outermost operator, which autograd numbers, and the innermost launch.
            if not operator or (operator, thread, ts) not in self._exact:
                self._exact[operator, thread, ts] = event

    def at(self, flow: Flow) -> int:
        """Its index; -1 for none."""
        operator = flow.key[0] == _FORWARD_BACKWARD
        for kind in (operator, not operator):
            found = self._exact.get((kind, flow.thread, flow.ts))
            if found is not None:
                return found
        low, high = int(self._threads[flow.thread]), int(self._threads[flow.thread + 1])
        place = low + int(np.searchsorted(self._ts[low:high], flow.ts, "right")) - 1
        for candidate in range(place, max(place - _FURTHEST_BACK, low - 1), -1):
            if self._end[self._at[candidate]] >= flow.ts:
                return int(self._at[candidate])
        return -1
