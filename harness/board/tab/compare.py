"""Two windows side by side: a :class:`harness.trace.compare.Comparison`, arranged for the page."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness.logdir.window import Window
from harness.report import words
from harness.trace.compare.comparison import Comparison, Outcome, Row, compare
from harness.trace.compare.groups import ALL_GROUPS, Group
from harness.trace.figures import busy, is_unprofiled
from harness.trace.schema import WindowReport

MOST_ROWS = 200
"""Of one group, the largest differences."""

Part = Literal["operators", "kernels", "phases", "device", "idle", "memory"]
GROUP_OF: dict[Part, Group] = {
    "operators": "operator",
    "kernels": "kernel",
    "phases": "phase",
    "device": "device",
    "idle": "idle",
    "memory": "allocation",
}
"""What each part of the page shows of the comparison; the step and the peaks of memory stand above them."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two windows."""

    run: str
    window: str
    step: int
    label: str
    confidence: float
    step_us: float | None
    """Without the profiler, where both windows know it; else with it."""
    profiled_us: float | None
    busy: float | None
    peak_bytes: int | None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of both sides. Times and memory are of one profiled step."""

    name: str
    before: float
    after: float
    change: float
    ratio: float | None
    """After over before; None for what was not there before."""
    share: float | None
    """The change, of the profiled step before; of peak memory for bytes."""
    outcome: Outcome
    low: float | None
    high: float | None
    """Ends of the 95 % interval of the ratio, less one."""
    said: str
    """The outcome in words: `more`, `within the noise`."""
    worse: bool
    """Of a change: whether it is for the worse."""


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """What became of ``before``."""

    before: Head
    after: Head
    unprofiled: bool
    """Whether the sides' ``step_us`` are without the profiler."""
    head: dict[str, Line]
    """The step, the device and the peak of memory: by the field of :class:`Head` that it is."""
    groups: dict[Part, list[Line]]
    """What has changed, the largest changes first."""
    noise: dict[Part, list[Line]]
    """What differs, and not by more than noise, or by too little."""
    largest: Part | None
    """The part with the largest change of a time, or else the largest difference; None where nothing differs."""
    warnings: list[str]


def comparison(before: Window, after: Window) -> Pair:
    """The two windows' figures, as :func:`harness.trace.compare.compare` judges them.

    Raises:
        Unreadable: where the findings of one cannot be shown.
    """
    a, b = before.told(WindowReport), after.told(WindowReport)
    found = compare([a], [b], groups=ALL_GROUPS)
    unprofiled = is_unprofiled(a.step_time) and is_unprofiled(b.step_time)
    changed, others = _parts(found, a, changed=True), _parts(found, a, changed=False)
    return Pair(
        before=_head(before, a, unprofiled),
        after=_head(after, b, unprofiled),
        unprofiled=unprofiled,
        head=_heads(found, a, unprofiled),
        groups=changed,
        noise=others,
        largest=_largest(changed) or _largest(others),
        warnings=found.warnings,
    )


def _parts(found: Comparison, before: WindowReport, *, changed: bool) -> dict[Part, list[Line]]:
    """What differs, and has changed or has not; the parts that have some of it."""
    rows = [row for row in found.rows if row.more and row.unit != "fraction" and row.is_change == changed]
    parts = {
        part: [_line(row, before) for row in rows if row.group == group][:MOST_ROWS] for part, group in GROUP_OF.items()
    }
    return {part: lines for part, lines in parts.items() if lines}


def _largest(parts: dict[Part, list[Line]]) -> Part | None:
    # What a device does as a whole is made of the others.
    times = [part for part in parts if part not in ("memory", "device")]
    return max(times or parts, key=lambda part: max(abs(line.change) for line in parts[part]), default=None)


def _head(window: Window, report: WindowReport, unprofiled: bool) -> Head:
    times = report.step_time
    return Head(
        run=window.run,
        window=window.name,
        step=window.step or 0,
        label=report.verdict.label,
        confidence=report.verdict.confidence,
        step_us=times.unprofiled_median_us if unprofiled else times.profiled_median_us,
        profiled_us=times.profiled_median_us,
        busy=busy(report),
        peak_bytes=report.memory.peak_allocated_bytes if report.memory is not None else None,
    )


def _heads(found: Comparison, before: WindowReport, unprofiled: bool) -> dict[str, Line]:
    wanted: dict[tuple[Group, str], str] = {
        ("step", "step" if unprofiled else "step, profiled"): "step_us",
        ("device", "busy"): "busy",
        ("memory", "peak allocated"): "peak_bytes",
    }
    if unprofiled:
        wanted["step", "step, profiled"] = "profiled_us"
    rows = {(row.group, row.name): row for row in found.rows}
    return {field: _line(rows[key], before) for key, field in wanted.items() if key in rows}


def _line(row: Row, report: WindowReport) -> Line:
    """report: of the window before, whose step or memory the change is a share of."""
    peak = report.memory.peak_allocated_bytes if report.memory is not None else None
    whole = {"us": report.step_time.profiled_median_us, "bytes": peak, "fraction": None}[row.unit]
    return Line(
        name=words.figure(row),
        before=row.before or 0.0,
        after=row.after or 0.0,
        change=row.more,
        ratio=None if row.change is None else 1 + row.change,
        share=row.more / whole if whole else None,
        outcome=row.outcome,
        low=row.low,
        high=row.high,
        said=words.remark(row),
        worse=words.is_worse(row),
    )
