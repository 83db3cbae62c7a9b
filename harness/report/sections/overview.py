"""A run's windows, and a logdir's runs, as tables: what changed, and where to look."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.logdir.findings import Unreadable
from harness.logdir.scan import Run
from harness.logdir.window import Window as Place
from harness.report.document import Block, Cell, Column, Paragraph, Section, Styled, Table, name, text, without
from harness.report.styles import verdict_style
from harness.report.units import duration, share
from harness.trace.schema import DeviceTime, StepTime, Verdict, Window, WindowReport

ANALYZED = 20
"""Windows without findings of their own are analyzed for a list, the newest so many; of runs, the first."""
NOTABLE = 0.02
"""A smaller change is none: medians of a few steps differ by as much from window to window."""


class Glance(msgspec.Struct, frozen=True):
    """The few fields of a WindowReport that a list shows; the others are skipped unread."""

    schema_version: int
    window: Window
    step_time: StepTime
    device: list[DeviceTime]
    verdict: Verdict

    @property
    def step_us(self) -> float | None:
        """Without the profiler where that is known."""
        times = self.step_time
        return times.unprofiled_median_us if times.unprofiled_median_us is not None else times.profiled_median_us

    @property
    def busy(self) -> float | None:
        """Of the busiest device."""
        return max((device.busy_fraction for device in self.device), default=None)


def glance(place: Place, *, may_analyze: bool = True) -> Glance | None:
    """From the findings, or else from the trace; None for a window that tells nothing."""
    with suppress(Unreadable):
        return place.told(Glance)
    if not may_analyze or place.trace is None:
        return None
    try:
        return _glance_of(place.report())
    except UsageError:
        return None


def _glance_of(report: WindowReport) -> Glance:
    return Glance(report.schema_version, report.window, report.step_time, report.device, report.verdict)


def windows_section(run: Run, shown: Place, report: WindowReport) -> Section:
    """Every window of a run, oldest first, each against the one before it. report: of the one shown below."""
    first = len(run.windows) - ANALYZED
    found = [
        _glance_of(report) if place == shown else glance(place, may_analyze=number >= first)
        for number, place in enumerate(run.windows)
    ]
    kinds = {
        _is_unprofiled(found_one) for found_one in found if found_one is not None and found_one.step_us is not None
    }
    heading = "traced step" if kinds == {False} else "step time"
    columns = [
        text(""),
        Column("step"),
        Column("steps", drop=5),
        Column(heading),
        Column("change", drop=1),
        Column("device busy"),
        Column("busy change", drop=2),
        text("verdict"),
        Column("cost", drop=4),
        text("notes", drop=3),
    ]
    rows = []
    before: Glance | None = None
    for place, now in zip(run.windows, found, strict=True):
        rows.append(_window_row(place, now, before, mark="▸" if place == shown else "", mixed=len(kinds) > 1))
        before = now or before
    table = Table(columns, rows)
    figures = [one for one in found if one is not None]
    if all(one.busy is None for one in figures):
        table = without(table, "device busy", "busy change")
    if all(one.window.cost_us is None for one in figures):
        table = without(table, "cost")
    blocks: list[Block] = [table]
    if len(kinds) > 1:
        blocks.append(Paragraph("traced: the step time with the profiler, where the other one is not known.", "dim"))
    if any(one is None for one in found):
        blocks.append(Paragraph("Windows without figures were not analyzed; --window STEP shows one.", "dim"))
    return Section(f"Windows of {run.path}", blocks)


def _window_row(place: Place, now: Glance | None, before: Glance | None, *, mark: str, mixed: bool) -> list[Cell]:
    step = "" if place.step is None else str(place.step)
    if now is None:
        return [mark, step, *[""] * 8]
    comparable = before is not None and _is_unprofiled(before) == _is_unprofiled(now)
    notes = [
        *(["partial"] if now.window.partial else []),
        *([f"{now.window.lost_events:,} events lost"] if now.window.lost_events else []),
        *(["traced"] if mixed and not _is_unprofiled(now) else []),
    ]
    return [
        mark,
        step,
        str(now.window.steps),
        "" if now.step_us is None else duration(now.step_us),
        trend(now.step_us, before.step_us if before is not None and comparable else None, more_is="red"),
        "" if now.busy is None else share(now.busy),
        trend(now.busy, before.busy if before is not None else None, more_is="green"),
        Styled(now.verdict.label, verdict_style(now.verdict.label)),
        "" if now.window.cost_us is None else duration(now.window.cost_us),
        ", ".join(notes),
    ]


def _is_unprofiled(found: Glance) -> bool:
    return found.step_time.unprofiled_median_us is not None


def trend(now: float | None, before: float | None, *, more_is: str) -> Cell:
    """An arrow with the change: `▲ 12 %`, `▲ 2.5 ×`; `=` for one that means nothing."""
    if now is None or not before:
        return ""
    change = now / before - 1
    if abs(change) < NOTABLE:
        return Styled("=", "dim")
    less_is = "green" if more_is == "red" else "red"
    if change >= 1:
        return Styled(f"▲ {1 + change:,.3g} ×", more_is)
    if change > 0:
        return Styled(f"▲ {100 * change:.0f} %", more_is)
    return Styled(f"▼ {-100 * change:.0f} %", less_is)


def runs_section(logdir: Path, runs: Sequence[Run], shown: Run) -> Section:
    """Every run below a logdir with its newest window."""
    columns = [
        text(""),
        name("run"),
        Column("windows", drop=2),
        Column("newest at step", drop=3),
        Column("step time"),
        Column("busy", drop=1),
        text("verdict"),
    ]
    rows: list[list[Cell]] = []
    for number, run in enumerate(runs):
        newest = run.window(-1)
        found = glance(newest, may_analyze=number < ANALYZED)
        rows.append(
            [
                "▸" if run is shown else "",
                run.title(None),
                str(len(run.windows)),
                str(newest.step),
                "" if found is None or found.step_us is None else duration(found.step_us),
                "" if found is None or found.busy is None else share(found.busy),
                "" if found is None else Styled(found.verdict.label, verdict_style(found.verdict.label)),
            ]
        )
    return Section(
        f"Runs of {logdir}", [Table(columns, rows), Paragraph("▸ is shown below; give a run for another one.")]
    )
