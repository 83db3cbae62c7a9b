"""Where each device's time went, and why it was idle.

Compute + exposed communication + exposed memcpy + idle = span, to the nanosecond: compute is the union of
kernels (and memsets) that do not communicate, exposed communication what the union of communication adds to
it, exposed memcpy what copies add to both, idle what is left between the first start and the last end.

A gap ends with the device event that follows it. Its time is divided at the start of that event's launch:

- before the launch the host was late: `input` while it was in a data loader; else `sync` when it was waiting
  for the device as the gap began, or waits within it; else `host_late`;
- from the launch on, with the device idle, `launch`;
- an event launched before the gap began was held back on the device: `launch` for as long as the shortest
  latency seen on this device after its launch, `dependency` beyond (an event of another stream, a barrier,
  the hand-over between kernels of one stream);
- `unattributed` when the launch is not in the window.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.intervals import Spans, totals_by_group, union
from harness.trace.measure.launches import Work
from harness.trace.measure.steps import Steps
from harness.trace.schema import DeviceTime, IdleCause

Ints = NDArray[np.int64]

SYNCHRONIZE = re.compile(r"(?:Stream|Device|Event|Ctx)Synchronize$|^(?:cuda|hip)Memcpy$|^cuMemcpy(?!.*Async)")
INPUT = re.compile(r"enumerate\(DataLoader\)|enumerate\(DataPipe\)|^data$|dataloader\.py\(\d+\): __next__")
CAUSES: tuple[IdleCause, ...] = ("host_late", "sync", "input", "launch", "dependency", "unattributed")


class DeviceSets(NamedTuple):
    """One device's time as sets of spans."""

    compute: Spans
    communication: Spans
    memcpy: Spans
    memset: Spans
    busy: Spans

    @property
    def span(self) -> int:
        return int(self.busy.end[-1] - self.busy.start[0]) if len(self.busy.start) else 0


def device_sets(work: Work) -> DeviceSets:
    """The sets of one device's work."""
    copies = work.kind == Kind.MEMCPY
    chosen = (
        ~copies & ~work.communication,
        work.communication,
        copies,
        work.kind == Kind.MEMSET,
        np.ones(len(copies), bool),
    )
    return DeviceSets(*(union(work.start[mask], work.end[mask]) for mask in chosen))


def device_time(index: int, work: Work, sets: DeviceSets, steps: Steps, step_us: float | None) -> DeviceTime:
    """One device's row. step_us: the time of a step against which business is measured."""
    working = union(
        np.concatenate((sets.compute.start, sets.communication.start)),
        np.concatenate((sets.compute.end, sets.communication.end)),
    )
    stray = work.launched_at < 0
    busy, span = sets.busy.total, sets.span
    fraction = busy / span if span else 0.0
    if step_us and len(steps.start):
        count = len(steps.start)
        launched = int(totals_by_group(work.start, work.end, steps.of(work.launched_at), count).sum())
        fraction = launched / 1000 / (count * step_us)
    return DeviceTime(
        index=index,
        span_us=span / 1000,
        busy_us=busy / 1000,
        busy_fraction=min(fraction, 1.0),
        compute_us=sets.compute.total / 1000,
        memcpy_us=sets.memcpy.total / 1000,
        memset_us=sets.memset.total / 1000,
        communication_us=sets.communication.total / 1000,
        exposed_memcpy_us=(sets.memcpy.total - sets.memcpy.overlap(working)) / 1000,
        exposed_communication_us=(sets.communication.total - sets.communication.overlap(sets.compute)) / 1000,
        idle_us=(span - busy) / 1000,
        unattributed_us=union(work.start[stray], work.end[stray]).total / 1000,
    )


class Gaps(NamedTuple):
    """The idle gaps of one device in order; ns."""

    device: int
    start: Ints
    end: Ints
    next: Ints
    """Position in `work` of the event that ended it."""
    parts: Ints
    """Shape (gaps, causes): time by reason, in the order of CAUSES; rows sum to the gap."""
    host_until: Ints
    """Until when the host was late: the launch, within the gap."""


def gaps(trace: Trace, work: Work, sets: DeviceSets, device: int) -> Gaps:
    """The gaps of one device, divided by reason. work: that device's alone."""
    idle = sets.busy.gaps()
    start, end = idle.start, idle.end
    following = np.searchsorted(work.start, end, "left")
    launched = work.launched_at[following]
    known = launched >= 0
    late_until = np.where(known, np.clip(launched, start, end), start)

    late = late_until - start
    feeding = input_spans(trace).within(start, late_until)
    waits = synchronizations(trace, work)
    begins_waiting = waits.within(start - 1, start) > 0
    waiting = np.where(begins_waiting, late - feeding, np.minimum(waits.within(start, late_until), late - feeding))

    latency = work.start - work.launched_at
    shortest = int(latency[(work.launched_at >= 0) & (latency >= 0)].min(initial=1 << 62))
    ready = np.where(launched > start, end, np.clip(launched + shortest, start, end))
    rest = end - late_until
    launching = np.where(known, np.minimum(ready - late_until, rest), 0)
    parts = np.stack(
        [
            late - feeding - waiting,
            waiting,
            feeding,
            launching,
            np.where(known, rest - launching, 0),
            np.where(known, 0, end - start),
        ],
        axis=1,
    )
    return Gaps(device, start, end, following, parts, late_until)


def input_spans(trace: Trace) -> Spans:
    """When any thread was fetching input."""
    at = trace.of(Kind.ANNOTATION, Kind.PYTHON)
    at = at[trace.named(at, INPUT.search)]
    return union(trace.ts[at], trace.end[at])


def synchronizations(trace: Trace, work: Work) -> Spans:
    """When a thread that launches work was waiting for the device: synchronising calls, and calls that
    launched a copy and returned only when it was done."""
    calls = trace.of(Kind.RUNTIME)
    waits = calls[trace.named(calls, SYNCHRONIZE.search)]
    copies = (work.kind == Kind.MEMCPY) & (work.launch >= 0)
    blocking = work.launch[copies][trace.end[work.launch[copies]] >= work.end[copies]]
    at = np.concatenate((waits, blocking))
    return union(trace.ts[at], trace.end[at])
