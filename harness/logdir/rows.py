"""Runs below a logdir as rows, by what their manifests and newest windows say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import msgspec

from harness.errors import UsageError
from harness.files import read_regular
from harness.logdir import tags
from harness.logdir.findings import findings_in
from harness.logdir.layout import PASSED_OVER
from harness.logdir.manifest import Manifest, NoRun, read_manifest
from harness.logdir.request import listener
from harness.logdir.scan import Run, find_runs
from harness.trace import figures
from harness.trace.schema import VerdictLabel, WindowReport


class Row(msgspec.Struct, kw_only=True):
    """One run of ``harness runs --format json``."""

    id: str
    """As :mod:`harness.logdir.scan` names it; of a run that is the logdir itself what its manifest says."""
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


def collect(logdir: Path) -> list[Row]:
    """Every run below ``logdir``, newest first; one whose manifest cannot be read is said so as failed.

    Raises:
        UsageError: where there is no such directory.
    """
    if not logdir.is_dir():
        raise UsageError(f"{logdir} is no directory; give the logdir that the runs were written to")
    return sorted(map(_row_of, find_runs(logdir)), key=lambda row: row.started, reverse=True)


def sweep_rows(logdir: Path, sweep: str | None) -> list[Row]:
    """The runs of one sweep in the order of its jobs, each once, with those marked that no other one beats.

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
    # What two ways lead to is one job all the same.
    once = {Path(row.path).resolve(): row for row in reversed(rows) if row.sweep == chosen}
    mine = sorted(once.values(), key=lambda row: row.id)
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


def _row_of(run: Run) -> Row:
    problem = ""
    try:
        return _row(run, read_manifest(run.path))
    except NoRun as error:
        if run.windows:
            return _row_of_own_loop(run)
        problem = str(error)
    except UsageError as error:
        problem = str(error)
    unknown = Manifest(
        id=run.title(None),
        status="failed",
        step=0,
        max_steps=0,
        started="",
        updated="",
        command="",
        overrides=[],
        choices={},
        error=problem,
    )
    return _row(run, unknown)


def _row(run: Run, manifest: Manifest) -> Row:
    metrics = manifest.metrics
    per_second, unit = throughput(metrics)
    return Row(
        id=run.title(manifest),
        path=str(run.path),
        status=manifest.status,
        started=manifest.started,
        step=manifest.step,
        max_steps=manifest.max_steps,
        windows=len(run.windows),
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


def _row_of_own_loop(run: Run) -> Row:
    """Of windows that no ``harness train`` has recorded: what the newest one's findings say."""
    recorded = run.windows
    newest = findings_in(recorded[-1].path, WindowReport)
    heard = listener(run.path)
    times = newest.step_time if newest is not None else None
    step_us = figures.step_us(times) if times is not None else None
    memory = newest.memory if newest is not None else None
    return Row(
        id=run.title(None),
        path=str(run.path),
        status="running" if heard is not None and heard[1] else "ended",
        started=datetime.fromtimestamp(recorded[0].path.stat().st_mtime, UTC).isoformat(timespec="milliseconds"),
        step=(recorded[-1].step or 0) + (newest.window.steps if newest is not None else 0),
        max_steps=None,
        windows=len(recorded),
        passed_over=_passed_over(run.path, newest.window.passed_over if newest is not None else {}),
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
