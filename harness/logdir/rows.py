"""Runs below a logdir as rows: ``harness runs``, and what a sweep prints at its end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec
from rich.table import Table

from harness import console
from harness.errors import UsageError
from harness.files import read_regular
from harness.logdir import tags
from harness.logdir.request import listener
from harness.logdir.run import MANIFEST, PASSED_OVER, Manifest, find_runs, read_manifest, step_of_window, windows
from harness.trace import figures
from harness.trace.passed_over import in_words
from harness.trace.schema import VerdictLabel

STYLE = {
    "completed": "green",
    "ended": "green",
    "running": "cyan",
    "interrupted": "yellow",
    "failed": "red",
    "killed": "red",
}


class Row(msgspec.Struct, kw_only=True):
    """One run of ``harness runs --format json``."""

    id: str
    path: str
    status: str
    """As the manifest has it; of a loop of somebody's own, which has none, ``running`` or ``ended``."""
    started: str
    step: int
    max_steps: int | None
    windows: int
    passed_over: dict[str, int]
    """Cycles of the schedule that had no window, by reason."""
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
    busy: float | None
    """Device busy fraction of the newest window."""
    peak_mib: float | None
    """Peak memory of the job, or of its newest window where only that knows."""
    verdict: str | None
    """Of the newest window."""
    pareto: bool = False
    """Of a sweep: no other run is both faster and of less loss."""
    device: str | None
    error: str | None


def collect(logdir: Path) -> Iterator[Row]:
    """Every run below ``logdir``, newest first; one whose manifest cannot be read is said so as failed.

    Raises:
        UsageError: where there is no such directory.
    """
    if not logdir.is_dir():
        raise UsageError(f"{logdir} is no directory; give the logdir that the runs were written to")
    found = [
        _row(path, _read(path)) if (path / MANIFEST).exists() else _row_of_own_loop(path, logdir)
        for path in find_runs(logdir)
    ]
    yield from sorted(found, key=lambda row: row.started, reverse=True)


def show(rows: Sequence[Row]) -> None:
    """Print ``rows`` as a table."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", overflow="fold", ratio=1)
    table.add_column("status")
    for heading in ("steps", "loss", "eval loss", "throughput", "windows"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict" if any(row.verdict for row in rows) else "", no_wrap=True)
    for row in rows:
        table.add_row(
            console.plain(row.id),
            f"[{STYLE[row.status]}]{row.status}[/]",
            f"{row.step:,}" if row.max_steps is None else f"{row.step:,}/{row.max_steps:,}",
            "" if row.loss is None else f"{row.loss:.4g}",
            "" if row.eval_loss is None else f"{row.eval_loss:.4g}",
            "" if row.per_second is None else f"{row.per_second:,.0f} {row.unit}/s",
            str(row.windows),
            row.verdict or "",
        )
    console.out.print(table)
    _show_errors(rows)


def _show_errors(rows: Sequence[Row]) -> None:
    """Each error once, with the runs that have it; and why windows are fewer than the schedule has."""
    for row in rows:
        if row.passed_over:
            text = f"{console.plain(row.id)}: {in_words(row.passed_over)}"
            console.out.print(text, style="dim", highlight=False)
    runs: dict[str, list[str]] = {}
    for row in rows:
        if row.error:
            runs.setdefault(row.error, []).append(row.id)
    for error, ids in runs.items():
        whose = ids[0] if len(ids) == 1 else f"{len(ids)} runs, {ids[0]} the first"
        console.out.print(f"[red]{console.plain(whose)}[/]: {console.plain(error)}", highlight=False)


def sweep_rows(logdir: Path, sweep: str | None) -> list[Row]:
    """The runs of one sweep in the order of its jobs, with those marked that no other one beats.

    Args:
        sweep: Its id, or the beginning of it; the newest sweep where none is given.

    Raises:
        UsageError: where there is no such sweep, or several.
    """
    rows = [row for row in collect(logdir) if row.sweep is not None]
    ids = list(dict.fromkeys(row.sweep for row in rows if row.sweep is not None))
    matching = [one for one in ids if sweep is None or one.startswith(sweep)]
    if not matching or (len(matching) > 1 and sweep is not None and sweep not in matching):
        what = "no sweep" if not matching else "several sweeps"
        named = f" that begins with {sweep}" if sweep is not None else ""
        there = ", ".join((matching or ids)[:4]) or "none: start one with harness train -m"
        raise UsageError(f"--sweep: {logdir} has {what}{named}; there are {there}")
    chosen = sweep if sweep in matching else matching[0]
    mine = sorted((row for row in rows if row.sweep == chosen), key=lambda row: row.id)
    front = pareto(mine)
    return [msgspec.structs.replace(row, pareto=row in front) for row in mine]


def pareto(rows: Sequence[Row]) -> list[Row]:
    """Completed runs that no other one beats in speed without being worse in loss, fastest first."""
    points = [
        (row, row.per_second, loss)
        for row in rows
        if row.status == "completed"
        and row.per_second is not None
        and (loss := row.eval_loss if row.eval_loss is not None else row.loss) is not None
    ]
    front: list[Row] = []
    best = math.inf
    for row, _, loss in sorted(points, key=lambda point: (-point[1], point[2])):
        if loss < best:
            front.append(row)
            best = loss
    return front


def show_sweep(logdir: Path, sweep: str | None) -> list[Row]:
    """Print the runs of one sweep: how fast, how good, how much memory, and which of them no other one beats."""
    rows = sweep_rows(logdir, sweep)
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
        table.add_row(mark, console.plain(row.id), status, *(console.plain(value(row)) for _, value in shown))
    console.out.print(table)
    _show_errors(rows)
    done = sum(row.status == "completed" for row in rows)
    said = f"{done} of {len(rows)} runs completed."
    if any(row.pareto for row in rows):
        said += " ● no other run is both faster and of less loss."
    _say(said, "Compare them", console.command(f"board {shlex.quote(str(logdir))}"))
    if done < len(rows):
        # Hydra's grammar takes longer to import than a list of runs to print.
        from harness.train import resume

        # What failed before its first step fails again unless something is given that mends it.
        mended = ["KEY=VALUE"] if any(row.status == "failed" and not row.step for row in rows) else []
        _say("", "Go on with it", resume.sweep_command(str(rows[0].sweep), logdir, *mended))
    return rows


def _say(said: str, what: str, command: str) -> None:
    """A command is printed in one piece, to be pasted."""
    text = f"{console.plain(f'{said} {what}'.strip())}: {console.plain(command)}"
    console.out.print(text, highlight=False, soft_wrap=True)


def peak_mib(metrics: Mapping[str, float]) -> float | None:
    """Peak memory by a manifest's metrics."""
    return metrics.get(tags.PEAK_ALLOCATED_MIB, metrics.get(tags.WINDOW_PEAK_ALLOCATED_MIB))


