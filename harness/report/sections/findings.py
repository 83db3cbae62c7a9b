"""The findings of one window, in the order of a reader's questions: what bounds the step, why, what to do; can
that be trusted; where did the time go; which code was it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Picture,
    Section,
    Styled,
    Table,
    more,
    name,
    numbered,
    prose,
    text,
    without,
)
from harness.report.sections.device import (
    copies_section,
    device_section,
    idle_section,
    kernels_section,
    roofline_section,
    serialization_section,
)
from harness.report.sections.memory import memory_section
from harness.report.sections.operators import operator_section
from harness.report.sections.ranks import ranks_sections
from harness.report.styles import verdict_style
from harness.report.units import bar, duration, share, size
from harness.report.words import MEANING, straggler_sentence
from harness.trace.passed_over import in_words
from harness.trace.schema import (
    Annotation,
    Evidence,
    WindowReport,
)

COUNTED = "device events"
"""The one measure of a verdict that is a count and no share."""
OTHERS_SHOWN = 3


@dataclass(frozen=True)
class Options:
    """What the reader asked to see."""

    sort_by: str | None = None
    """A name of :data:`harness.report.sections.operators.SORT_KEYS`; None for the default."""
    by_shape: bool = False
    rows: int = 15
    """Of every long table."""


def sections(
    report: WindowReport, picture: Picture | None, options: Options, *, others: Sequence[str] = ()
) -> list[Section]:
    """The report, without the sections that have nothing to say. others: traces of other ranks beside this one."""
    found = [
        verdict_section(report),
        *ranks_sections(report, options.rows),
        measured_section(report, others),
        steps_section(report, options.rows),
        device_section(report),
        idle_section(report),
        Section("One step", [picture]) if picture is not None else None,
        phases_section(report, options.rows),
        operator_section(report, sort_by=options.sort_by, by_shape=options.by_shape, rows=options.rows),
        kernels_section(report, options.rows),
        memory_section(report, by_shape=options.by_shape, rows=options.rows),
        copies_section(report, options.rows),
        serialization_section(report),
        roofline_section(report),
        categories_section(report),
    ]
    return [section for section in found if section is not None]


def verdict_section(report: WindowReport) -> Section:
    """What bounds the step, by which measures, and what to do."""
    verdict = report.verdict
    blocks: list[Block] = [Paragraph(MEANING[verdict.label])]
    if report.ranks is not None and report.ranks.straggler is not None:
        blocks.append(Paragraph(straggler_sentence(report.ranks.straggler), "bold red"))
    if verdict.evidence:
        columns = [text("measure"), Column("value"), text(""), Column("threshold"), prose("meaning")]
        blocks.append(Table(columns, [_evidence(evidence) for evidence in verdict.evidence]))
    if verdict.advice:
        blocks.append(numbered(verdict.advice))
    title = f"{verdict.label}, confidence {share(verdict.confidence)}"
    return Section(Styled(title, verdict_style(verdict.label)), blocks)


def _evidence(evidence: Evidence) -> list[Cell]:
    show = _count if evidence.measure == COUNTED else share
    sign = "≥" if evidence.value >= evidence.threshold else "<"
    return [evidence.measure, show(evidence.value), sign, show(evidence.threshold), evidence.meaning]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def measured_section(report: WindowReport, others: Sequence[str]) -> Section:
    window, times, totals = report.window, report.step_time, report.totals
    origin = [report.source]
    if report.torch_version:
        origin.append(f"torch {report.torch_version}")
    if report.world_size > 1:
        origin.append(f"rank {report.rank} of {report.world_size}")
    items = [("Trace", ", ".join(origin))]
    read_too = {rank.source for rank in report.ranks.ranks} if report.ranks is not None else set()
    others = [other for other in others if other not in read_too]
    if others:
        rest = f" and {len(others) - OTHERS_SHOWN} more" if len(others) > OTHERS_SHOWN else ""
        items.append(("Beside it", ", ".join(others[:OTHERS_SHOWN]) + rest))
    working = {device.index for device in report.device}
    for device in report.devices:
        if working and device.index not in working:
            continue
        details = [device.name]
        if device.multiprocessors:
            details.append(f"{device.multiprocessors} multiprocessors")
        if device.total_memory_bytes:
            details.append(size(device.total_memory_bytes))
        items.append((f"GPU {device.index}", ", ".join(details)))
    if window.steps:
        begin = "" if window.first_step is None else f", from step {window.first_step}"
        items.append(("Steps", f"{window.steps}{begin}"))
    if window.passed_over:
        items.append(("Before it", in_words(window.passed_over)))
    if times.unprofiled_median_us is not None and times.profiled_median_us is not None:
        slower = times.profiled_median_us / times.unprofiled_median_us
        items.append(
            (
                "Step time",
                f"{duration(times.unprofiled_median_us)} without the profiler, {duration(times.profiled_median_us)} "
                f"with it ({slower:.2f} times); medians",
            )
        )
    elif times.profiled_median_us is not None:
        items.append(
            (
                "Step time",
                f"{duration(times.profiled_median_us)} with the profiler, median; without it: not in the trace "
                "(--step-ms hands it over)",
            )
        )
    file = f"{size(totals.file_bytes)}, {totals.events:,} events"
    if totals.json_bytes > totals.file_bytes:
        file = f"{size(totals.file_bytes)} ({size(totals.json_bytes)} of JSON), {totals.events:,} events"
    items.append(("File", file))
    warnings = [Paragraph(f"! {warning}", "yellow") for warning in _warnings(report)]
    return Section("Measured", [Facts(items), *warnings])


def _warnings(report: WindowReport) -> Iterator[str]:
    window = report.window
    if window.partial:
        yield "The window was cut short: it holds fewer steps than the schedule asked for."
    if window.lost_events:
        yield f"{window.lost_events:,} events of the file could not be read; sums lack them."
    if window.launches_without_work:
        yield f"{window.launches_without_work:,} launches have no device event: the profiler lost some of them."
    if window.unattributed_device_events:
        yield (
            f"{window.unattributed_device_events:,} device events were launched before the window began; they are no "
            "work of its steps."
        )
    for warning in window.warnings:
        yield warning[:1].upper() + warning[1:] + ("" if warning.endswith(".") else ".")


def steps_section(report: WindowReport, rows: int) -> Section | None:
    if not report.steps:
        return None
    columns = [
        Column("step"),
        Column("starts at", drop=4),
        Column("duration"),
        Column("host", drop=2),
        Column("device busy"),
        Column("of the step", drop=1),
        text("", drop=3),
    ]
    longest = max(step.duration_us for step in report.steps)
    shown = report.steps[:rows]
    table = Table(
        columns,
        [
            [
                str(step.number),
                duration(step.start_us),
                duration(step.duration_us),
                duration(step.host_us),
                duration(step.device_busy_us),
                share(step.device_busy_us / step.duration_us if step.duration_us else 0.0),
                bar(step.duration_us / longest if longest else 0.0),
            ]
            for step in shown
        ],
    )
    if not report.device:
        table = without(table, "device busy", "of the step")
    return Section("Steps", [table, *more(len(shown), len(report.steps))])


def phases_section(report: WindowReport, rows: int) -> Section | None:
    """Every named span; those that divide the step come first, with their shares of it."""
    if not report.annotations and not report.phases:
        return None
    spans = {annotation.name: annotation for annotation in report.annotations}
    phases = {phase.name for phase in report.phases}
    chosen: list[list[Cell]] = [
        [
            phase.name,
            f"{phase.count:,}",
            duration(phase.host_us),
            share(phase.host_share),
            *_device_spans(spans.get(phase.name)),
            share(phase.device_share),
        ]
        for phase in report.phases
    ]
    others = [annotation for annotation in report.annotations if annotation.name not in phases]
    for annotation in sorted(others, key=lambda annotation: -annotation.host_us):
        row = [annotation.name, f"{annotation.count:,}", duration(annotation.host_us), ""]
        chosen.append([*row, *_device_spans(annotation), ""])
    columns = [
        name("span"),
        Column("count", drop=3),
        Column("host"),
        Column("of the step"),
        Column("device span", drop=2),
        Column("device busy", drop=1),
        Column("of device time", drop=1),
    ]
    shown = chosen[:rows]
    table = Table(columns, shown)
    if not report.device:
        table = without(table, "device span", "device busy", "of device time")
    return Section("Phases and named spans", [table, *more(len(shown), len(chosen))])


def _device_spans(annotation: Annotation | None) -> list[Cell]:
    if annotation is None:
        return ["", ""]
    return [duration(annotation.device_span_us), duration(annotation.device_busy_us)]


def categories_section(report: WindowReport) -> Section | None:
    if not report.categories:
        return None
    total = sum(report.categories.values())
    rows = sorted(report.categories.items(), key=lambda item: -item[1])
    table = Table(
        [text("category"), Column("events"), Column("share", drop=1)],
        [[category, f"{count:,}", share(count / total if total else 0.0)] for category, count in rows],
    )
    return Section("What is in the trace", [table])
