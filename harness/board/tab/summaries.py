"""The few figures of each window that a list shows, read once: a window never changes."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from harness.board.tab.places import Window
from harness.errors import UsageError
from harness.files import read_regular
from harness.publish.staging import FINDINGS
from harness.report.sections.overview import Glance
from harness.trace.schema import SCHEMA_VERSION, WindowReport
from harness.web.answers import why
from harness.web.disk import is_inside

Findings = TypeVar("Findings", bound=Glance | WindowReport)


class Unreadable(UsageError):
    """Findings that this version cannot show; the message says why."""

    status = 422


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
        return _figures(window, recorded, decoded(window, Glance))
    except Exception as error:  # it hides no other window
        return Summary(name=window.name, step=window.step, recorded=recorded, problem=why(error, str(window.path))[0])


def _figures(window: Window, recorded: float, found: Glance) -> Summary:
    return Summary(
        name=window.name,
        step=window.step,
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
    return Summary(name=window.name, step=window.step, recorded=recorded, problem=problem)


def report_of(window: Window) -> WindowReport:
    """All findings of a window.

    Raises:
        Unreadable: where they cannot be shown.
    """
    return decoded(window, WindowReport)


def decoded(window: Window, kind: type[Findings]) -> Findings:
    """The findings of a window as far as ``kind`` has them; other fields are skipped unread.

    Raises:
        Unreadable: where the file leads out of the logdir, is none, is too large, is damaged or of another version.
    """
    path = window.findings
    if not is_inside(path, window.run.logdir.path):
        raise Unreadable(f"{FINDINGS} is missing, or leads out of the logdir")
    try:
        found = msgspec.json.decode(read_regular(path), type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Unreadable(f"{FINDINGS} is damaged: {error}") from error
    except OSError as error:
        raise Unreadable(f"{FINDINGS} cannot be read: {error.strerror or error}") from error
    if found.schema_version != SCHEMA_VERSION:
        raise Unreadable(
            f"{FINDINGS} is of schema version {found.schema_version}, and this harness reads {SCHEMA_VERSION}"
        )
    return found
