"""One window's findings as the text that TensorBoard shows beside the curves."""

from __future__ import annotations

from collections.abc import Sequence

from harness.board.changes import Change
from harness.report import markdown
from harness.report.document import Block, Cell, Column, Facts, Paragraph, Section, Table, text
from harness.report.sections.findings import verdict_section
from harness.report.sections.operators import operator_section
from harness.report.sections.overview import trend
from harness.report.sections.ranks import ranks_sections
from harness.report.units import duration, share, size
from harness.trace.figures import busiest
from harness.trace.schema import WindowReport

ROWS = 15
"""Operators shown."""
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
    """Verdict, evidence and advice; the change against the first and the previous window; operators, as Markdown.

    Args:
        before: The window before this one.
        first: The run's first window.
        composition: What the memory is made of, in bytes, by name.
    """
    verdict = verdict_section(report)
    trigger = f" ({report.window.trigger})" if report.window.trigger not in (None, "schedule") else ""
    head: list[Block] = [Paragraph(f"Window of {report.window.steps} steps from step {step:,}{trigger}.")]
    head += [Paragraph(f"Changed: {change.text}.") for change in changes]
    document = [
        Section(verdict.title, [*head, *verdict.blocks]),
        *ranks_sections(report, ROWS),
        _against(report, before, first),
        _memory(composition),
        operator_section(report, sort_by=None, by_shape=False, rows=ROWS),
    ]
    return markdown.render(section for section in document if section is not None)


def changes_text(changes: Sequence[Change]) -> str:
    """All changes of a run, newest first, as Markdown."""
    kept = changes[: -CHANGES_KEPT - 1 : -1]
    lines = [Facts([(f"step {change.step:,}", change.text) for change in kept])]
    return markdown.render([Section("What has changed in this run", lines)])


def _against(report: WindowReport, before: WindowReport | None, first: WindowReport | None) -> Section | None:
    if before is None or first is None:
        return None
    now, then, began = (_figures(one) for one in (report, before, first))
    columns = [text("measure"), Column("now"), Column("previous window"), Column("change"), Column("first window")]
    rows: list[list[Cell]] = [
        [name, value, _shown(then, name), _change(now, then, name), _shown(began, name), _change(now, began, name)]
        for name, (_, value, _) in now.items()
    ]
    labels = [report.verdict.label, before.verdict.label, first.verdict.label]
    differs = ["" if label == labels[0] else "differs" for label in labels]
    rows.append(["verdict", labels[0], labels[1], differs[1], labels[2], differs[2]])
    return Section("Against earlier windows", [Table([*columns, Column("change")], rows)])


_Figure = tuple[float, str, str]
"""Value, the value as people read it, and the colour of more."""


def _figures(report: WindowReport) -> dict[str, _Figure]:
    times = report.step_time
    found: dict[str, _Figure] = {}
    for name, us in (
        ("step, unprofiled", times.unprofiled_median_us),
        ("step, profiled", times.profiled_median_us),
        ("cost of the window", report.window.cost_us),
    ):
        if us is not None:
            found[name] = (us, duration(us), "red")
    device = busiest(report)
    if device is not None:
        found["device busy"] = (device.busy_fraction, share(device.busy_fraction), "green")
    if report.memory is not None:
        peak = report.memory.peak_allocated_bytes
        found["peak memory"] = (peak, size(peak), "red")
    return found


def _shown(figures: dict[str, _Figure], name: str) -> str:
    return figures[name][1] if name in figures else ""


def _change(now: dict[str, _Figure], then: dict[str, _Figure], name: str) -> Cell:
    value, _, more_is = now[name]
    return trend(value, then[name][0], more_is=more_is) if name in then else ""


def _memory(composition: Sequence[tuple[str, int]]) -> Section | None:
    if not composition:
        return None
    whole = sum(count for _, count in composition)
    rows = [[name, size(count), share(count / whole if whole else 0.0)] for name, count in composition]
    return Section("What the job's memory is made of", [Table([text("part"), Column("size"), Column("share")], rows)])
