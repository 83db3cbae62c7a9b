"""What a run or a sweep says when it is over."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from rich.table import Table

from harness import console
from harness.logdir import tags
from harness.publish import PublishedWindow


@dataclass(kw_only=True)
class Summary:
    """How a job went, since it was started or resumed."""

    first_step: int
    """Before which it had trained already; 0 unless it was resumed."""
    step: int
    seconds: float
    first_loss: float | None
    """Mean training loss of the first logged interval."""
    last_loss: float | None
    metrics: dict[str, float]
    """The newest value of every scalar, by tag."""
    windows: list[PublishedWindow]
    stopped_by: Signals | None
    """The signal that ended the job before its time."""
    saved: bool
    """Whether the state of :attr:`step` is on disk, from which a resumption goes on."""
    unsaved: str | None
    """Why it is not, although it was to be, and what is."""


def show_run(run: Path, summary: Summary) -> None:
    """Print how a run went, where it lies and how to look at it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    trained = f"{summary.step - summary.first_step:,} in {summary.seconds:.1f} s"
    resumed = f", from {summary.first_step:,} to {summary.step:,}" if summary.first_step else ""
    table.add_row("steps", trained + resumed)
    if summary.first_loss is not None and summary.last_loss is not None:
        table.add_row("training loss", f"{summary.first_loss:.4f} → {summary.last_loss:.4f}")
    for name, value in sorted(summary.metrics.items()):
        if name.startswith(tags.EVAL):
            table.add_row(f"evaluation {name[5:]}", f"{value:.4f}")
    for name, value in summary.metrics.items():
        if name.endswith("_per_second"):
            unit = name.split("/")[1].removesuffix("_per_second")
            table.add_row("throughput", f"{value:,.0f} {unit}/s when it was logged last")
    if summary.windows:
        last = summary.windows[-1]
        table.add_row(
            "windows",
            f"{len(summary.windows)}, the last at step {last.first_step}: {console.plain(console.path(last.path))}",
        )
    table.add_row("run", console.plain(console.path(run)))
    look = console.command(f"board {shlex.quote(console.path(run.parent.parent))} --open")
    table.add_row("look at it", console.plain(look))
    if summary.windows:
        table.add_row("first", "the tab Windows: what bounds the step, and what to do about it")
    console.out.print(table)
