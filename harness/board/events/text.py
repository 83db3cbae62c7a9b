"""One window's findings as the text that TensorBoard shows beside the curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.report import markdown
from harness.report.document import Block, Cell, Column, Facts, Paragraph, Section, Table, text
from harness.report.sections.comparison import changed_section, trend
from harness.report.sections.findings import verdict_section
from harness.report.sections.operators import operator_section
from harness.report.sections.ranks import ranks_sections
from harness.report.units import duration, share, size
from harness.report.words import since
from harness.trace.compare.changes import Change
from harness.trace.compare.comparison import Comparison, compare
from harness.trace.compare.groups import Group
from harness.trace.figures import busy
from harness.trace.schema import WindowReport

ROWS = 15
"""Operators shown."""
COMPARED: dict[str, tuple[Group, str]] = {
    "step, unprofiled": ("step", "step"),
    "step, profiled": ("step", "step, profiled"),
    "device busy": ("device", "busy"),
    "peak memory": ("memory", "peak allocated"),
}
"""What a comparison calls the figures of the table."""
CHANGES_KEPT = 50
"""In the list of a run's changes, newest first."""


def findings_text(
    report: WindowReport,
    step: int,
    *,
    before: WindowReport | None,
    first: WindowReport | None,
    changes: Sequence[Change],
    composition: Sequence[tuple[str, int]] = (),
) -> str:
    """Verdict, evidence and advice; what differs from the first and the previous window; operators, as Markdown.

    Args:
        before: The window before this one.
        first: The run's first window.
        composition: What the memory is made of, in bytes, by name.
    """
    verdict = verdict_section(report)
    trigger = f" ({report.window.trigger})" if report.window.trigger not in (None, "schedule") else ""
    head: list[Block] = [Paragraph(f"Window of {report.window.steps} steps from step {step:,}{trigger}.")]
    head += [Paragraph(f"Changed: {since(change)}.") for change in changes]
    document = [
        Section(verdict.title, [*head, *verdict.blocks]),
        *ranks_sections(report, ROWS),
        *_against(report, before, first),
        _memory(composition),
        operator_section(report, sort_by=None, by_shape=False, rows=ROWS),
    ]
    return markdown.render(section for section in document if section is not None)


def changes_text(changes: Sequence[Change]) -> str:
    """All changes of a run, newest first, as Markdown."""
    kept = changes[: -CHANGES_KEPT - 1 : -1]
    lines = [Facts([(f"step {change.step:,}", since(change)) for change in kept])]
    return markdown.render([Section("What has changed in this run", lines)])


def _against(report: WindowReport, before: WindowReport | None, first: WindowReport | None) -> Iterator[Section]:
    """The window's figures beside those of the previous and the first one, and what has changed since the previous."""
    if before is None or first is None:
        return
    since_before = compare([before], [report])
    since_first = compare([first], [report], groups=("step", "device", "memory"))
    then, began = _figures(before), _figures(first)
    columns = [text("measure"), Column("now"), Column("previous window"), Column("change"), Column("first window")]
    rows: list[list[Cell]] = [
        [name, value, then.get(name, ""), _change(since_before, name), began.get(name, ""), _change(since_first, name)]
        for name, value in _figures(report).items()
    ]
    labels = [report.verdict.label, before.verdict.label, first.verdict.label]
    differs = ["" if label == labels[0] else "differs" for label in labels]
    rows.append(["verdict", labels[0], labels[1], differs[1], labels[2], differs[2]])
    yield Section("Against earlier windows", [Table([*columns, Column("change")], rows)])
    changed = changed_section(since_before, "What differs from the previous window", ROWS)
    if changed is not None:
        yield changed


def _figures(report: WindowReport) -> dict[str, str]:
    """As people read them."""
    times = report.step_time
    found = {
        name: duration(us)
        for name, us in (
            ("step, unprofiled", times.unprofiled_median_us),
            ("step, profiled", times.profiled_median_us),
            ("cost of the window", report.window.cost_us),
        )
        if us is not None
    }
    share_busy = busy(report)
    if share_busy is not None:
        found["device busy"] = share(share_busy)
    if report.memory is not None:
        found["peak memory"] = size(report.memory.peak_allocated_bytes)
    return found


def _change(found: Comparison, name: str) -> Cell:
    compared = COMPARED.get(name)
    return trend(next((row for row in found.rows if (row.group, row.name) == compared), None))


def _memory(composition: Sequence[tuple[str, int]]) -> Section | None:
    if not composition:
        return None
    whole = sum(count for _, count in composition)
    rows = [[name, size(count), share(count / whole if whole else 0.0)] for name, count in composition]
    return Section("What the job's memory is made of", [Table([text("part"), Column("size"), Column("share")], rows)])
