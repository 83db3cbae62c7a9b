"""Rows of the report about idle gaps: by reason, and the longest of them."""

from __future__ import annotations

import numpy as np

from harness.trace.file.columns import Trace
from harness.trace.measure.activity import OUTSIDE, Activity, activity
from harness.trace.measure.device_time import CAUSES, Gaps
from harness.trace.measure.intervals import union
from harness.trace.measure.launches import Work
from harness.trace.measure.steps import Steps
from harness.trace.schema import Gap, HostActivity, Idle

LONGEST_SHOWN = 20
ACTIVITIES_SHOWN = 8


class HostThreads:
    """The activity of the threads that launch work, computed once for those that are asked for."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._known: dict[int, Activity] = {}
        self._display, self._label = trace.labels

    def __getitem__(self, thread: int) -> Activity:
        if thread not in self._known:
            self._known[thread] = activity(self._trace, thread)
        return self._known[thread]

    def name(self, event: int) -> str:
        return self._display[self._label[event]] if event >= 0 else OUTSIDE

    def most(self, thread: int, start: int, end: int) -> str:
        """Name of what takes most of the thread's time in [start, end), ns."""
        label = self[thread].most(start, end, self._label)
        return self._display[label] if label >= 0 else OUTSIDE

    def innermost(self, thread: int, t: int) -> str | None:
        """Name of what the thread was in at t (ns); None outside every span."""
        event = self[thread].at(t)
        return self.name(event) if event >= 0 else None


def idle_rows(trace: Trace, work: Work, found: list[Gaps], threads: HostThreads) -> list[Idle]:
    """Idle time by reason, longest first, with what the launching thread did while the host was late."""
    time = sum((gaps.parts.sum(axis=0) for gaps in found), np.zeros(len(CAUSES), np.int64))
    count = sum(((gaps.parts > 0).sum(axis=0) for gaps in found), np.zeros(len(CAUSES), np.int64))
    rows = []
    for place, reason in enumerate(CAUSES):
        if not time[place]:
            continue
        doing = _host_during(trace, work, found, place, threads) if reason in ("host_late", "sync", "input") else {}
        top = sorted(doing.items(), key=lambda item: -item[1])[:ACTIVITIES_SHOWN]
        rows.append(
            Idle(
                reason=reason,
                time_us=int(time[place]) / 1000,
                count=int(count[place]),
                host=[HostActivity(name=name, time_us=ns / 1000) for name, ns in top],
            )
        )
    return sorted(rows, key=lambda row: -row.time_us)


def _host_during(trace: Trace, work: Work, found: list[Gaps], place: int, threads: HostThreads) -> dict[str, int]:
    """ns by name of what the launching thread was in, over gaps in which this reason has the largest part of
    the host's delay."""
    doing: dict[str, int] = {}
    display, labels = trace.labels
    for gaps in found:
        mine = work.on(gaps.device)
        chosen = (gaps.parts[:, place] > 0) & (gaps.parts[:, :3].argmax(axis=1) == place)
        launcher = _launching_threads(trace, mine, gaps)
        for thread in np.unique(launcher[chosen]).tolist():
            if thread < 0:
                continue
            which = chosen & (launcher == thread)
            late = union(gaps.start[which], gaps.host_until[which])
            for label, ns in threads[thread].shares(late, labels).items():
                name = display[label] if label >= 0 else OUTSIDE
                doing[name] = doing.get(name, 0) + ns
    return doing


def _launching_threads(trace: Trace, mine: Work, gaps: Gaps) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Thread of the launch that ended each gap; -1 for none."""
    launch = np.where(mine.launch[gaps.next] >= 0, mine.launch[gaps.next], mine.operator[gaps.next])
    return np.where(launch >= 0, trace.thread[launch], -1)


def longest_gaps(trace: Trace, work: Work, found: list[Gaps], steps: Steps, threads: HostThreads) -> list[Gap]:
    """The longest gaps of all devices, longest first."""
    rows = []
    for gaps in found:
        mine = work.on(gaps.device)
        launcher = _launching_threads(trace, mine, gaps)
        length = gaps.end - gaps.start
        for i in np.argsort(-length, kind="stable")[:LONGEST_SHOWN].tolist():
            event, thread = int(gaps.next[i]), int(launcher[i])
            step = int(steps.of(mine.launched_at[event : event + 1])[0])
            rows.append(
                Gap(
                    device=gaps.device,
                    start_us=(int(gaps.start[i]) - trace.start) / 1000,
                    duration_us=int(length[i]) / 1000,
                    reason=CAUSES[int(gaps.parts[i].argmax())],
                    step=int(steps.number[step]) if step >= 0 else None,
                    before=trace.names[trace.name[mine.event[event]]],
                    host=threads.most(thread, int(gaps.start[i]), int(gaps.end[i])) if thread >= 0 else None,
                )
            )
    return sorted(rows, key=lambda gap: -gap.duration_us)[:LONGEST_SHOWN]