def _verdict(number: float | None) -> str | None:
    labels = get_args(VerdictLabel)
    return labels[int(number)] if number is not None and 0 <= number < len(labels) else None


def throughput(metrics: Mapping[str, float]) -> tuple[float, str] | tuple[None, None]:
    """Of a manifest's metrics: so many a second, and of what (samples, tokens, products)."""
    for name, value in metrics.items():
        unit = tags.unit_of(name)
        if unit is not None:
            return value, unit
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
        passed_over=manifest.passed_over,
        sweep=manifest.sweep,
        choices=manifest.choices,
        overrides=manifest.overrides,
        loss=metrics.get(tags.LOSS),
        eval_loss=metrics.get(tags.EVAL_LOSS),
        per_second=per_second,
        unit=unit,
        step_time_ms=metrics.get(tags.STEP_MS),
        busy=metrics.get(tags.WINDOW_BUSY),
        peak_mib=peak_mib(metrics),
        verdict=_verdict(metrics.get(tags.VERDICT)),
        device=manifest.device,
        error=manifest.error,
    )


def _passed_over(path: Path, by_then: dict[str, int]) -> dict[str, int]:
    """What the loop has left at its end; of one that still runs, or was killed, what its newest window says."""
    try:
        return msgspec.json.decode(read_regular(path / PASSED_OVER), type=dict[str, int])
    except (OSError, msgspec.MsgspecError):
        return by_then


def _row_of_own_loop(path: Path, logdir: Path) -> Row:
    """Of windows that no ``harness train`` has recorded: what the newest one's findings say."""
    from harness.logdir.find import findings_of

    recorded = windows(path)
    newest = findings_of(recorded[-1])
    heard = listener(path)
    times = newest.step_time if newest is not None else None
    step_us = figures.step_us(times) if times is not None else None
    memory = newest.memory if newest is not None else None
    return Row(
        id=path.relative_to(logdir).as_posix() if path != logdir else path.absolute().name,
        path=str(path),
        status="running" if heard is not None and heard[1] else "ended",
        started=datetime.fromtimestamp(recorded[0].stat().st_mtime, UTC).isoformat(timespec="milliseconds"),
        step=(step_of_window(recorded[-1].name) or 0) + (newest.window.steps if newest is not None else 0),
        max_steps=None,
        windows=len(recorded),
        passed_over=_passed_over(path, newest.window.passed_over if newest is not None else {}),
        sweep=None,
        choices={},
        overrides=[],
        loss=None,
        eval_loss=None,
        per_second=None,
        unit=None,
        step_time_ms=None if step_us is None else step_us / 1e3,
        busy=figures.busy(newest) if newest is not None else None,
        peak_mib=None if memory is None else memory.peak_allocated_bytes / 2**20,
        verdict=newest.verdict.label if newest is not None else None,
        device=next((one.name for one in newest.devices), "cpu") if newest is not None else None,
        error=None,
    )
