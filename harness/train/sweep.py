"""Sweeps: what one was asked for, going on with one that was interrupted, and what a sweeper is told of a job.

::

    <logdir>/<experiment>/<sweep>.sweep.json     the arguments that hold, replaced as a whole
    <logdir>/<experiment>/<sweep>_000_<overrides>/    a run for each job
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from glob import escape
from pathlib import Path
from typing import Any

import msgspec
from hydra.experimental.callback import Callback
from omegaconf import DictConfig

from harness import console
from harness.config import overrides
from harness.errors import UsageError
from harness.files import atomic_write, read_regular, remove_leftovers
from harness.logdir import tags
from harness.logdir.layout import MANIFEST, SWEEP_SUFFIX
from harness.logdir.manifest import Manifest, read_manifest
from harness.logdir.rows import Row, peak_mib, sweep_rows
from harness.report.figure import sweep as figure
from harness.report.sections.runs import show_sweep
from harness.train import resume

HYDRAS_OWN = "multirun.yaml"
"""The configuration of the newest sweep in an experiment's folder."""
LEFT_S = 3600.0
"""No sweep's file takes so long to write: what is older, a killed process has left."""
WORST = 1e9
"""A job over the memory limit is worse than any other by this much, and the worse the further it is over."""


class Sweep(msgspec.Struct, kw_only=True):
    """What has to be kept to go on with a sweep."""

    id: str
    arguments: list[str]


class Followed(Callback):
    """A sweep while Hydra runs it: where it goes, so that its table can be printed however it ends, and it can be gone
    on with.

    Hydra makes its callbacks itself, from a name in its configuration, and hands them nothing; so the command makes
    this one, and the name there is :func:`followed`, which gives it. Workers of a launcher get a copy.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self.logdir: Path | None = None
        """Known once Hydra has composed."""
        self.unsaved: UsageError | None = None
        """Why nobody could go on with it: Hydra makes a warning of what a callback raises."""
        self.errors: Sequence[str] = ()
        """Of its runs, as its table has told them."""
        self._folder = Path()

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        self.logdir = Path(config.logdir)
        self._folder = self.logdir / config.name
        try:
            save(self._folder, self.sweep)
        except UsageError as error:
            self.unsaved = error

    def could_not_begin(self) -> bool:
        """Whether it came to its jobs and none of them has made its directory."""
        return self.logdir is not None and not any(self._folder.glob(f"{self.sweep.id}_*"))

    def show(self) -> None:
        """Print the table of its runs; where none was begun, nothing is left of it."""
        if self.logdir is None or not was_begun(self._folder, self.sweep.id, self.logdir):
            return
        rows = sweep_rows(self.logdir, self.sweep.id)
        show_sweep(rows, self.logdir, console.out, overrides.sweep_command)
        self.errors = [row.error for row in rows if row.error]
        _draw(rows, self._folder / self.sweep.id)


_followed: ContextVar[Followed | None] = ContextVar("followed", default=None)


@contextmanager
def following(sweep: Followed | None) -> Iterator[None]:
    """While entered, this is the sweep that Hydra runs."""
    before = _followed.set(sweep)
    try:
        yield
    finally:
        _followed.reset(before)


def followed() -> Callback:
    """What ``conf/config.yaml`` names as its callback: the sweep that runs; of a single run, one that does nothing."""
    return _followed.get() or Callback()


def names_only_what_varies(arguments: Sequence[str]) -> str:
    """An override that keeps the values which all jobs of the sweep share out of their directories' names."""
    shared = [
        key
        for text in arguments
        if "=" in text and (key := overrides.key(text)) is not None and not overrides.varies(text)
    ]
    keys = ",".join(key for key in ("logdir", "name", "sweep", *shared) if not key.startswith("hydra"))
    return f"hydra.job.config.override_dirname.exclude_keys=[{keys}]"


