"""What lies below logdirs: runs, their windows, and traces that are of no run. The one scanner, for all who list them.

A run is named as TensorBoard's own dashboards name it: by its path below the logdir, after the logdir's name where that
has one; ``.`` where it is the logdir itself. A second one of a name, as several logdirs may have, gets a number.

A link to a folder is followed where that lies in one of the logdirs, and nowhere else, as those of TensorBoard's own
dashboards are that lead there: what is reached by two ways has two names. Round about it leads only once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError
from harness.files import is_inside, printable
from harness.logdir.layout import CHECKPOINTS, HYDRA, MANIFEST, PROFILE, TRACE_SUFFIXES, step_of_window
from harness.logdir.manifest import Manifest
from harness.logdir.window import Window, Windows

ITSELF = "."
"""The name of a run that is the logdir."""
_TICK_NS = 10**9
"""A folder that has just changed may change again within the clock's tick."""


@dataclass(frozen=True)
class Logdir:
    """A directory that is looked through."""

    name: str
    """What its runs' names begin with; empty for nothing."""
    path: Path


@dataclass(frozen=True)
class Run:
    """A directory with a manifest or with windows."""

    name: str
    path: Path
    profile: Path
    """Where its windows lie; itself where it is a window."""
    within: tuple[Path, ...]
    """The logdirs after all links, out of which no link leads."""
    bounded: bool = False
    """Whether that goes for links to files too."""

    def title(self, manifest: Manifest | None) -> str:
        """The name for people: of a run that is the logdir itself what its manifest says, or its folder's name."""
        if self.name != ITSELF:
            return self.name
        return manifest.id if manifest is not None else printable(Path(os.path.abspath(self.path)).name)

    @cached_property
    def windows(self) -> Windows:
        """Those that were there at the first look, in the order of their steps."""
        return Scanner().windows(self)

    def window(self, number: int) -> Window:
        """The one that began to record at this step; negative numbers count from the newest, which is -1.

        Raises:
            UsageError: where there is none; the message lists those that are there.
        """
        if number >= 0:
            chosen = next((one for one in self.windows if one.step == number and not one.is_empty), None)
        else:
            # Where there are thousands, those that are asked for are the last few.
            newest_first = (window for window in reversed(self.windows) if not window.is_empty)
            chosen = next(islice(newest_first, min(-number, len(self.windows) + 1) - 1, None), None)
        if chosen is not None:
            return chosen
        steps = [str(window.step) for window in self.windows if not window.is_empty]
        listed = ", ".join(steps if len(steps) <= 12 else [*steps[:6], "...", *steps[-5:]])
        raise UsageError(f"--window {number}: {self.path} has no such window; there are {listed} (-1 is the newest)")


@dataclass(frozen=True)
class Loose:
    """A directory with traces that are of no run's windows."""

    name: str
    traces: Window


@dataclass(frozen=True)
class Found:
    """What a look has found, in the order of the logdirs and of paths."""

    runs: list[Run] = field(default_factory=list)
    loose: list[Loose] = field(default_factory=list)


class _Folder(NamedTuple):
    """What stands in a folder. Where links lead may change while it does not."""

    folders: tuple[str, ...]
    windows: tuple[str, ...]
    """Folders that are called as windows are, in the order of their steps."""
    links: frozenset[str]
    """To whatever."""
    has_manifest: bool
    has_traces: bool


_NOTHING = _Folder((), (), frozenset(), has_manifest=False, has_traces=False)


class _Place(NamedTuple):
    """A folder on the way through a logdir."""

    path: Path
    chain: tuple[Path, ...]
    """It and those above it, after links."""
    followed: set[Path] | None = None
    """Behind a link: where the links there have led."""
    in_run: bool = False
    """Whether it lies in a run: what may be a folder of windows that somebody has put aside is no run there."""
    of_run: bool = False
    """Whether it is a run's folder of windows."""


def _raise_if_broken(error: OSError) -> None:
    """Others' folders may be closed to us, and may go; a file system that fails is told."""
    if not isinstance(error, PermissionError | FileNotFoundError | NotADirectoryError):
        raise error


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def pass_over(error: OSError) -> None:
    """For a server, which shows what it can."""


