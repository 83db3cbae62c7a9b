"""Prepared timelines in a folder of this process's own, so that a second look is instant."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness import search_path
from harness.errors import UsageError
from harness.files import locks, open_regular
from harness.timeline.prepare import FACTS, TIMELINE, Facts

MAX_BYTES = 2 * 2**30
"""On disk; the timelines that were asked for longest ago go first."""

LONGEST_S = 600.0
"""For the preparation of one file; then it is ended, so that others come to their turn."""

_PREFIX = "harness-timeline-"
_LOCK = "lock"


def _remove_leftovers() -> None:
    """Remove the folders of servers that were killed: nobody holds their locks any more."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_LOCK}"):
        if locks.is_held(lock) is False:
            shutil.rmtree(lock.parent, ignore_errors=True)


@dataclass(frozen=True)
class Prepared:
    path: Path
    """gzip."""
    facts: Facts


@dataclass(frozen=True)
class _Key:
    path: Path
    size: int
    changed_ns: int


class Cache:
    """Prepares each file once, one at a time, each in a process of its own: a file that takes more memory than there
    is ends that process and not the server."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        _remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._held = locks.take(self._folder / _LOCK)
        self._max_bytes = max_bytes
        self._known: OrderedDict[_Key, Prepared] = OrderedDict()
        self._lock = threading.Lock()
        self._preparing = threading.Lock()
        self._count = 0
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def prepared(self, source: Path) -> Prepared:
        """The timeline of a trace file, made now where it is not there yet.

        Raises:
            UsageError: where the file cannot be read or holds no trace.
        """
        try:
            path = source.resolve(strict=True)
            with open_regular(path) as file:
                status = os.fstat(file.fileno())
        except (OSError, RuntimeError) as error:
            raise UsageError(f"{source.name} cannot be read: {getattr(error, 'strerror', None) or error}") from error
        key = _Key(path, status.st_size, status.st_mtime_ns)
        found = self._find(key)
        if found is None:
            with self._preparing:
                found = self._find(key) or self._keep(key, self._prepare(path))
        return found

    def _find(self, key: _Key) -> Prepared | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None and not found.path.exists():
                # Somebody has tidied up the folder for temporary files.
                del self._known[key]
                found = None
            if found is not None:
                self._known.move_to_end(key)
            return found

    def _keep(self, key: _Key, prepared: Prepared) -> Prepared:
        with self._lock:
            self._known[key] = prepared
            self._make_room()
        return prepared

    def _prepare(self, path: Path) -> Prepared:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        try:
            done = self._run(path, folder)
        except subprocess.TimeoutExpired as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise UsageError(
                f"{path.name}: its preparation took more than {LONGEST_S:.0f} s; record fewer steps in a window"
            ) from error
        if done.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            if done.returncode < 0:
                raise UsageError(
                    f"{path.name}: its preparation was ended by signal {-done.returncode}, perhaps for want of memory; "
                    "record fewer steps in a window"
                )
            last = done.stderr.strip().splitlines()[-1:] or ["no reason was given"]
            raise UsageError(last[0])
        return Prepared(folder / TIMELINE, msgspec.json.decode((folder / FACTS).read_bytes(), type=Facts))

    def _run(self, path: Path, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            search_path.command("harness.timeline.prepare:main", str(path), str(folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            check=False,
            timeout=LONGEST_S,
        )

    def _make_room(self) -> None:
        sizes = {key: found.path.stat().st_size for key, found in self._known.items() if found.path.exists()}
        for key in list(self._known)[:-1]:
            if sum(sizes.values()) <= self._max_bytes:
                return
            shutil.rmtree(self._known.pop(key).path.parent, ignore_errors=True)
            sizes.pop(key, None)
