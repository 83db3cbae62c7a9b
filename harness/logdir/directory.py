"""A run's directory while somebody trains in it: made, held by a lock, and left whole or not at all."""

from __future__ import annotations

import logging
import math
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from harness.credentials import masked
from harness.errors import UsageError
from harness.files import TEMPORARY, atomic_write, locks, persistently, remove_leftovers, sync_folder
from harness.logdir.layout import CHECKPOINTS, HYDRA, LOCK, LOG_FILE, MANIFEST, RUN_NAME
from harness.logdir.manifest import Manifest, Status, now

log = logging.getLogger(__name__)


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
            if RUN_NAME.fullmatch(run.name) and run.is_dir() and not run.is_symlink() and _never_showed(run):
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