class Scanner:
    """Looks through logdirs; a folder is read again once it has changed.

    Args:
        onerror: Told of a folder that cannot be read; by default a file system that fails is raised.
        bounded: Whether files that are links out of the logdirs are left out too.
    """

    def __init__(self, onerror: Callable[[OSError], object] = _raise_if_broken, *, bounded: bool = False) -> None:
        self._onerror = onerror
        self._bounded = bounded
        self._known: dict[Path, tuple[int, _Folder]] = {}
        self._made: dict[Run, tuple[_Folder, Windows]] = {}
        self._seen: set[Path] = set()

    def look(self, logdirs: Iterable[Logdir]) -> Found:
        """Everything below the logdirs.

        Raises:
            OSError: where ``onerror`` does.
        """
        chosen = list(logdirs)
        within = tuple(logdir.path.resolve() for logdir in chosen)
        found = Found()
        taken: set[str] = set()
        loose: list[tuple[str, Path]] = []
        self._seen = set()
        for logdir in chosen:
            for path, profile, has_traces in self._below(logdir.path, within):
                name = _name(logdir, path)
                if profile is not None:
                    found.runs.append(Run(_unique(name, taken), path, profile, within, self._bounded))
                if has_traces:
                    loose.append((name, path))
        # Whatever lies beside its windows, a run has its own name.
        for name, path in loose:
            unique = _unique(name, taken)
            found.loose.append(Loose(unique, Window(path, unique, within if self._bounded else ())))
        self._known = {path: known for path in self._seen if (known := self._known.get(path)) is not None}
        self._made = {run: made for run in found.runs if (made := self._made.get(run)) is not None}
        return found

    def run_at(self, path: Path) -> Run | None:
        """The run in ``path``, which may be its folder of windows too; None where there is none.

        Raises:
            OSError: where the folder cannot be read.
        """
        within = (path.resolve(),)
        profile = self._profile(_Place(path, within), self._read(path), within)
        return None if profile is None else Run(ITSELF, path, profile, within, self._bounded)

    def windows(self, run: Run) -> Windows:
        """A run's windows as they are now, in the order of their steps.

        Raises:
            OSError: where ``onerror`` does.
        """
        within = run.within if run.bounded else ()
        if run.profile == run.path and step_of_window(run.path.name) is not None:
            return Windows(run.path.parent, [run.path.name], run.name, within)
        if (run.bounded or run.profile.is_symlink()) and not is_inside(run.profile, run.within):
            return Windows(run.profile, [])
        folder = self._listed(run.profile)
        known = self._made.get(run)
        if known is not None and known[0] is folder and not folder.links:
            return known[1]
        made = Windows(run.profile, self._windows(run.profile, folder, run.within), run.name, within)
        self._made[run] = folder, made
        return made

    def _below(self, logdir: Path, within: Sequence[Path]) -> Iterator[tuple[Path, Path | None, bool]]:
        """Folders with something in them: the folder, that of the run's windows if it is one, and whether traces lie
        in it that are no window's."""
        places = [_Place(logdir, (logdir.resolve(),))]
        while places:
            place = places.pop()
            folder = self._listed(place.path)
            profile = None if place.of_run else self._profile(place, folder, within)
            if profile == place.path and step_of_window(place.path.name) is not None:
                yield place.path, profile, False
                continue
            if profile is not None or folder.has_traces:
                yield place.path, profile, folder.has_traces
            left_out = {CHECKPOINTS, HYDRA} if folder.has_manifest else set()
            names = [*folder.folders, *folder.links]
            if place.of_run or profile == place.path:
                left_out |= {name for name in folder.links if step_of_window(name) is not None}
            else:
                names += folder.windows
            inner = [self._entered(place, name, folder, within) for name in sorted(names) if name not in left_out]
            in_run = place.in_run or profile is not None
            places += [
                each._replace(in_run=in_run, of_run=each.path == profile)
                for each in reversed(inner)
                if each is not None
            ]

    def _profile(self, place: _Place, folder: _Folder, within: Sequence[Path]) -> Path | None:
        """The folder of the windows of the run that a folder is; None where it is none."""
        path = place.path
        if len(place.chain) == 1 and step_of_window(path.name) is not None and not Window(path).is_empty:
            return path
        below = path / PROFILE
        is_there = PROFILE in folder.folders or (PROFILE in folder.links and _is_folder_inside(below, within))
        if folder.has_manifest or (is_there and self._windows(below, self._listed(below), within)):
            return below
        names = [] if place.in_run else self._windows(path, folder, within)
        return path if any(not Window(path / name).is_empty for name in names) else None

    def _windows(self, profile: Path, folder: _Folder, within: Sequence[Path]) -> Sequence[str]:
        """Names of window directories, in the order of their steps."""
        linked = [
            name
            for name in folder.links
            if step_of_window(name) is not None and _is_folder_inside(profile / name, within)
        ]
        return _by_step([*folder.windows, *linked]) if linked else folder.windows

    def _entered(self, place: _Place, name: str, folder: _Folder, within: Sequence[Path]) -> _Place | None:
        """The next folder on the way; None for a link that is not followed."""
        path = place.path / name
        if name not in folder.links:
            return _Place(path, (*place.chain, place.chain[-1] / name), place.followed)
        if not _is_folder_inside(path, within):
            return None
        target = path.resolve()
        if target in place.chain or place.chain[-1].is_relative_to(target):
            return None
        followed = set() if place.followed is None else place.followed
        # Folders that are full of links to each other have more ways through them than anybody can go.
        if target in followed:
            return None
        followed.add(target)
        return _Place(path, (*place.chain, target), followed)

    def _listed(self, path: Path) -> _Folder:
        try:
            return self._read(path)
        except OSError as error:
            self._onerror(error)
            return _NOTHING

    def _read(self, path: Path) -> _Folder:
        self._seen.add(path)
        changed = path.stat().st_mtime_ns
        known = self._known.get(path)
        if known is not None and known[0] == changed:
            return known[1]
        folder = _read_folder(path)
        # One that has just changed may change again within the clock's tick.
        if time.time_ns() - changed > _TICK_NS:
            self._known[path] = changed, folder
        return folder


