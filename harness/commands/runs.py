"""``harness runs``: the runs below a logdir, or those of one sweep."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from harness.commands.options import Format, Logdir
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.logdir.rows import Row

NEWEST = "newest"
"""The sweep that is meant where none is named."""


class RunsCommand(TyperCommand):
    """`--sweep` alone is the newest one, which Typer's options cannot say."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for place, text in enumerate(args):
            following = args[place + 1] if place + 1 < len(args) else "-"
            if text == "--sweep" and (following.startswith("-") or Path(following).is_dir()):
                args = [*args[: place + 1], NEWEST, *args[place + 1 :]]
                break
        return super().parse_args(ctx, args)


def runs(
    logdir: Logdir = Path("tb_logs"),
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="[ID]",
            help="The runs of one sweep, by the beginning of its id (the newest one where none is given), and which "
            "of them no other beats in speed and loss.",
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(help="Of a sweep over one number, draw step time, host and device against it: an SVG file."),
    ] = None,
    format: Annotated[Format, typer.Option(help="A table for people, JSON for programs.")] = Format.table,
) -> None:
    """List runs, newest first, or one sweep: status, steps, loss, throughput, windows."""
    from harness import console
    from harness.logdir.rows import collect, sweep_rows
    from harness.report.sections.runs import show, show_sweep

    if figure is not None and sweep is None:
        raise UsageError(f"--figure {figure}: draws a sweep; give --sweep")
    rows = collect(logdir) if sweep is None else sweep_rows(logdir, None if sweep == NEWEST else sweep)
    if figure is not None:
        from harness.report.figure.sweep import draw

        draw(rows, figure)
    if format == Format.json:
        sys.stdout.buffer.write(_encoded(rows) + b"\n")
    elif sweep is not None:
        show_sweep(rows, logdir, console.out, _go_on)
    elif rows:
        show(rows, console.out)
    else:
        start = console.command("train")
        console.out.print(f"There are no runs in {logdir} yet. Start one: {start}", highlight=False)


def _encoded(rows: Sequence[Row]) -> bytes:
    """As JSON, for which a path on disk need not be fit."""
    import msgspec

    from harness.files import printable

    fit = [
        msgspec.structs.replace(row, path=printable(row.path), error=row.error and printable(row.error)) for row in rows
    ]
    return msgspec.json.format(msgspec.json.encode(fit))


def _go_on(sweep: str, logdir: Path, *more: str) -> str:
    # Hydra's grammar takes longer to import than a list of runs to print.
    from harness.config import overrides

    return overrides.sweep_command(sweep, logdir, *more)
