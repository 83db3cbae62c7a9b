"""The few figures of each window that a list shows, read once: a window never changes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from harness.logdir.window import Window
from harness.report.document import Cell
from harness.report.sections.overview import Glance, step_trend
from harness.web.answers import why


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A window in a list. What is not known is None."""

    name: str
    step: int
    """At which recording began."""
    recorded: float
    """When it was published, seconds since 1970."""
    label: str | None = None
    confidence: float | None = None
    step_us: float | None = None
    """Without the profiler where that is known."""
    unprofiled: bool = False
    busy: float | None = None
    cost_us: float | None = None
    steps: int | None = None
    partial: bool = False
    lost_events: int = 0
    trigger: str | None = None
    problem: str | None = None
    """Why there are no figures."""


class _Read(NamedTuple):
    """A file of findings, as far as it was read."""

    stamp: tuple[int, int]
    """Its time and its size."""
    summary: Summary
    glance: Glance | None


class Summaries:
    """Reads each window once, and again where its file is another one."""

    def __init__(self) -> None:
        self._known: dict[Path, _Read] = {}
        self._changes: dict[Path, tuple[_Read, _Read, Cell]] = {}

    def of(self, window: Window) -> Summary:
        """The window's figures, or why there are none."""
        found = self._read(window)
        return _without_findings(window) if found is None else found.summary

    def change(self, window: Window, before: Window | None) -> Cell:
        """How its step differs from that of the one before it, as the report's list of windows shows it; nothing where
        one of the two tells no step."""
        now, then = self._read(window), self._read(before) if before is not None else None
        if now is None or then is None or now.glance is None or then.glance is None:
            return ""
        known = self._changes.get(window.findings)
        if known is None or known[0] is not then or known[1] is not now:
            known = then, now, step_trend(then.glance, now.glance)
            self._changes[window.findings] = known
        return known[2]

    def _read(self, window: Window) -> _Read | None:
        try:
            status = window.findings.stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(window.findings)
        if known is None or known.stamp != stamp:
            known = self._known[window.findings] = _read(window, stamp, status.st_mtime)
        return known


def _read(window: Window, stamp: tuple[int, int], recorded: float) -> _Read:
    try:
        found = window.told(Glance)
        return _Read(stamp, _figures(window, recorded, found), found)
    except Exception as error:  # it hides no other window
        problem = why(error, str(window.path))[0]
        return _Read(stamp, Summary(name=window.name, step=window.step or 0, recorded=recorded, problem=problem), None)


def _figures(window: Window, recorded: float, found: Glance) -> Summary:
    return Summary(
        name=window.name,
        step=window.step or 0,
        recorded=recorded,
        label=found.verdict.label,
        confidence=found.verdict.confidence,
        step_us=found.step_us,
        unprofiled=found.is_unprofiled,
        busy=found.busy,
        cost_us=found.window.cost_us,
        steps=found.window.steps,
        partial=found.window.partial,
        lost_events=found.window.lost_events,
        trigger=found.window.trigger,
    )


def _without_findings(window: Window) -> Summary:
    try:
        recorded = window.path.stat().st_mtime
    except OSError:
        recorded = 0.0
    problem = "it was published without findings" if window.traces() else "it holds neither a trace nor findings"
    return Summary(name=window.name, step=window.step or 0, recorded=recorded, problem=problem)
