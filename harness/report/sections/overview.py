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
from harness.report.sections.comparison import trend
from harness.report.styles import verdict_style
from harness.report.units import duration, share
from harness.trace.compare.comparison import Row, device_rows, step_rows
from harness.trace.figures import busy, is_unprofiled, step_us
from harness.trace.schema import DeviceTime, Step, StepTime, Verdict, Window, WindowReport

ANALYZED = 20
"""Windows without findings of their own are analyzed for a list, the newest so many; of runs, the first."""


class Glance(msgspec.Struct, frozen=True):
    """The few fields of a WindowReport that a list shows; the others are skipped unread."""

    schema_version: int
    window: Window
    steps: list[Step]
    step_time: StepTime
    device: list[DeviceTime]
    verdict: Verdict

    @property
    def step_us(self) -> float | None:
        """Without the profiler where that is known."""
        return step_us(self.step_time)

    @property
    def is_unprofiled(self) -> bool:
        """Whether that is without the profiler."""
        return is_unprofiled(self.step_time)

    @property
    def busy(self) -> float | None:
        """Of the busiest device."""
        return busy(self)


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
    return Glance(report.schema_version, report.window, report.steps, report.step_time, report.device, report.verdict)


def windows_section(run: Run, shown: Place, report: WindowReport) -> Section:
    """Every window of a run, oldest first, each against the one before it as a comparison says. report: of the one
    shown below."""
    first = len(run.windows) - ANALYZED
    found = [
        _glance_of(report) if place == shown else glance(place, may_analyze=number >= first)
        for number, place in enumerate(run.windows)
    ]
    kinds = {one.is_unprofiled for one in found if one is not None and one.step_us is not None}
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
    notes = [
        *(["partial"] if now.window.partial else []),
        *([f"{now.window.lost_events:,} events lost"] if now.window.lost_events else []),
        *(["traced"] if mixed and not now.is_unprofiled else []),
    ]
    return [
        mark,
        step,
        str(now.window.steps),
        "" if now.step_us is None else duration(now.step_us),
        step_trend(before, now),
        "" if now.busy is None else share(now.busy),
        _trend(device_rows([before], [now]), "busy") if before is not None else "",
        Styled(now.verdict.label, verdict_style(now.verdict.label)),
        "" if now.window.cost_us is None else duration(now.window.cost_us),
        ", ".join(notes),
    ]


def step_trend(before: Glance | None, now: Glance) -> Cell:
    """The change of the step time that a list shows; nothing where the two are with and without the profiler."""
    if before is None or before.is_unprofiled != now.is_unprofiled:
        return ""
    return _trend(step_rows([before], [now]), "step" if now.is_unprofiled else "step, profiled")


def _trend(rows: Sequence[Row], name: str) -> Cell:
    return trend(next((row for row in rows if row.name == name), None))


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
