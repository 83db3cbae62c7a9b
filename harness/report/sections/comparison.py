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
from harness.report.units import duration, share, size
from harness.trace.compare.comparison import (
    GROUPS,
    MORE,
    SMALLEST,
    Comparison,
    Group,
    Row,
    Side,
    Unit,
    culprits,
    regressions,
    undecided,
)

TITLE: dict[Group, str] = {
    "step": "Step time",
    "device": "Where the device's time goes",
    "phase": "Phases, host time",
    "operator": "Operators, self time",
    "kernel": "Kernels, copies and memsets",
    "memory": "Memory",
}
WHAT: dict[Group, str] = {
    "step": "",
    "device": "the device's ",
    "phase": "phase ",
    "operator": "operator ",
    "kernel": "kernel ",
    "memory": "memory, ",
}


def sections(found: Comparison, limit: float | None, rows: int) -> Iterator[Section]:
    """What has changed, in the order of weight; with a limit, whether it is kept."""
    yield _head(found, limit)
    for group in GROUPS:
        mine = [row for row in found.rows if row.group == group]
        if mine:
            yield _section(group, mine, rows)


def sentence(row: Row) -> str:
    """One change in words: `operator aten::mm takes 31 % more: 1.2 ms → 1.57 ms (± 2.1 %)`."""
    what = f"{WHAT[row.group]}{row.name}"
    now, then = _value(row.after, row.unit), _value(row.before, row.unit)
    if row.outcome == "new":
        return f"{what} is new: {now}"
    if row.outcome == "gone":
        return f"{what} is gone: {then} before"
    return f"{what} is {_percent(row.change)}: {then} → {now}{_noise(row)}"


def doubt(row: Row, limit: float) -> str:
    """That the limit may be passed all the same: `step: up to 31 % more cannot be told from noise, ...`."""
    known = "how far it scatters is not known" if row.high is None else f"{100 * row.high:.1f} % more may be noise"
    return f"{row.name}: {known}, so a limit of {100 * limit:g} % decides little; {MORE}"


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
    real = [row for row in found.rows if row.outcome not in ("same", "unknown")]
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
        return Styled("; ".join(f"{row.name} {_percent(row.change)}" for row in grown), "bold red")
    step = next((row for row in found.rows if row.group == "step"), None)
    if step is None:
        return "No step in common"
    if step.outcome in ("more", "less"):
        return Styled(f"{step.name} {_percent(step.change)}", "bold red" if step.outcome == "more" else "bold green")
    if step.outcome == "unknown":
        return Styled("The noise is not known, so no change is", "bold yellow")
    if step.change is not None and abs(step.change) >= SMALLEST.value:
        return Styled(f"{step.name} {_percent(step.change)}, which may be noise: no change can be told", "bold yellow")
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
    worse = row.outcome in ("more", "new")
    if row.name == "busy":
        worse = row.outcome == "less"
    style = "dim" if row.outcome in ("same", "unknown") else "red" if worse else "green"
    interval, inside = "", False
    if row.low is not None and row.high is not None:
        interval, inside = f"{100 * row.low:+.1f} … {100 * row.high:+.1f} %", row.low <= 0 <= row.high
    small = "" if not row.more else "within the noise" if inside else "small" if _is_small(row) else "may be chance"
    said = {"same": small, "unknown": "noise unknown"}.get(row.outcome, row.outcome)
    return [
        row.name,
        _value(row.before, row.unit),
        _value(row.after, row.unit),
        Styled("" if row.change is None else f"{100 * row.change:+.1f} %", style),
        interval,
        Styled(said, style),
    ]


def _is_small(row: Row) -> bool:
    return row.change is not None and abs(row.change) < SMALLEST.value


def _value(value: float | None, unit: Unit) -> str:
    if value is None:
        return ""
    return {"us": duration, "bytes": size, "fraction": share}[unit](value)


def _percent(change: float | None) -> str:
    return "" if change is None else f"{100 * abs(change):.1f} % {'more' if change > 0 else 'less'}"


def _noise(row: Row) -> str:
    if row.change is None or row.low is None or row.high is None or not row.noise:
        return ""
    return f" (± {100 * (row.high - row.low) / 2:.1f} %)"


def _throughput(side: Side) -> str:
    return "" if side.per_second is None else f"{side.per_second:,.0f} {side.unit}/s"
