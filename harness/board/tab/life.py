"""A run's whole life as curves: the points that also stand in TensorBoard's scalars, and what has changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

import msgspec

from harness.board.events.points import Points
from harness.board.tab.places import Places
from harness.logdir import tags
from harness.logdir.scan import Run
from harness.logdir.window import Window
from harness.report.words import IDLE, since
from harness.trace.compare.changes import Change, Changes, NewVerdict
from harness.trace.schema import REST, IdleCause, VerdictLabel, WindowReport
from harness.web.answers import why

RUNS_KEPT = 32
"""Runs whose curves stay in memory, the latest asked for."""


DRAWN = {
    "profiled": tags.WINDOW_STEP_MS_PROFILED,
    "unprofiled": tags.WINDOW_STEP_MS_UNPROFILED,
    "busy": tags.WINDOW_BUSY,
    "idle": tags.IDLE,
    "phases": tags.PHASES,
    "operators": tags.OPERATORS,
}


class Said(msgspec.Struct, frozen=True):
    """A change in words."""

    step: int
    text: str
    label: VerdictLabel | None
    """The new verdict, where it is that which has changed."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """Columns over the run's windows, in the order of their steps."""

    windows: list[str]
    steps: list[int]
    labels: list[str]
    series: dict[str, list[float | None]]
    """By the tags of ``harness.logdir.tags``; None in a window that does not have it."""
    tags: dict[str, str]
    """The tags, or the beginnings of them, of the curves that the page draws."""
    rest: str
    """The end of the tag of what remains."""
    reasons: dict[IdleCause, str]
    """The reasons of idleness in words, by the ends of their tags."""
    changes: list[Said]
    """What is not as it was, in sentences; those with a label are changes of the verdict."""


class Trend(WindowReport, frozen=True, kw_only=True):
    """Findings as far as a curve needs them; the longest lists, which it does not, are passed over."""

    gaps: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]
    operators_by_shape: msgspec.Raw = msgspec.Raw(b"[]")  # type: ignore[assignment]
    kernels: msgspec.Raw  # type: ignore[assignment]
    annotations: msgspec.Raw  # type: ignore[assignment]


class _Record:
    """What has been taken in of one run."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.seen: list[str] = []
        self.life = Life(
            windows=[], steps=[], labels=[], series={}, tags=DRAWN, rest=REST, reasons={**IDLE}, changes=[]
        )
        self._points, self._changes = Points(), Changes()

    def take(self, window: Window) -> None:
        self.seen.append(window.name)
        step = window.step or 0
        try:
            report = window.told(Trend)
            points = self._points.take(report, step)
            changes = self._changes.take(report, step)
        except Exception as error:  # its list says of each window why it tells nothing
            why(error, str(window.path))
            return
        life = self.life
        before = len(life.steps)
        for tag in points.keys() - life.series.keys():
            life.series[tag] = [None] * before
        for tag, values in life.series.items():
            values.append(points.get(tag))
        life.changes.extend(map(_said, changes))
        life.windows.append(window.name)
        life.steps.append(step)
        life.labels.append(report.verdict.label)


def _said(change: Change) -> Said:
    return Said(change.step, since(change), change.label if isinstance(change, NewVerdict) else None)


class Lives:
    """Curves by run. A window that appears is added; nothing is read twice."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._records: OrderedDict[Path, _Record] = OrderedDict()

    def of(self, run: Run) -> bytes:
        """The run's :class:`Life`, as JSON."""
        with self._lock:
            record = self._records.pop(run.path, None) or _Record()
            self._records[run.path] = record
            while len(self._records) > RUNS_KEPT:
                self._records.popitem(last=False)
        with record.lock:
            windows = self._places.windows(run)
            if [window.name for window in windows[: len(record.seen)]] != record.seen:
                record.clear()
            for window in windows[len(record.seen) :]:
                record.take(window)
            return msgspec.json.encode(record.life)
