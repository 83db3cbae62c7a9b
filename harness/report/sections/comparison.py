"""A comparison as a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report.document import (
    Block,
    Cell,
    Column,
    Numbered,
    Paragraph,
    Section,
    Styled,
    Table,
    more,
    name,
    prose,
    text,
)
from harness.report.units import duration, share
from harness.report.words import doubt, figure, interval, is_small, is_worse, percent, remark, sentence, value
from harness.trace.compare.comparison import Comparison, Row, Side, culprits, regressions, undecided
from harness.trace.compare.groups import ALL_GROUPS, Group

TITLE: dict[Group, str] = {
    "step": "Step time",
    "device": "Where the device's time goes",
    "phase": "Phases, host time",
    "operator": "Operators, self time",
    "kernel": "Kernels, copies and memsets",
    "memory": "Memory",
    "idle": "Why the device is idle",
    "allocation": "Memory that operators allocate",
}


def comparison_sections(found: Comparison, limit: float | None, rows: int) -> Iterator[Section]:
    """What has changed, in the order of weight; with a limit, whether it is kept."""
    yield _head(found, limit)
    for group in ALL_GROUPS:
        mine = [row for row in found.rows if row.group == group]
        if mine:
            yield _section(group, mine, rows)


def changed_section(found: Comparison, title: str, rows: int) -> Section | None:
    """The phases, operators and kernels that have changed, as many of each as `rows`; None where none has."""
    changed = [row for row in found.rows if row.is_change]
    by_group = [[row for row in changed if row.group == group] for group in ("phase", "operator", "kernel")]
    shown = [row for mine in by_group for row in mine[:rows]]
    if not shown:
        return None
    columns = [
        text(""),
        name(""),
        Column("before"),
        Column("after"),
        Column("change"),
        Column("95 % interval"),
        text(""),
    ]
    left = sum(map(len, by_group)) - len(shown)
    blocks: list[Block] = [Table(columns, [[row.group, *_cells(row)] for row in shown])]
    if left:
        blocks.append(Paragraph(f"And {left:,} more, which harness compare shows.", "dim"))
    return Section(title, blocks)


def trend(row: Row | None) -> Cell:
    """A change as an arrow: `▲ 12 %`, `▲ 2.5 ×`; `=` for one that is too small, and what may be noise says so."""
    if row is None or row.change is None:
        return ""
    if is_small(row):
        return Styled("=", "dim")
    shown = (
        f"▲ {1 + row.change:,.3g} ×"
        if row.change >= 1
        else f"{'▲' if row.change > 0 else '▼'} {100 * abs(row.change):.0f} %"
    )
    if not row.is_change:
        return Styled(f"{shown} ({'noise' if row.outcome == 'same' else 'noise?'})", "dim")
    return Styled(shown, "red" if is_worse(row) else "green")


def _head(found: Comparison, limit: float | None) -> Section:
    both = (found.before, found.after)
    facts: list[tuple[str, Sequence[str]]] = [
        ("path", [one.name for one in both]),
        ("windows, steps", [f"{one.windows}, {one.steps}" for one in both]),
        ("torch", [one.torch_version or "?" for one in both]),
        ("device", [one.device or "CPU" for one in both]),
        ("ranks", [str(one.world_size) for one in both]),
        ("step", ["" if one.step_us is None else duration(one.step_us) for one in both]),
        ("throughput", [_throughput(one) for one in both]),
        ("a step trains on", ["" if one.per_step is None else f"{one.per_step:,g} {one.unit}" for one in both]),
        ("verdict", [one.verdict for one in both]),
    ]
    shown: list[list[Cell]] = [[what, *values] for what, values in facts if any(values)]
    blocks: list[Block] = [Table([text(""), prose("before"), prose("after")], shown)]
    if found.per_sample:
        blocks.append(Paragraph("Times below are of one sample, those of a step divided by what it trains on."))
    elif found.before.per_step and found.after.per_step and found.before.per_step != found.after.per_step:
        blocks.append(Paragraph("! A step is not as much work on both sides; --per-sample divides by it.", "yellow"))
    blocks += [Paragraph(f"! {_capital(warning)}.", "yellow") for warning in found.warnings]
    grown = regressions(found, limit) if limit is not None else []
    real = [row for row in found.rows if row.is_change]
    for row in undecided(found, limit) if limit is not None else []:
        blocks.append(Paragraph(f"! {_capital(doubt(row, limit or 0.0))}.", "yellow"))
    if grown:
        blocks.append(Paragraph(f"Over the limit of {share(limit or 0.0)}:", "bold red"))
        blocks.append(Numbered([(sentence(row), "see below") for row in grown]))
    if any(row.group == "step" for row in real) or grown:
        named = culprits(found)
        if named:
            blocks.append(Paragraph("What takes more time:"))
            blocks.append(Numbered([(row.name, sentence(row)) for row in named]))
    return Section(_title(found, grown, real), blocks)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _title(found: Comparison, grown: Sequence[Row], real: Sequence[Row]) -> Cell:
    if grown:
        return Styled("; ".join(f"{row.name} {percent(row)}" for row in grown), "bold red")
    step = next((row for row in found.rows if row.group == "step"), None)
    if step is None:
        return "No step in common"
    if step.outcome in ("more", "less"):
        return Styled(f"{step.name} {percent(step)}", "bold red" if step.outcome == "more" else "bold green")
    if step.outcome == "unknown":
        return Styled("The noise is not known, so no change is", "bold yellow")
    if step.change is not None and not is_small(step):
        return Styled(f"{step.name} {percent(step)}, which may be noise: no change can be told", "bold yellow")
    return Styled("The step takes as long as before" + (", within the noise" if real or step.change else ""), "bold")


def _section(group: Group, found: Sequence[Row], rows: int) -> Section:
    columns = [
        name(""),
        Column("before"),
        Column("after"),
        Column("change"),
        Column("95 % interval", drop=2),
        text("", drop=1),
    ]
    shown = found[:rows]
    table = Table(columns, [_cells(row) for row in shown])
    return Section(TITLE[group], [table, *more(len(shown), len(found))])


def _cells(row: Row) -> list[Cell]:
    style = ("red" if is_worse(row) else "green") if row.is_change else "dim"
    return [
        figure(row),
        value(row.before, row.unit),
        value(row.after, row.unit),
        Styled("" if row.change is None else f"{100 * row.change:+.1f} %", style),
        interval(row),
        Styled(remark(row), style),
    ]


def _throughput(side: Side) -> str:
    return "" if side.per_second is None else f"{side.per_second:,.0f} {side.unit}/s"
