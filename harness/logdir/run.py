"""The run directory: its manifest ``run.json``, its lock, and how runs are found again."""

from __future__ import annotations

import logging
import math
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

import harness
from harness import locks
from harness.credentials import masked
from harness.errors import UsageError
from harness.files import TEMPORARY, atomic_write, persistently, read_regular, remove_leftovers, sync_folder

log = logging.getLogger(__name__)

MANIFEST = "run.json"
LOCK = ".lock"
CHECKPOINTS = "checkpoints"
PROFILE = "profile"
HYDRA = ".hydra"
PASSED_OVER = ".passed_over.json"
"""Of a loop of somebody's own, which has no manifest: the cycles that had no window, when it ended."""
LOG_FILE = "train.log"
_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_[0-9a-f]{4}(_[0-9]{3}.*)?")
"""Of a run's directory, as :mod:`harness.config.schema` names it."""
_WINDOW = re.compile(r"window_([0-9]{1,18})")
"""No job comes to a step of more digits; a name of thousands would be a number that takes long, or none at all."""

Status = Literal["running", "completed", "interrupted", "failed", "killed"]
"""``killed`` is never written: it is what a reader says of a ``running`` run that nobody holds."""


class Manifest(msgspec.Struct, kw_only=True, omit_defaults=False):
    """``run.json``: what can be told of a run without opening anything else. Times are ISO 8601 in UTC."""

    id: str
    """``<experiment>/<run>``: the path below the logdir."""
    status: Status
    step: int
    max_steps: int
    started: str
    updated: str
    command: str
    overrides: list[str]
    """Those that hold now: the start's, with what resumptions have changed."""
    choices: dict[str, str]
    """What each group was set to: model, data, ..."""
    configuration: dict[str, str] | None = None
    """Checksums of what a resumption goes by: see :mod:`harness.train.resume`; None in runs of 0.1.0."""
    sweep: str | None = None
    world_size: int = 1
    device: str | None = None
    parameters: int | None = None
    """Trainable ones."""
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)
    resumed_from: list[int] = msgspec.field(default_factory=list)
    """The step of each resumption."""
    first_window: int | None = None
    """The step at which the schedule's next window began to record when the job was started; None for none."""
    passed_over: dict[str, int] = msgspec.field(default_factory=dict)
    """Cycles of the schedule that had no window, by reason; see :mod:`harness.trace.passed_over`."""
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    git: dict[str, Any] | None = None
    """``revision`` and whether the working tree was ``dirty``; None outside a checkout."""
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """The newest value of each: ``train/loss``, ``eval/accuracy``, ``perf/samples_per_second``, ..."""
    error: str | None = None


class RunDirectory:
    """A run's directory while this process trains in it, held by a lock that dies with the process.

    Until :meth:`start` it is only held: one left before, as for bad input, is as it was, or gone if it is new.

    Args:
        path: The directory; made if it is not there.
        manifest: What ``run.json`` says from :meth:`start` on.
        logdir: The folder above it that stays when an empty run goes.

    Raises:
        UsageError: on entry, where it cannot be made or another process holds it.
    """

    def __init__(self, path: Path, manifest: Manifest, *, logdir: Path) -> None:
        self.path = path
        self._logdir = logdir.absolute()
        self.manifest = manifest
        self.started = False
        self._lock: locks.Lock | None = None
        self.is_new = True
        """Whether no earlier life of it has shown."""
        self.abandoned: list[Path] = []
        """Directories beside it that killed starts had left, and that are gone now."""
        self._written = 0.0

    def __enter__(self) -> Self:
        while not self._hold():
            pass
        self.is_new = not (self.path / MANIFEST).exists()
        for folder in (self.path, self.path / CHECKPOINTS):
            remove_leftovers(folder)
        self.abandoned = remove_abandoned(self.path.parent)
        return self

    def _hold(self) -> bool:
        """Make the directory and lock it; False where somebody took it for abandoned in between."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = locks.take(self.path / LOCK)
        except FileNotFoundError:
            if self.path.is_dir():
                raise
            return False
        except OSError as error:
            raise UsageError(f"{self.path} cannot be written: {error}; choose another logdir") from error
        if self._lock is None:
            raise UsageError(f"{self.path}: another process trains in this run; wait for it or end it")
        if self._lock.names(self.path / LOCK):
            return True
        self._lock.close()
        return False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.started and self.manifest.status == "running":
            self.finish("failed", repr(error))
        if self.is_new and not self.started:
            # Nothing of the run was begun: its folder goes, and its experiment's if nothing else is in it.
            shutil.rmtree(self.path / HYDRA, ignore_errors=True)
            (self.path / LOG_FILE).unlink(missing_ok=True)
            (self.path / LOCK).unlink()
            remove_empty(self.path, self._logdir)
        if self._lock is not None:
            self._lock.close()

    def start(self) -> None:
        """Begin the run for all to see.

        Raises:
            UsageError: where its manifest cannot be written, without which nobody could go on with it.
        """
        if (problem := self.write()) is not None:
            raise UsageError(
                f"{self.path / MANIFEST} cannot be written: {problem}; make room, or choose another logdir"
            )
        self.started = True
        if self._lock is not None:
            self._lock.warn()
        for folder in list(self.path.absolute().parents)[:3]:
            sync_folder(folder)
        # The first figures are not long in coming, and a reader waits for them.
        self._written = -math.inf

    def update(self, *, step: int, metrics: dict[str, float], every_s: float = 5.0) -> None:
        """Note how far the run is, on disk at most every ``every_s`` seconds."""
        self.manifest.step = step
        self.manifest.metrics.update(metrics)
        if time.monotonic() - self._written >= every_s:
            self.write()

    def finish(self, status: Status, error: str | None = None) -> str | None:
        """Write the run's last word, if need be in several tries; why it is not on disk, None where it is."""
        self.started = True
        self.manifest.status = status
        self.manifest.error = error and masked(error)
        return persistently(self.write)

    def write(self) -> str | None:
        """Rewrite ``run.json``; what a full disk says is logged and comes back, not raised."""
        self._written = time.monotonic()
        self.manifest.updated = now()
        try:
            with atomic_write(self.path / MANIFEST) as file:
                file.write(msgspec.json.format(msgspec.json.encode(self.manifest), indent=2))
        except OSError as error:
            log.warning("%s could not be written: %s", self.path / MANIFEST, error)
            return str(error)
        return None


