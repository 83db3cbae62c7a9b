"""Two runs, windows or traces side by side: ``harness compare``.

::

    logdir.compared ──> trace.compare ──> sections ──> terminal | markdown | json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from harness import console
from harness.commands.options import ReportFormat


def compare(
    before: Annotated[Path, typer.Argument(help="A trace file, a window or a run.")],
    after: Annotated[Path, typer.Argument(help="Another one.")],
    fail_over: Annotated[
        str | None,
        typer.Option(help="Exit status 1 where step time or peak memory has grown by more, beyond noise: 5%."),
    ] = None,
    per_sample: Annotated[
        bool, typer.Option("--per-sample", help="Divide times by what a step trains on: for other batch sizes.")
    ] = False,
    rows: Annotated[int, typer.Option(help="Rows of every table.", min=1)] = 15,
    format: Annotated[
        ReportFormat, typer.Option(help="A table for people, Markdown for a pull request, JSON for programs.")
    ] = ReportFormat.table,
) -> None:
    """Show what differs between two runs, windows or traces, and what of it is more than noise."""
    import msgspec

    from harness.logdir.compared import per_step, windows_of, work_of
    from harness.report.sections.gate import gate, limit_of
    from harness.trace.compare import comparison

    limit = None if fail_over is None else limit_of(fail_over)
    sets = [windows_of(path) for path in (before, after)]
    works = [work_of(side.path) for side in sets]
    samples = (1.0, 1.0)
    if per_sample:
        known = [per_step(work, path) for work, path in zip(works, (before, after), strict=True)]
        samples = known[0], known[1]
    found = comparison.compare(sets[0].reports, sets[1].reports, names=(str(before), str(after)), samples=samples)
    sides = [
        msgspec.structs.replace(
            side,
            torch_version=side.torch_version or work.torch_version,
            per_second=work.per_second,
            unit=work.unit,
            per_step=work.per_step,
        )
        if work is not None
        else side
        for side, work in zip((found.before, found.after), works, strict=True)
    ]
    told = [
        f"{name} has a first window besides, which carries the job's warm-up and is left out"
        for name, side in zip(("before", "after"), sets, strict=True)
        if side.left_out and len(side.reports) == 1
    ]
    warnings = [*found.warnings, *told]
    found = msgspec.structs.replace(found, before=sides[0], after=sides[1], per_sample=per_sample, warnings=warnings)
    if format == ReportFormat.json:
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        from harness.report.sections.comparison import comparison_sections
        from harness.report.shown import show

        show(list(comparison_sections(found, limit, rows)), as_markdown=format == ReportFormat.markdown)
    outcome = gate(found, limit)
    for line in outcome.lines:
        console.err.print(console.plain(line), highlight=False, soft_wrap=True)
    if not outcome.kept:
        raise typer.Exit(1)
