"""Two windows side by side: what grew and what shrank, each against the step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from harness.logdir.window import Window
from harness.report.sections.device import REASON
from harness.trace.figures import busiest, operator_times, parts_of_step
from harness.trace.schema import WindowReport

LEAST_SHARE = 0.001
"""Of the step: changes below it are left out."""
MOST_ROWS = 200
"""Of one group, the largest changes."""

Group = Literal["operators", "kernels", "phases", "idle", "memory"]


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two."""

    run: str
    window: str
    step: int
    label: str
    confidence: float
    step_us: float | None
    """Without the profiler, where both windows know it; else both with it."""
    profiled_us: float | None
    busy: float | None
    peak_bytes: int | None


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A change. Times are microseconds of one profiled step; memory is bytes over the window."""

    name: str
    before: float
    after: float
    change: float
    ratio: float | None
    """After over before; None for what was not there before."""
    share: float | None
    """The change, of the profiled step before; of peak memory for bytes."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What became of ``before``; rows by group, the largest changes first."""

    before: Side
    after: Side
    unprofiled: bool
    """Whether the sides' ``step_us`` are without the profiler."""
    groups: dict[Group, list[Row]]
    largest: Group | None
    """The group with the largest change of a time; None where nothing differs."""


def compare(before: Window, after: Window) -> Comparison:
    """What grew and what shrank.

    Raises:
        Unreadable: where the findings of one cannot be shown.
    """
    a, b = before.told(WindowReport), after.told(WindowReport)
    unprofiled = None not in (a.step_time.unprofiled_median_us, b.step_time.unprofiled_median_us)
    step = a.step_time.profiled_median_us
    peak = a.memory.peak_allocated_bytes if a.memory is not None else None
    groups: dict[Group, list[Row]] = {
        "operators": _rows(operator_times(a), operator_times(b), step),
        "kernels": _rows(_kernel_times(a), _kernel_times(b), step),
        "phases": _rows(_phase_times(a), _phase_times(b), step),
        "idle": _rows(_idle_times(a), _idle_times(b), step),
        "memory": _rows(_memory(a), _memory(b), peak) if a.memory is not None and b.memory is not None else [],
    }
    groups = {name: rows for name, rows in groups.items() if rows}
    by_size = sorted(groups, key=lambda name: (name != "memory", abs(groups[name][0].change)))
    return Comparison(
        before=_side(before, a, unprofiled),
        after=_side(after, b, unprofiled),
        unprofiled=unprofiled,
        groups=groups,
        largest=by_size[-1] if by_size else None,
    )


def _side(window: Window, report: WindowReport, unprofiled: bool) -> Side:
    times, device = report.step_time, busiest(report)
    return Side(
        run=window.run,
        window=window.name,
        step=window.step or 0,
        label=report.verdict.label,
        confidence=report.verdict.confidence,
        step_us=times.unprofiled_median_us if unprofiled else times.profiled_median_us,
        profiled_us=times.profiled_median_us,
        busy=device.busy_fraction if device is not None else None,
        peak_bytes=report.memory.peak_allocated_bytes if report.memory is not None else None,
    )


def _rows(before: Mapping[str, float], after: Mapping[str, float], whole: float | None) -> list[Row]:
    rows = []
    for name in dict.fromkeys([*before, *after]):
        a, b = before.get(name, 0.0), after.get(name, 0.0)
        share = (b - a) / whole if whole else None
        if b != a and (share is None or abs(share) >= LEAST_SHARE):
            rows.append(Row(name=name, before=a, after=b, change=b - a, ratio=b / a if a else None, share=share))
    return sorted(rows, key=lambda row: -abs(row.change))[:MOST_ROWS]


def _kernel_times(report: WindowReport) -> dict[str, float]:
    steps = max(report.window.steps, 1)
    return _summed((kernel.name, kernel.total_us / steps) for kernel in report.kernels)


def _phase_times(report: WindowReport) -> dict[str, float]:
    steps = max(report.window.steps, 1)
    return _summed((phase.name, phase.host_us / steps) for phase in parts_of_step(report))


def _idle_times(report: WindowReport) -> dict[str, float]:
    steps = max(report.window.steps, 1)
    return _summed((REASON[row.reason], row.time_us / steps) for row in report.idle)


def _memory(report: WindowReport) -> dict[str, float]:
    """What each operator has allocated by itself, less what it has freed."""
    device = any(pool.device_type == "device" for pool in (report.memory.pools if report.memory else []))
    return _summed(
        (row.name, row.self_device_memory_bytes if device else row.self_cpu_memory_bytes)
        for row in report.operators
        if row.device_type == "cpu"
    )


def _summed(items: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in items:
        found[name] = found.get(name, 0.0) + value
    return found
