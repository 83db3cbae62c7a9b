"""Opening for reading what lies on disk under a name, where it is a regular file and nothing else.

A pipe that nobody writes to waits for ever, a device never ends, and whoever may write to a logdir can give either a
trace's name. Links to regular files are followed. Here and not on the ground floor, since `harness.trace` imports
nothing of the harness but errors; everyone else takes it from `harness.files`.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

SMALL = 64 * 2**20
"""Bytes that a file may have which is read at once and is no trace: the largest real ones have a few MiB."""
_OTHER_THAN_REGULAR = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotRegularError(OSError):
    """There is something else than a regular file under this name; :attr:`what` says what, as ``a pipe``."""

    def __init__(self, path: str | os.PathLike[str], mode: int) -> None:
        self.what = _OTHER_THAN_REGULAR.get(stat.S_IFMT(mode), "of no known kind")
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        super().__init__(code, f"it is {self.what}, no regular file", os.fspath(path))


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """The file, open for reading; never waits.

    Raises:
        OSError: where it cannot be opened, or is no regular file (NotRegularError).
    """
    return os.fdopen(regular_descriptor(path), "rb")


def regular_descriptor(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """As :func:`open_regular`, for those that need a descriptor, or more than to read; to be closed by the caller."""
    # Even to open some devices does something; the second look is at what has been opened in fact.
    try:
        _require_regular(path, os.stat(path).st_mode)
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    except ValueError as error:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(error), os.fspath(path)) from error
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY, 0o644)
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: str | os.PathLike[str], limit: int = SMALL) -> bytes:
    """All of the file.

    Raises:
        OSError: where it cannot be read, is no regular file, or has more than ``limit`` bytes.
    """
    with open_regular(path) as file, _named(path):
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= limit else b""
        if len(data) > size:
            # It grows, or is one of the kernel's, which do not know their size.
            data += file.read(limit + 1 - len(data))
        if max(size, len(data)) > limit:
            raise OSError(errno.EFBIG, f"it has more than the {limit:,} bytes that are read", os.fspath(path))
        return data


def _require_regular(path: str | os.PathLike[str], mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise NotRegularError(path, mode)


@contextmanager
def _named(path: str | os.PathLike[str]) -> Iterator[None]:
    """An error in the middle of a file says of which."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = os.fspath(path)
        raise
