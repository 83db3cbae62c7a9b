"""Findings as terminal tables, Markdown or JSON: ``harness report``.

::

    logdir.find ──> sections ──> document.Section ──> terminal.show | markdown.render
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import msgspec

from harness.commands.recovery import publish_what_waits
from harness.errors import UsageError
from harness.logdir.find import choose
from harness.report.sections.operators import sort_key

Format = Literal["table", "markdown", "json"]


def report(
    path: Path,
    *,
    window: int | None = None,
    sort_by: str | None = None,
    by_shape: bool = False,
    rows: int = 15,
    step_ms: float | None = None,
    format: Format = "table",
    stacks: Path | None = None,
) -> None:
    """Print what a trace says.

    Args:
        path: A trace file, a window, a run, or a logdir, of which the newest run is taken.
        window: Of a run, the window that begins at this step; negative ones count from the newest (-1). The
            newest where none is given.
        sort_by: The operator table's column, by torch's names.
        by_shape: Group operators by name and input shapes.
        rows: Of every long table.
        step_ms: Time of a step without the profiler, for a trace that lacks it.
        format: ``json`` is the contract, ``harness.trace.WindowReport``.
        stacks: A file for the window's folded call stacks.

    Raises:
        UsageError: for a path that holds no trace, and for options that do not fit it.
    """
    if sort_by is not None:
        sort_key(sort_by)
    if step_ms is not None and not 0 < step_ms < float("inf"):
        raise UsageError(f"--step-ms {step_ms:g}: must be a positive number of milliseconds")
    publish_what_waits(path)
    chosen = choose(path, window)
    if stacks is not None:
        from harness.report.stacks import write

        write(chosen.window, stacks)
    if format == "json":
        encoded = msgspec.json.encode(chosen.window.report(step_ms))
        sys.stdout.buffer.write(msgspec.json.format(encoded) + b"\n")
        return
    from harness.report.sections.findings import Options, sections
    from harness.report.sections.overview import runs_section, windows_section
    from harness.report.sections.picture import picture
    from harness.report.shown import show

    findings, trace = chosen.window.load(step_ms)
    drawing = picture(trace, findings) if trace is not None else None
    options = Options(sort_by=sort_by, by_shape=by_shape, rows=rows)
    run = chosen.run
    document = [
        *([runs_section(path, chosen.runs, run)] if chosen.runs and run is not None else []),
        *([windows_section(run, chosen.window, findings)] if run is not None and len(run.windows) > 1 else []),
        *sections(findings, drawing, options, others=chosen.window.others),
    ]
    show(document, as_markdown=format == "markdown")
