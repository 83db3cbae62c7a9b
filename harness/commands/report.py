"""Findings as terminal tables, Markdown or JSON: ``harness report``.

::

    findings ──> document.Section ──> terminal.show | markdown.render
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Literal

import msgspec

from harness.errors import UsageError
from harness.logdir.find import Run, Window, find

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
    from harness.report.sections.operators import sort_key

    if sort_by is not None:
        sort_key(sort_by)
    if step_ms is not None and not 0 < step_ms < float("inf"):
        raise UsageError(f"--step-ms {step_ms:g}: must be a positive number of milliseconds")
    _publish_what_waits(path)
    found = find(path)
    runs = found if isinstance(found, list) else []
    run = found if isinstance(found, Run) else None
    if runs:
        from harness.report.sections.overview import newest

        run = newest(runs)
    if run is not None:
        chosen = run.window(-1 if window is None else window)
    else:
        assert isinstance(found, Window)
        if window is not None:
            raise UsageError(f"--window picks a window of a run, and {path} is one trace; leave it out")
        chosen = found
    if stacks is not None:
        _write_stacks(chosen, stacks)
    if format == "json":
        encoded = msgspec.json.encode(chosen.report(step_ms))
        sys.stdout.buffer.write(msgspec.json.format(encoded) + b"\n")
        return

    from harness.report.sections.findings import Options, sections
    from harness.report.sections.overview import runs_section, windows_section
    from harness.report.sections.picture import picture

    findings, trace = chosen.load(step_ms)
    drawing = picture(trace, findings) if trace is not None else None
    document = [
        *([runs_section(path, runs, run)] if runs and run is not None else []),
        *([windows_section(run, chosen, findings)] if run is not None and len(run.windows) > 1 else []),
        *sections(findings, drawing, Options(sort_by=sort_by, by_shape=by_shape, rows=rows), others=chosen.others),
    ]
    # A terminal that lacks a character gets a question mark for it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if format == "markdown":
        from harness.report import markdown

        sys.stdout.write(markdown.render(document))
    else:
        from harness import console
        from harness.report import terminal

        terminal.show(document, console.out)


def _publish_what_waits(path: Path) -> None:
    """A job that was killed may have left finished windows unpublished."""
    from harness import console
    from harness.publish.recover import recover

    for staging, outcome in recover(path):
        what = {"published": "is published now", "dropped": "was dropped", "failed": "cannot be published"}
        reason = f": {outcome.error}" if outcome.error else ""
        console.err.print(
            console.plain(
                f"{staging.run}: {outcome.name}, which a killed job had left, {what[outcome.status]}{reason}"
            ),
            highlight=False,
            soft_wrap=True,
        )


def _write_stacks(window: Window, path: Path) -> None:
    """A line for each call path: its frames and its self time in microseconds."""
    from harness.trace.measure.stacks import folded_stacks

    _, trace = window.load()
    lines = [f"{stack} {ns // 1000}\n" for stack, ns in folded_stacks(trace)] if trace is not None else []
    if not lines:
        raise UsageError(
            f"--stacks: {window.path} holds no Python functions; record with profiler.with_stack=true, or "
            "harness trigger RUN --with-stack"
        )
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise UsageError(f"--stacks: {path} cannot be written: {error}") from error
