"""Locks that end with the process that holds them, also where the file system has none.

Some have none: NFS without its lock daemon, Lustre mounted without ``flock``, many in user space. There a lock file
says who has taken it, which keeps other processes of the same host away; those of another host cannot tell, and nothing
keeps them out. A job's log says so once.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path
from weakref import WeakSet

import msgspec

from harness.trace.file.opening import read_regular, regular_descriptor

log = logging.getLogger(__name__)


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in a lock file: who took it last."""

    host: str
    pid: int
    locked: bool = True
    """Whether the file system has given the lock; else the word of the file is all there is."""
    began: int | None = None
    """When the process began, in the kernel's ticks, where that can be told: numbers of processes come again."""

    @property
    def lives(self) -> bool | None:
        """Whether the process does; None where this host cannot tell."""
        return process_lives(self.host, self.pid, self.began)


class Lock:
    """A lock that this process has, until :meth:`close` or its end."""

    def __init__(self, path: Path, descriptor: int, problem: OSError | None) -> None:
        self._path, self._descriptor = path, descriptor
        self.problem = problem
        """Why the file system does not keep other processes away; None where it does."""
        _mine.add(self)

    def warn(self) -> None:
        """Log where it does not, once for each folder."""
        if self.problem is not None:
            _say_once(self._path.parent, self.problem.strerror or str(self.problem))

    def names(self, path: Path) -> bool:
        """Whether the file that is locked is the one of this name now."""
        try:
            return os.fstat(self._descriptor).st_ino == path.stat().st_ino
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Give it back; the file stays."""
        if self not in _mine:
            return  # a forked child's
        _mine.discard(self)
        if self.problem is not None:
            # Its word would be believed as long as the process lives.
            with suppress(OSError):
                os.truncate(self._descriptor, 0)
        os.close(self._descriptor)


_mine: WeakSet[Lock] = WeakSet()


def _leave_to_the_parent() -> None:
    """A forked child, as a worker of a loader, has no part in its parent's locks, and outlives it by seconds."""
    for lock in list(_mine):
        with suppress(OSError):
            os.close(lock._descriptor)
    _mine.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def take(path: Path) -> Lock | None:
    """The lock on the file at ``path``, which is made; None where another process has it.

    Raises:
        OSError: where the file cannot be made, or is no regular file.
    """
    descriptor = regular_descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        problem = _lock(descriptor, fcntl.LOCK_EX)
    except BlockingIOError:
        os.close(descriptor)
        return None
    before = holder(path)
    if before is not None and (problem is not None or not before.locked) and before.lives:
        os.close(descriptor)
        return None
    _, began = _state(os.getpid())
    mine = Holder(host=socket.gethostname(), pid=os.getpid(), locked=problem is None, began=began)
    try:
        os.truncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(mine), 0)
    except OSError as error:
        # On a full disk: the lock is there all the same.
        log.debug("%s does not say who holds it: %s", path, error)
    return Lock(path, descriptor, problem)


def is_held(path: Path) -> bool | None:
    """Whether a process has the lock on the file at ``path``; None where this host cannot tell."""
    try:
        descriptor = regular_descriptor(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return None
    try:
        problem = _lock(descriptor, fcntl.LOCK_SH)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    found = holder(path)
    if problem is None and (found is None or found.locked):
        return False
    return None if found is None else found.lives


def holder(path: Path) -> Holder | None:
    """Who took the lock at ``path`` last, and may have ended since; None where the file does not say."""
    try:
        return msgspec.json.decode(read_regular(path, limit=4096), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None


def process_lives(host: str, pid: int, began: int | None = None) -> bool | None:
    """Whether a process of this number is there; None for another host's."""
    if host != socket.gethostname():
        return None
    if not 0 < pid < 2**31:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, really_began = _state(pid)
    # One that has ended and whose parent has not asked yet is there, but lives no more.
    return state not in ("Z", "X") and (began is None or really_began in (began, None))


def _lock(descriptor: int, how: int) -> OSError | None:
    """Lock, without waiting; what the file system says where it cannot.

    Raises:
        BlockingIOError: where another process has the lock.
    """
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error
    return None


def _state(pid: int) -> tuple[str, int | None]:
    """The kernel's letter for what the process does, and when it began; nothing where it does not say (Linux)."""
    try:
        # The name of a program, which comes before, may hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return "", None


@cache
def _say_once(folder: Path, why: str) -> None:
    log.warning(
        "%s: the file system gives no locks (%s): nothing keeps another host's process from writing here too, and only "
        "this host can tell whether the job still runs",
        folder,
        why,
    )
