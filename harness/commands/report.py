"""Findings as terminal tables, Markdown or JSON: ``harness report``.

::

    logdir.find ──> sections ──> document.Section ──> terminal.show | markdown.render
"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import ReportFormat, Trace, Window
from harness.errors import UsageError


class Grouping(StrEnum):
    name = "name"
    shape = "shape"


def report(
    path: Trace,
    window: Window = None,
    sort_by: Annotated[
        str | None, typer.Option(help="Operators by this column, in torch's names, as cuda_time_total.")
    ] = None,
    group_by: Annotated[Grouping, typer.Option(help="Operators by name, or by name and input shapes.")] = Grouping.name,
    rows: Annotated[int, typer.Option(help="Rows of every long table.", min=1)] = 15,
    step_ms: Annotated[
        float | None, typer.Option(help="Time of a step without the profiler, for a trace that lacks it.")
    ] = None,
    format: Annotated[
        ReportFormat, typer.Option(help="A table for people, Markdown for an issue, JSON for programs.")
    ] = ReportFormat.table,
    stacks: Annotated[
        Path | None,
        typer.Option(help="Write folded call stacks here too (flamegraph.pl, speedscope); needs with_stack."),
    ] = None,
) -> None:
    """Show what a window says: verdict and advice, where time and memory go, operators, kernels, a timeline."""
    import msgspec

    from harness.commands.recovery import publish_what_waits
    from harness.logdir.find import choose
    from harness.report.sections.operators import sort_key

    if sort_by is not None:
        sort_key(sort_by)
    if step_ms is not None and not 0 < step_ms < float("inf"):
        raise UsageError(f"--step-ms {step_ms:g}: must be a positive number of milliseconds")
    publish_what_waits(path)
    chosen = choose(path, window)
    if stacks is not None:
        from harness.report.stacks import write

        write(chosen.window, stacks)
    if format == ReportFormat.json:
        encoded = msgspec.json.encode(chosen.window.report(step_ms))
        sys.stdout.buffer.write(msgspec.json.format(encoded) + b"\n")
        return
    from harness.report.sections.findings import Options, sections
    from harness.report.sections.overview import runs_section, windows_section
    from harness.report.sections.picture import picture
    from harness.report.shown import show

    findings, trace = chosen.window.load(step_ms)
    drawing = picture(trace, findings) if trace is not None else None
    options = Options(sort_by=sort_by, by_shape=group_by is Grouping.shape, rows=rows)
    run = chosen.run
    document = [
        *([runs_section(path, chosen.runs, run)] if chosen.runs and run is not None else []),
        *([windows_section(run, chosen.window, findings)] if run is not None and len(run.windows) > 1 else []),
        *sections(findings, drawing, options, others=chosen.window.others),
    ]
    show(document, as_markdown=format == ReportFormat.markdown)
