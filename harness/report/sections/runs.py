"""Runs as tables for a terminal: ``harness runs``, and what a sweep prints at its end."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.console import command, plain
from harness.logdir.rows import Row
from harness.trace.passed_over import in_words

STYLE = {
    "completed": "green",
    "ended": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
}
GoOn = Callable[..., str]
"""The command that goes on with a sweep, by its id, its logdir and further arguments."""


def show(rows: Sequence[Row], console: Console) -> None:
    """Print ``rows`` as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold", ratio=1)
    table.add_column("status")
    for heading in ("steps", "loss", "eval loss", "throughput", "windows"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict" if any(row.verdict for row in rows) else "", no_wrap=True)
    for row in rows:
        table.add_row(
            plain(row.id),
            f"[{STYLE[row.status]}]{row.status}[/]",
            f"{row.step:,}" if row.max_steps is None else f"{row.step:,}/{row.max_steps:,}",
            "" if row.loss is None else f"{row.loss:.4g}",
            "" if row.eval_loss is None else f"{row.eval_loss:.4g}",
            "" if row.per_second is None else f"{row.per_second:,.0f} {row.unit}/s",
            str(row.windows),
            row.verdict or "",
        )
    console.print(table)
    _show_errors(rows, console)


def show_sweep(rows: Sequence[Row], logdir: Path, console: Console, go_on: GoOn) -> None:
    """Print the runs of one sweep: how fast, how good, how much memory, and which of them no other one beats."""
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("loss", lambda row: "" if row.loss is None else f"{row.loss:.4g}"),
        ("eval loss", lambda row: "" if row.eval_loss is None else f"{row.eval_loss:.4g}"),
        ("throughput", lambda row: "" if row.per_second is None else f"{row.per_second:,.0f} {row.unit}/s"),
        ("step", lambda row: "" if row.step_time_ms is None else f"{row.step_time_ms:,.3g} ms"),
        ("busy", lambda row: "" if row.busy is None else f"{100 * row.busy:.0f} %"),
        ("peak", lambda row: "" if row.peak_mib is None else f"{row.peak_mib:,.0f} MiB"),
        ("verdict", lambda row: row.verdict or ""),
    ]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("run", overflow="fold", ratio=1)
    table.add_column("status")
    shown = [(heading, value) for heading, value in columns if any(map(value, rows))]
    for heading, _ in shown:
        table.add_column(heading, justify="left" if heading == "verdict" else "right", no_wrap=True)
    for row in rows:
        mark = "[bold green]●[/]" if row.pareto else ""
        status = f"[{STYLE[row.status]}]{row.status}[/]"
        table.add_row(mark, plain(row.id), status, *(plain(value(row)) for _, value in shown))
    console.print(table)
    _show_errors(rows, console)
    done = sum(row.status == "completed" for row in rows)
    said = f"{done} of {len(rows)} runs completed."
    if any(row.pareto for row in rows):
        said += " ● no other run is both faster and of less loss."
    _say(said, "Compare them", command(f"board {shlex.quote(str(logdir))}"), console)
    if done < len(rows):
        # What failed before its first step fails again unless something is given that mends it.
        mended = ["KEY=VALUE"] if any(row.status == "failed" and not row.step for row in rows) else []
        _say("", "Go on with it", go_on(str(rows[0].sweep), logdir, *mended), console)


def _show_errors(rows: Sequence[Row], console: Console) -> None:
    """Each error once, with the runs that have it; and why windows are fewer than the schedule has."""
    for row in rows:
        if row.passed_over:
            console.print(f"{plain(row.id)}: {in_words(row.passed_over)}", style="dim", highlight=False)
    runs: dict[str, list[str]] = {}
    for row in rows:
        if row.error:
            runs.setdefault(row.error, []).append(row.id)
    for error, ids in runs.items():
        whose = ids[0] if len(ids) == 1 else f"{len(ids)} runs, {ids[0]} the first"
        console.print(f"[red]{plain(whose)}[/]: {plain(error)}", highlight=False)


def _say(said: str, what: str, command: str, console: Console) -> None:
    """A command is printed in one piece, to be pasted."""
    console.print(f"{plain(f'{said} {what}'.strip())}: {plain(command)}", highlight=False, soft_wrap=True)
