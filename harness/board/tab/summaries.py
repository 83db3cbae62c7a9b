"""The few figures of each window that a list shows, read once: a window never changes."""

from __future__ import annotations

from pathlib import Path

import msgspec

from harness.logdir.window import Window
from harness.report.sections.overview import Glance
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


class Summaries:
    """Decoded summaries by the file's path, its time and its size."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Summary]] = {}

    def of(self, window: Window) -> Summary:
        """The window's figures, or why there are none."""
        try:
            status = window.findings.stat()
            stamp = (status.st_mtime_ns, status.st_size)
        except OSError:
            return _without_findings(window)
        known = self._known.get(window.findings)
        if known is None or known[0] != stamp:
            known = stamp, _summary(window, status.st_mtime)
            self._known[window.findings] = known
        return known[1]


def _summary(window: Window, recorded: float) -> Summary:
    try:
        return _figures(window, recorded, window.told(Glance))
    except Exception as error:  # it hides no other window
        return Summary(
            name=window.name, step=window.step or 0, recorded=recorded, problem=why(error, str(window.path))[0]
        )


def _figures(window: Window, recorded: float, found: Glance) -> Summary:
    return Summary(
        name=window.name,
        step=window.step or 0,
        recorded=recorded,
        label=found.verdict.label,
        confidence=found.verdict.confidence,
        step_us=found.step_us,
        unprofiled=found.step_time.unprofiled_median_us is not None,
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
