"""Where the windows of one run wait until they are complete: names, the lock, what is there.

::

    .tb_logs.staging/<experiment>/<run>/
      window_00000120/           torch's raw export
      window_00000120.job        it is finished, and what to know to publish it
      window_00000120.tries      a byte for each attempt that was begun
      window_00000120.publishing/    the directory that will be renamed into the logdir
      window_00000120.ranks/     traces of other ranks; see ranks.py
    .tb_logs.staging/<experiment>/.<run>.lock    held by whoever publishes
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.files import locks, read_regular, regular_descriptor
from harness.files.locks import Lock
from harness.logdir.layout import PROFILE, staging_root, step_of_window
from harness.publish.job import Job

JOB, TRIES, BUILD, RANKS, TEMPORARY = ".job", ".tries", ".publishing", ".ranks", ".tmp"


@dataclass(frozen=True)
class Staging:
    """The staging of one run.

    Args:
        logdir: TensorBoard's logdir.
        run: The run's path below it.
    """

    logdir: Path
    run: str

    @property
    def root(self) -> Path:
        return staging_root(self.logdir)

    @property
    def folder(self) -> Path:
        return self.root / self.run

    @property
    def profile(self) -> Path:
        """Where published windows lie."""
        return Path(os.path.abspath(self.logdir)) / self.run / PROFILE

    @property
    def lock(self) -> Path:
        return self.folder.with_name(f".{self.folder.name}.lock")

    def raw(self, name: str) -> Path:
        """The folder into which torch exports."""
        return self.folder / name

    def build(self, name: str) -> Path:
        """The folder that becomes the window."""
        return self.folder / f"{name}{BUILD}"

    def ranks(self, name: str) -> Path:
        """The folder in which other ranks leave their traces."""
        return self.folder / f"{name}{RANKS}"

    def jobs(self) -> list[str]:
        """Names of the windows that wait, oldest first."""
        try:
            names = [name.removesuffix(JOB) for name in os.listdir(self.folder) if name.endswith(JOB)]
            return sorted(name for name in names if step_of_window(name) is not None)
        except OSError:
            return []

    def has(self, name: str) -> bool:
        """Whether the window waits here."""
        return self._file(name, JOB).exists()

    def write(self, name: str, job: Job) -> None:
        """Declare a window finished. Whole or not there; not synced, since the loop waits for it."""
        temporary = self._file(name, TEMPORARY)
        try:
            temporary.write_bytes(msgspec.json.encode(job))
            temporary.replace(self._file(name, JOB))
        except OSError:
            temporary.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> Job:
        """The job of a window that waits.

        Raises:
            OSError, msgspec.MsgspecError: where there is none, or it cannot be read.
        """
        return msgspec.json.decode(read_regular(self._file(name, JOB)), type=Job)

    def begin_try(self, name: str) -> int:
        """Note that an attempt begins; how many have been begun, this one included."""
        handle = regular_descriptor(self._file(name, TRIES), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(handle, b".")
            return os.fstat(handle).st_size
        finally:
            os.close(handle)

    def forget_tries(self, name: str) -> None:
        """The attempt ended in order: whoever made it has survived."""
        self._file(name, TRIES).unlink(missing_ok=True)

    def discard(self, name: str) -> None:
        """Remove all of a window; its job goes last, so that a kill in between is made good later."""
        shutil.rmtree(self.raw(name), ignore_errors=True)
        shutil.rmtree(self.build(name), ignore_errors=True)
        shutil.rmtree(self.ranks(name), ignore_errors=True)
        self.forget_tries(name)
        self._file(name, JOB).unlink(missing_ok=True)

    def require_room(self) -> None:
        """See that the folder can be made, without making it.

        Raises:
            OSError: where it cannot.
        """
        there = next(path for path in (self.folder, *self.folder.parents) if os.path.lexists(path))
        if not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(there))
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))

    def make(self) -> None:
        """Make the folder, without the unfinished recordings that a killed job has left in it, whatever its ranks."""
        self.folder.mkdir(parents=True, exist_ok=True)
        jobs = set(self.jobs())
        for path in self.folder.iterdir():
            if path.suffix == TEMPORARY:
                path.unlink(missing_ok=True)
            elif path.name.startswith("rank_") or (
                step_of_window(path.stem) is not None and path.suffix in ("", RANKS) and path.stem not in jobs
            ):
                shutil.rmtree(path, ignore_errors=True)

    def remove_if_empty(self) -> None:
        """Remove the folder, and those above it that hold nothing else."""
        folder = self.folder
        with suppress(OSError):
            while folder != self.root.parent:
                with suppress(FileNotFoundError):
                    folder.rmdir()
                folder = folder.parent

    def acquire(self) -> Lock | None:
        """Take the lock of whoever publishes; None while another process holds it.

        Returns:
            What :meth:`release` takes. The lock ends with the process.
        """
        while True:
            self.lock.parent.mkdir(parents=True, exist_ok=True)
            lock = locks.take(self.lock)
            # The one before may have removed the file between the two calls.
            if lock is None or lock.names(self.lock):
                return lock
            lock.close()

    def release(self, lock: Lock) -> None:
        """Let go, and leave nothing behind that nobody needs."""
        self.lock.unlink(missing_ok=True)
        lock.close()
        self.remove_if_empty()

    def _file(self, name: str, suffix: str) -> Path:
        return self.folder / f"{name}{suffix}"
