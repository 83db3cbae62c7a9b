"""``harness runs``: the runs below a logdir, or those of one sweep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from harness import console
from harness.errors import UsageError
from harness.files import printable
from harness.logdir.rows import Row, collect, sweep_rows
from harness.report.sections.runs import GoOn, show, show_sweep

NEWEST = "newest"
"""The sweep that is meant where none is named."""


def runs(
    logdir: Path, *, sweep: str | None, figure: Path | None, format: Literal["table", "json"], go_on: GoOn
) -> None:
    """Print them; ``figure``: draw the sweep there too.

    Raises:
        UsageError: where there are none to be read, or they make no figure.
    """
    if figure is not None and sweep is None:
        raise UsageError(f"--figure {figure}: draws a sweep; give --sweep")
    rows = collect(logdir) if sweep is None else sweep_rows(logdir, None if sweep == NEWEST else sweep)
    if figure is not None:
        from harness.report.figure.sweep import draw

        draw(rows, figure)
    if format == "json":
        sys.stdout.buffer.write(msgspec.json.format(_encoded(rows)) + b"\n")
    elif sweep is not None:
        show_sweep(rows, logdir, console.out, go_on)
    elif rows:
        show(rows, console.out)
    else:
        start = console.command("train")
        console.out.print(f"There are no runs in {logdir} yet. Start one: {start}", highlight=False)


def _encoded(rows: Sequence[Row]) -> bytes:
    """As JSON, for which a path on disk need not be fit."""
    fit = [
        msgspec.structs.replace(row, path=printable(row.path), error=row.error and printable(row.error)) for row in rows
    ]
    return msgspec.json.encode(fit)