class FollowedRun(RunDirectory):
    """The same directory as the other ranks of the job see it: rank 0 makes it, holds it and writes to it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def start(self) -> None:
        self.started = True

    def write(self) -> str | None:
        self._written = time.monotonic()
        return None


def remove_abandoned(experiment: Path) -> list[Path]:
    """Remove directories of runs that never showed, since they were killed in their start; those that are gone.

    Such a one has a run's name, nothing but what a start makes before ``run.json``, and nobody who holds it.
    """
    gone = []
    for run in experiment.iterdir():
        with suppress(OSError):
            if _NAME.fullmatch(run.name) and run.is_dir() and not run.is_symlink() and _never_showed(run):
                _remove_unheld(run, experiment)
                if not run.exists():
                    gone.append(run)
    return gone


def _never_showed(run: Path) -> bool:
    made = (LOCK, HYDRA, LOG_FILE)
    return all(path.name in made or path.name.endswith(TEMPORARY) for path in run.iterdir())


def _remove_unheld(run: Path, experiment: Path) -> None:
    if not (run / LOCK).exists():
        remove_empty(run, experiment)
        return
    # Where nobody can tell, it may be another host's.
    if locks.is_held(run / LOCK) is not False or (lock := locks.take(run / LOCK)) is None:
        return
    try:
        if _never_showed(run):
            for path in run.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                elif path.name != LOCK:
                    path.unlink()
            # Last, since whoever begins a run here looks for it.
            (run / LOCK).unlink()
            run.rmdir()
    finally:
        lock.close()


def remove_empty(folder: Path, logdir: Path) -> None:
    """Remove a folder, and those above it up to the logdir, as far as nothing is in them."""
    folder, logdir = folder.absolute(), logdir.absolute()
    with suppress(OSError):
        while folder != logdir:
            folder.rmdir()
            folder = folder.parent


def read_manifest(run: Path) -> Manifest:
    """The manifest of the run in ``run``, with status ``killed`` where it claims to run and nobody holds it.

    Raises:
        UsageError: where there is none, or it is not one.
    """
    path = run / MANIFEST
    try:
        manifest = msgspec.json.decode(read_regular(path), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        here = f"there is no {MANIFEST} in it; a job that was killed before it began has none"
        why = here if run.is_dir() else "there is no such directory"
        raise UsageError(f"{run} is no run: {why}") from None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if manifest.status == "running" and not _is_held(run, manifest):
        manifest.status = "killed"
    return manifest


def find_runs(logdir: Path) -> Iterator[Path]:
    """Directories below ``logdir``, itself included, that hold a run: a manifest, or windows of somebody's own loop."""
    for folder, folders, files in os.walk(logdir, onerror=_raise_if_broken):
        if MANIFEST in files or (PROFILE in folders and windows(Path(folder))):
            folders.clear()
            yield Path(folder)


def _raise_if_broken(error: OSError) -> None:
    """Others' folders may be closed to us, and may go; a file system that fails is told."""
    if not isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        raise error


def windows(run: Path) -> list[Path]:
    """The window directories of a run, in the order of their steps.

    Raises:
        OSError: where that cannot be read.
    """
    try:
        names = os.listdir(run / PROFILE)
    except (FileNotFoundError, NotADirectoryError):
        return []
    steps = {name: step for name in names if (step := step_of_window(name)) is not None}
    return [run / PROFILE / name for name in sorted(steps, key=lambda name: (steps[name], name))]


def step_of_window(name: str) -> int | None:
    """At which the window in a directory of this name began to record; None where the name is no window's."""
    match = _WINDOW.fullmatch(name)
    return int(match[1]) if match else None


def now() -> str:
    """The time, as manifests write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def command_line() -> str:
    """The command of this process, as one would type it: without what ``train`` adds for a sweep."""
    added = ("sweep=", "hydra.job.config.override_dirname.exclude_keys=", "hydra.run.dir=")
    kept = [masked(text, whole=True) for text in sys.argv[1:] if not text.startswith(added)]
    return f"{Path(sys.argv[0]).name} {shlex.join(kept)}"


def versions() -> dict[str, str | None]:
    """Versions of what a result depends on; None for what is not installed."""
    from importlib import metadata

    found: dict[str, str | None] = {"harness": harness.__version__, "python": platform.python_version()}
    for package in ("torch", "torchvision", "numpy", "tensorboard", "torch-tb-profiler", "hydra-core"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_revision() -> dict[str, Any] | None:
    """Revision and state of the checkout that the command was given in, None where there is none."""
    try:
        revision = _git("rev-parse", "HEAD")
        return {"revision": revision, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, timeout=5).stdout.strip()


def _is_held(run: Path, manifest: Manifest) -> bool:
    """Whether somebody trains in the run; where that cannot be told, as on another host and without locks, the run's
    own word counts."""
    held = locks.is_held(run / LOCK)
    if held is None:
        held = locks.process_lives(manifest.host, manifest.pid)
    return held is not False
