"""Sweeps: what one was asked for, going on with one that was interrupted, and what a sweeper is told of a job.

::

    <logdir>/<experiment>/<sweep>.sweep.json     the arguments of the command
    <logdir>/<experiment>/<sweep>_000_<overrides>/    a run for each job
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.files import atomic_write, read_regular
from harness.run import Manifest, read_manifest
from harness.runs import peak_mib

SUFFIX = ".sweep.json"
MULTIRUN = ("-m", "--multirun")
HYDRAS_OWN = "multirun.yaml"
"""The configuration of the newest sweep in an experiment's folder."""
WORST = 1e9
"""A job over the memory limit is worse than any other by this much, and the worse the further it is over."""


class Sweep(msgspec.Struct, kw_only=True):
    """What has to be kept to go on with a sweep."""

    id: str
    arguments: list[str]


def save(folder: Path, sweep: Sweep) -> None:
    """Keep it in the experiment's folder, unless it is there."""
    path = folder / f"{sweep.id}{SUFFIX}"
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as file:
        file.write(msgspec.json.format(msgspec.json.encode(sweep), indent=2))


def was_begun(folder: Path, sweep: str, logdir: Path) -> bool:
    """Whether any job of it was begun; nothing is left of one of which none was."""
    if any(path.is_dir() for path in folder.glob(f"{sweep}_*")):
        return True
    (folder / f"{sweep}{SUFFIX}").unlink(missing_ok=True)
    with suppress(OSError):
        if [path.name for path in folder.iterdir()] == [HYDRAS_OWN]:
            (folder / HYDRAS_OWN).unlink()
        for empty in (folder, logdir):
            empty.rmdir()
    return False


def resumed(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """`arguments` of a sweep with what a ``resume=SWEEP`` among them stands for, and the sweep that is gone on with.

    SWEEP is a sweep's id, the path that its runs' directories begin with, or one of its runs. Arguments given now come
    after its own.

    Raises:
        UsageError: where there is no such sweep.
    """
    named = [text.partition("=")[2] for text in arguments if text.startswith("resume=")]
    if not named or named[-1] in ("", "null"):
        return list(arguments), None
    given = [text for text in arguments if not text.startswith("resume=")]
    path = _find(named[-1].strip("'\""), given)
    try:
        saved = msgspec.json.decode(read_regular(path), type=Sweep)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"resume={named[-1]}: {path} cannot be read: {error}") from error
    where = "logdir="
    kept = [text for text in saved.arguments if not text.startswith(where)]
    again = [text for text in given if text not in MULTIRUN and not text.startswith(where)]
    return [*kept, f"{where}{path.parent.parent}", *again], saved.id


def _find(text: str, given: Sequence[str]) -> Path:
    logdir = next((t.partition("=")[2] for t in reversed(given) if t.startswith("logdir=")), "tb_logs")
    beside = Path(f"{text.rstrip('/')}{SUFFIX}")
    if beside.is_file():
        return beside
    with suppress(UsageError):
        manifest = read_manifest(Path(text))
        found = Path(os.path.abspath(text)).parent / f"{manifest.sweep}{SUFFIX}"
        if found.is_file():
            return found
    found_ones = sorted(Path(logdir).glob(f"*/{text}{SUFFIX}")) if text and "/" not in text else []
    if found_ones:
        return found_ones[0]
    known = sorted(Path(logdir).glob(f"*/*{SUFFIX}"))[-3:]
    there = f"; there are {', '.join(str(path).removesuffix(SUFFIX) for path in known)}" if known else ""
    raise UsageError(f"resume={text}: there is no such sweep in {logdir}{there}; leave out -m to go on with one run")


def earlier_life(run: Path) -> Manifest | None:
    """Of a job that was begun when its sweep ran before; None for a new one."""
    try:
        return read_manifest(run)
    except UsageError:
        return None


def objective(
    metrics: Mapping[str, float], metric: str | None, *, maximize: bool, max_memory_mib: float | None
) -> float | None:
    """What a sweeper is told of a job: the metric, by default the evaluation's loss or else the training's.

    max_memory_mib: with a higher peak a job counts as worse than all that keep to it.

    Raises:
        UsageError: where the job has no such metric, or its peak memory is not known.
    """
    if metric is not None and metric not in metrics:
        raise UsageError(
            f"objective.metric={metric}: the run has no such curve; there are {', '.join(sorted(metrics))}"
        )
    value = metrics.get("eval/loss", metrics.get("train/loss")) if metric is None else metrics[metric]
    if max_memory_mib is None:
        return value
    peak = peak_mib(metrics)
    if peak is None:
        raise UsageError(
            "objective.max_memory_mib: the run's peak memory is not known; on a CPU it needs windows with "
            "profiler.profile_memory=true"
        )
    if peak <= max_memory_mib:
        return value
    return (-WORST if maximize else WORST) * peak / max_memory_mib
