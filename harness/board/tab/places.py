"""What lies below TensorBoard's logdirs: runs, their windows, the windows' files; nothing outside is ever named.

Every name that a browser sends is looked up among those that were found on disk; none is joined to a path.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.logdir.find import TRACE_SUFFIXES
from harness.logdir.run import MANIFEST, PROFILE, step_of_window
from harness.publish.staging import FINDINGS
from harness.web.disk import is_inside, printable

KNOWN_FOR_S = 1.0
"""How long a look at the disk counts: a page asks for several things at once."""
_NAMED = re.compile(r"([^/:][^:]*):(?!//)(.+)")


class Missing(UsageError):
    """There is no such run, window or file; the message says which."""

    status = 404


@dataclass(frozen=True)
class Logdir:
    """One of TensorBoard's logdirs, after links."""

    name: str
    """What its runs' names begin with, as ``--logdir_spec name:path`` has it; empty for none."""
    path: Path


@dataclass(frozen=True)
class Run:
    """A directory with a manifest or with windows."""

    id: str
    """Its path below the logdir, after the logdir's name; ``.`` for a logdir that is itself a run."""
    path: Path
    logdir: Logdir


@dataclass(frozen=True)
class Window:
    """A published window."""

    run: Run
    name: str
    """``window_00000120``"""

    @property
    def step(self) -> int:
        """At which recording began."""
        return step_of_window(self.name) or 0

    @property
    def path(self) -> Path:
        return self.run.path / PROFILE / self.name

    @property
    def findings(self) -> Path:
        return self.path / FINDINGS

    def traces(self) -> dict[str, Path]:
        """Its trace files by name; empty once ``profiler.keep`` has removed them. What has such a name and is no file,
        as a pipe, comes last."""
        try:
            with os.scandir(self.path) as entries:
                found = [(not entry.is_file(), entry.name) for entry in entries if entry.name.endswith(TRACE_SUFFIXES)]
        except OSError:
            return {}
        paths = [self.path / name for _, name in sorted(found)]
        return {printable(path.name): path for path in paths if is_inside(path, self.run.logdir.path)}


def logdirs(logdir: str, logdir_spec: str) -> list[Logdir]:
    """TensorBoard's own options: one directory, or ``name:path`` or ``path``, separated by commas."""
    specified = logdir_spec.split(",") if logdir_spec else [logdir]
    found = []
    for text in filter(None, specified):
        named = _NAMED.fullmatch(text) if logdir_spec else None
        path = Path(named[2] if named else text).expanduser().resolve()
        name = named[1] if named else path.name if len(specified) > 1 else ""
        found.append(Logdir(name, path))
    return found


class Places:
    """Finds runs and windows, and remembers for a moment what it found."""

    def __init__(self, found: list[Logdir]) -> None:
        self.logdirs = found
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._looked = -KNOWN_FOR_S
        self._windows: dict[Path, tuple[int, tuple[str, ...]]] = {}

    def runs(self) -> list[Run]:
        """Every run below the logdirs."""
        with self._lock:
            if time.monotonic() - self._looked >= KNOWN_FOR_S:
                self._runs = {run.id: run for logdir in self.logdirs for run in _runs_below(logdir)}
                self._looked = time.monotonic()
            return list(self._runs.values())

    def run(self, name: str) -> Run:
        """The run of this id.

        Raises:
            Missing: where there is none.
        """
        self.runs()
        if name not in self._runs:
            raise Missing(f"there is no run {name[:200]!r} below the logdir")
        return self._runs[name]

    def windows(self, run: Run) -> list[Window]:
        """A run's windows, in the order of their steps."""
        folder = run.path / PROFILE
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return []
        known = self._windows.get(folder)
        if known is None or known[0] != changed:
            known = changed, tuple(_window_names(folder, run.logdir.path))
            # A folder that has just changed may change again within the clock's tick.
            if time.time_ns() - changed > 10**9:
                self._windows[folder] = known
        return [Window(run, name) for name in known[1]]

    def window(self, run: Run, name: str) -> Window:
        """The window of this name; ``newest`` is the last one.

        Raises:
            Missing: where there is none.
        """
        found = self.windows(run)
        if found and name == "newest":
            return found[-1]
        for window in found:
            if window.name == name:
                return window
        raise Missing(f"there is no window {name[:200]!r} in the run {run.id}")

    def trace(self, window: Window, name: str) -> Path:
        """A window's trace file; an empty name is the first one's.

        Raises:
            Missing: where there is none.
        """
        traces = window.traces()
        if not traces:
            raise Missing(
                f"{window.name} of {window.run.id} holds no trace any more: profiler.keep has removed it; "
                "its findings stay"
            )
        if name and name not in traces:
            raise Missing(f"there is no trace {name[:200]!r} in {window.name} of {window.run.id}")
        return traces[name] if name else next(iter(traces.values()))


def _runs_below(logdir: Logdir) -> Iterator[Run]:
    for folder, folders, files in os.walk(logdir.path):
        folders.sort()
        if MANIFEST not in files and not (PROFILE in folders and _has_windows(Path(folder, PROFILE))):
            continue
        folders.clear()
        below = Path(folder).relative_to(logdir.path).as_posix()
        name = logdir.name if logdir.name and below == "." else f"{logdir.name}/{below}" if logdir.name else below
        yield Run(printable(name), Path(folder), logdir)


def _has_windows(profile: Path) -> bool:
    try:
        with os.scandir(profile) as entries:
            return any(step_of_window(entry.name) is not None for entry in entries)
    except OSError:
        return False


def _window_names(profile: Path, logdir: Path) -> list[str]:
    """Of window directories that lie where they seem to, in the order of their steps."""
    if not is_inside(profile, logdir):
        return []
    try:
        with os.scandir(profile) as entries:
            found = [
                (step, entry.name)
                for entry in entries
                if (step := step_of_window(entry.name)) is not None and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []
    return [name for _, name in sorted(found)]