def _draw(rows: Sequence[Row], folder: Path) -> None:
    """Put a sweep over one number into TensorBoard; a disk that is full is no reason to fail."""
    with suppress(OSError):
        if figure.to_tensorboard(rows, folder):
            console.out.print("Step time against what varies: TensorBoard, tab Images", highlight=False)


def save(folder: Path, sweep: Sweep) -> None:
    """Keep it in the experiment's folder, before any of its jobs begins.

    Raises:
        UsageError: where it cannot be written, without which nobody could go on with the sweep.
    """
    path = folder / f"{sweep.id}{SWEEP_SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder, older_than_s=LEFT_S)
        with atomic_write(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(sweep), indent=2))
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error}; make room, or choose another logdir") from error


def was_begun(folder: Path, sweep: str, logdir: Path) -> bool:
    """Whether any job of it was begun; nothing is left of one of which none was."""
    if any(path.is_dir() for path in folder.glob(f"{sweep}_*")):
        return True
    (folder / f"{sweep}{SWEEP_SUFFIX}").unlink(missing_ok=True)
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
    named = [text for text in arguments if overrides.key(text) == "resume"]
    if not named or (wanted := overrides.path(named[-1])) is None:
        return list(arguments), None
    given = [text for text in arguments if overrides.key(text) != "resume"]
    path = _find(wanted, given)
    try:
        saved = msgspec.json.decode(read_regular(path), type=Sweep)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"resume={wanted}: {path} cannot be read: {error}") from error
    if f"{saved.id}{SWEEP_SUFFIX}" != path.name:
        raise UsageError(f"resume={wanted}: {path} is the file of another sweep, {saved.id}; put its own back")
    kept = [text for text in saved.arguments if overrides.key(text) != "logdir"]
    again = [text for text in given if text not in overrides.MULTIRUN and overrides.key(text) != "logdir"]
    return [*kept, overrides.assign("logdir", path.parent.parent), *again], saved.id


def _find(text: str, given: Sequence[str]) -> Path:
    named = [found for t in given if overrides.key(t) == "logdir" and (found := overrides.path(t)) is not None]
    logdirs = [Path(named[-1])] if named else [path for path in Path().iterdir() if path.is_dir()]
    beside = Path(f"{text.rstrip('/')}{SWEEP_SUFFIX}")
    if beside.is_file():
        return beside
    with suppress(UsageError):
        manifest = read_manifest(Path(text))
        of_run = Path(os.path.abspath(text)).parent / f"{manifest.sweep}{SWEEP_SUFFIX}"
        if of_run.is_file():
            return of_run
    wanted = f"*/{escape(text)}{SWEEP_SUFFIX}"
    found_ones = [path for logdir in logdirs for path in logdir.glob(wanted)] if "/" not in text else []
    if found_ones:
        return found_ones[0]
    known = [path for logdir in logdirs for path in logdir.glob(f"*/*{SWEEP_SUFFIX}")]
    known = sorted(known, key=lambda path: path.name)[-3:]
    where = logdirs[0] if named else "the logdirs of this folder; give logdir= for another"
    there = f"; there are {', '.join(str(path).removesuffix(SWEEP_SUFFIX) for path in known)}" if known else ""
    raise UsageError(f"resume={text}: there is no such sweep in {where}{there}; leave out -m to go on with one run")


def earlier_life(run: Path) -> Manifest | None:
    """Of a job that was begun when its sweep ran before; None for a new one.

    Raises:
        UsageError: where what it has left is damaged, and going on could make another job of it.
    """
    if not (run / MANIFEST).exists():
        return None
    manifest = read_manifest(run)
    # A job of 0.1.0 goes by what its sweep says alone.
    if manifest.configuration is not None:
        resume.require_whole(run, manifest)
    return manifest


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
    value = metrics.get(tags.EVAL_LOSS, metrics.get(tags.LOSS)) if metric is None else metrics[metric]
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
