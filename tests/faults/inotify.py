"""What happens below a folder, as the kernel tells of it (Linux): soon enough to kill who did it in the act."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
APPEARS = MOVED_TO | CREATE
_ALL = MODIFY | CLOSE_WRITE | MOVED_FROM | MOVED_TO | CREATE | DELETE
_IS_FOLDER, _IGNORED = 0x40000000, 0x8000
_HEAD = struct.Struct("iIII")
_libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    """One thing that has happened."""

    path: str
    """Below the folder."""
    kind: int
    """One of the numbers above."""


class Inotify:
    """Every event below a folder, those of folders that are made later included.

    A folder may have something in it before it can be watched: that counts as having appeared.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._folders: dict[int, str] = {}
        self._found: list[Event] = []
        self._add("")

    def wait(self, seconds: float) -> bool:
        """Wait until something happens, for ``seconds`` at most."""
        return bool(self._found) or bool(select.select([self._descriptor], [], [], seconds)[0])

    def take(self) -> list[Event]:
        """What has happened since, in order."""
        found, self._found = self._found, []
        while self.wait(0):
            found += self._read()
        return found

    def close(self) -> None:
        os.close(self._descriptor)

    def _read(self) -> Iterator[Event]:
        data = os.read(self._descriptor, 1 << 16)
        place = 0
        while place < len(data):
            watch, mask, _, length = _HEAD.unpack_from(data, place)
            name = os.fsdecode(data[place + _HEAD.size : place + _HEAD.size + length].rstrip(b"\0"))
            place += _HEAD.size + length
            if mask & _IGNORED:
                self._folders.pop(watch, None)
                continue
            if watch not in self._folders or not name:
                continue
            path = os.path.join(self._folders[watch], name)
            yield Event(path, mask & _ALL)
            if mask & _IS_FOLDER and mask & APPEARS:
                self._add(path)
                found, self._found = self._found, []
                yield from found

    def _add(self, path: str) -> None:
        """Watch a folder and all below it; what lies there already is found."""
        watch = _libc.inotify_add_watch(self._descriptor, os.fsencode(self._root / path), _ALL)
        if watch < 0:
            # It is gone again.
            return
        self._folders[watch] = path
        try:
            entries = list(os.scandir(self._root / path))
        except OSError:
            return
        for entry in entries:
            below = os.path.join(path, entry.name)
            self._found.append(Event(below, CREATE))
            if entry.is_dir(follow_symlinks=False):
                self._add(below)
