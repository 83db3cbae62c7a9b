"""What a host thread was inside of at any time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.calls import nest
from harness.trace.measure.intervals import Spans

Ints = NDArray[np.int64]
OUTSIDE = "outside any span"


class Activity(NamedTuple):
    """One thread's time, cut wherever a span of it begins or ends; the last piece ends the thread."""

    start: Ints
    end: Ints
    event: Ints
    """The innermost operator, annotation or runtime call, as an index into the trace; -1 outside."""

    def at(self, t: int) -> int:
        """The innermost event at t (ns); -1 outside."""
        place = int(np.searchsorted(self.start, t, "right")) - 1
        return int(self.event[place]) if place >= 0 and t < self.end[place] else -1

    def most(self, start: int, end: int, label: Ints) -> int:
        """Label of what takes most of [start, end); -1 for outside."""
        first = max(int(np.searchsorted(self.start, start, "right")) - 1, 0)
        last = int(np.searchsorted(self.start, end, "left"))
        part = Activity(self.start[first:last], self.end[first:last], self.event[first:last])
        found = part.shares(Spans(np.array([start]), np.array([end])), label)
        return max(found, key=lambda place: found[place], default=-1)

    def shares(self, spans: Spans, label: Ints) -> dict[int, int]:
        """ns of `spans` by the label of the innermost event; -1 for outside. label: one for each event."""
        inside = spans.within(self.start, self.end)
        of_piece = np.where(self.event >= 0, label[self.event], -1)
        time = np.zeros(int(label.max(initial=-1)) + 2, np.int64)
        np.add.at(time, of_piece, inside)  # -1 counts in the last place
        time[-1] += spans.total - int(inside.sum())
        found = {place: int(time[place]) for place in np.flatnonzero(time[:-1]).tolist()}
        return found | ({-1: int(time[-1])} if time[-1] else {})


def activity(trace: Trace, thread: int) -> Activity:
    """The pieces of one thread's time, from operators, annotations and runtime calls."""
    at = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
    at = at[(trace.thread[at] == thread) & (trace.dur[at] > 0)]
    calls = nest(trace.ts[at], trace.end[at], np.zeros(len(at), np.int64))
    event, depth = at[calls.event], calls.depth
    caller = np.where(calls.parent >= 0, event[calls.parent], -1)
    times = np.concatenate((trace.ts[event], trace.end[event]))
    # At one time, ends come first and inner ones before outer; then starts, outer before inner.
    rank = np.concatenate((depth, -1 - depth))
    order = np.lexsort((rank, times))
    edges = times[order]
    after = np.concatenate((event, caller))[order]
    kept = edges[1:] > edges[:-1]
    return Activity(edges[:-1][kept], edges[1:][kept], after[:-1][kept])
