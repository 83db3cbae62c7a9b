"""Files that are whole or not there; reading what is a regular file, and nothing else; names, and where links lead."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

TEMPORARY = ".tmp"
PAUSES_S = (0.3, 1.0, 2.0)
"""Between two tries of a last write; whoever sent SIGTERM may not wait for long."""
_NAMED_IN = re.compile(r"\bGLOBAL ([\w.]+)")


def remove_leftovers(directory: Path, *, older_than_s: float = 0.0) -> None:
    """Remove what a killed process left half-written in ``directory``.

    Args:
        older_than_s: Where others may write to it now: what has not been touched for so long is no longer written.
    """
    for path in directory.glob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            if older_than_s and time.time() - path.lstat().st_mtime < older_than_s:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a folder so that no kill leaves a part of it under its name."""
    aside = folder.with_name(f".{folder.name}.{os.getpid()}{TEMPORARY}")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def atomic_write(path: Path, *, check: Callable[[Path], object] = lambda written: None) -> Iterator[BinaryIO]:
    """A file to write to that becomes ``path`` when the block ends, and vanishes if it raises.

    It is on disk before it takes the name, and the name with it when the block has ended, so that not even a power cut
    leaves half of it there or takes it back.

    Args:
        check: Reads what was written, before it takes the name; what it raises keeps it from doing so.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        check(temporary)
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Put a folder's names on disk, where its file system knows how to."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:
        # One may be allowed to write to a folder and not to read it.
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(handle)


def persistently(attempt: Callable[[], str | None]) -> str | None:
    """Try a last write again and again for a few seconds: a full disk may have room by then.

    Args:
        attempt: Says why it failed, None where it did not.

    Returns:
        What the last attempt has said.
    """
    problem = attempt()
    for pause in PAUSES_S:
        if problem is None:
            break
        time.sleep(pause)
        problem = attempt()
    return problem


def reason(error: BaseException) -> str:
    """Why a write has failed, in the words of whoever knows best: torch says where it noticed."""
    deepest: BaseException | None = error
    while deepest is not None and not isinstance(deepest, OSError):
        deepest = deepest.__cause__ or deepest.__context__
    return (str(deepest or error).splitlines() or [type(error).__name__])[0]


def printable(name: str) -> str:
    """A file's name as JSON takes it: on disk it may be any bytes, which Python's text holds as what is no letter."""
    return name.encode(errors="backslashreplace").decode()


def is_inside(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path, after all links, lies below one of the folders or is it; they are without links themselves."""
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return False
    return any(real.is_relative_to(folder) for folder in folders)


def why_refused(error: Exception) -> str:
    """Of a file that names what it may not have: the name, as torch or our own reader says it; else what is wrong."""
    named = _NAMED_IN.search(str(error))
    if named is None:
        # Without torch's advice to load it all the same.
        lines = str(error).rpartition("WeightsUnpickler error: ")[2].strip().splitlines()
        return lines[0] if lines else type(error).__name__
    return f"it names {named[1]}, which no checkpoint needs; nothing of it was run"