def find_runs(logdir: Path) -> list[Run]:
    """Every run below a logdir, itself included.

    Raises:
        OSError: where the logdir cannot be read, or the file system fails below it.
    """
    with os.scandir(logdir):
        pass
    return Scanner().look([Logdir("", logdir)]).runs


def windows(run: Path) -> list[Path]:
    """The window directories of a run, for its own process, which may read them: see :func:`windows_in`.

    Raises:
        OSError: where they cannot be listed.
    """
    return windows_in(run / PROFILE, _raise_unless_gone)


def windows_in(profile: Path, onerror: Callable[[OSError], object] = _raise_if_broken) -> list[Path]:
    """The window directories in a run's folder of them, in the order of their steps; none where it is not there.

    Raises:
        OSError: where ``onerror`` does.
    """
    scanner = Scanner(onerror)
    return [window.path for window in scanner.windows(Run(ITSELF, profile, profile, (profile.resolve(),)))]


def _is_folder_inside(link: Path, within: Sequence[Path]) -> bool:
    return os.path.isdir(link) and is_inside(link, within)


def _read_folder(path: Path) -> _Folder:
    folders: list[str] = []
    windows: list[str] = []
    links: list[str] = []
    has_manifest = has_traces = False
    with os.scandir(path) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_symlink():
                links.append(name)
            elif entry.is_dir(follow_symlinks=False):
                (folders if step_of_window(name) is None else windows).append(name)
                continue
            has_manifest |= name == MANIFEST
            has_traces |= name.endswith(TRACE_SUFFIXES)
    return _Folder(tuple(folders), _by_step(windows), frozenset(links), has_manifest, has_traces)


def _by_step(windows: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(windows, key=lambda name: (step_of_window(name) or 0, name)))


def _name(logdir: Logdir, path: Path) -> str:
    below = path.relative_to(logdir.path).as_posix()
    if below == ITSELF:
        return printable(logdir.name or ITSELF)
    return printable(f"{logdir.name}/{below}" if logdir.name else below)


def _unique(name: str, taken: set[str]) -> str:
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    taken.add(unique)
    return unique
