"""Runs below a logdir as rows: ``harness runs``, and what a sweep prints at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from harness import console
from harness.errors import UsageError
from harness.run import Manifest, find_runs, read_manifest, windows

STYLE = {"completed": "green", "running": "cyan", "interrupted": "yellow", "failed": "red", "killed": "red"}


class Row(msgspec.Struct, kw_only=True):
    """One run of ``harness runs --format json``."""

    id: str
    path: str
    status: str
    started: str
    step: int
    max_steps: int
    windows: int
    sweep: str | None
    choices: dict[str, str]
    overrides: list[str]
    loss: float | None
    """The newest training loss."""
    eval_loss: float | None
    per_second: float | None
    """Newest throughput, in :attr:`unit`."""
    unit: str | None
    step_time_ms: float | None
    device: str | None
    error: str | None


def collect(logdir: Path) -> Iterator[Row]:
    """Every run below ``logdir``, newest first; one whose manifest cannot be read is said so as failed.

    Raises:
        UsageError: where there is no such directory.
    """
    if not logdir.is_dir():
        raise UsageError(f"{logdir} is no directory; give the logdir that the runs were written to")
    found = [(path, _read(path)) for path in find_runs(logdir)]
    for path, manifest in sorted(found, key=lambda item: item[1].started, reverse=True):
        yield _row(path, manifest)


def show(rows: Sequence[Row]) -> None:
    """Print ``rows`` as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold", ratio=1)
    table.add_column("status")
    for heading in ("steps", "loss", "eval loss", "throughput", "windows"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            console.plain(row.id),
            f"[{STYLE[row.status]}]{row.status}[/]",
            f"{row.step:,}/{row.max_steps:,}",
            "" if row.loss is None else f"{row.loss:.4g}",
            "" if row.eval_loss is None else f"{row.eval_loss:.4g}",
            "" if row.per_second is None else f"{row.per_second:,.0f} {row.unit}/s",
            str(row.windows),
        )
    console.out.print(table)
    for row in rows:
        if row.error:
            console.out.print(f"[red]{console.plain(row.id)}[/]: {console.plain(row.error)}", highlight=False)


def show_sweep(logdir: Path, sweep: str) -> None:
    """Print the runs of one sweep, in the order in which they were started."""
    rows = [row for row in collect(logdir) if row.sweep == sweep]
    show(rows[::-1])
    done = sum(row.status == "completed" for row in rows)
    console.out.print(f"{done} of {len(rows)} runs completed. Compare them: harness board {logdir}")


def throughput(metrics: Mapping[str, float]) -> tuple[float, str] | tuple[None, None]:
    """Of a manifest's metrics: so many a second, and of what (samples, tokens, products)."""
    for name, value in metrics.items():
        if name.endswith("_per_second"):
            return value, name.split("/")[1].removesuffix("_per_second")
    return None, None


def _read(path: Path) -> Manifest:
    try:
        return read_manifest(path)
    except UsageError as error:
        return Manifest(
            id="/".join(path.parts[-2:]),
            status="failed",
            step=0,
            max_steps=0,
            started="",
            updated="",
            command="",
            overrides=[],
            choices={},
            error=str(error),
        )


def _row(path: Path, manifest: Manifest) -> Row:
    metrics = manifest.metrics
    per_second, unit = throughput(metrics)
    return Row(
        id=manifest.id,
        path=str(path),
        status=manifest.status,
        started=manifest.started,
        step=manifest.step,
        max_steps=manifest.max_steps,
        windows=len(windows(path)),
        sweep=manifest.sweep,
        choices=manifest.choices,
        overrides=manifest.overrides,
        loss=metrics.get("train/loss"),
        eval_loss=metrics.get("eval/loss"),
        per_second=per_second,
        unit=unit,
        step_time_ms=metrics.get("perf/step_time_ms"),
        device=manifest.device,
        error=manifest.error,
    )
