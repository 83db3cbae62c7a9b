"""A window on disk: its trace files, its findings, and what either says."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import overload

from harness import search_path
from harness.errors import UsageError
from harness.files import is_inside, printable
from harness.logdir.findings import Findings, Unreadable, read_findings
from harness.logdir.layout import FINDINGS, MANIFEST, TRACE_SUFFIXES, step_of_window, trace_name
from harness.trace import Trace, TraceError, WindowReport, analyze_rank, analyze_window, read

OTHER_SUFFIXES = (".json", ".json.gz")
_LAST = float("inf")


@dataclass(frozen=True)
class Window:
    """A window's directory, or a trace file alone. Nothing of it is read before it is asked for.

    Attributes:
        path: The directory, or the trace file.
        run: The name of its run; empty where it was given by itself.
        within: Where links may lead, for a server; whoever asks on the command line may read what they may read.
        suffixes: What the names of its traces end with.
        alone: Whether it is a trace file, not a directory.
    """

    path: Path
    run: str = ""
    within: tuple[Path, ...] = ()
    suffixes: tuple[str, ...] = TRACE_SUFFIXES
    alone: bool = False

    @property
    def name(self) -> str:
        """As ``window_00000120``."""
        return printable(self.path.name)

    @cached_property
    def step(self) -> int | None:
        """At which recording began, from the directory's name."""
        return step_of_window(self.path.name)

    @property
    def findings(self) -> Path:
        return self.path / FINDINGS

    def traces(self) -> dict[str, Path]:
        """Its trace files by name; empty once ``profiler.keep`` has removed them. What has such a name and is no file,
        as a pipe, comes last."""
        if self.alone:
            return {printable(self.path.name): self.path}
        try:
            with os.scandir(self.path) as entries:
                found = [
                    (not _is_file(entry), entry.name)
                    for entry in entries
                    if entry.name.endswith(self.suffixes)
                    and entry.name not in (MANIFEST, FINDINGS)
                    and (not self.within or not entry.is_symlink() or is_inside(Path(entry.path), self.within))
                ]
        except OSError:
            return {}
        return {printable(name): self.path / name for _, name in sorted(found)}

    @property
    def is_empty(self) -> bool:
        """Whether it holds neither a trace nor findings."""
        return not os.path.lexists(self.findings) and not self.traces()

    @cached_property
    def _by_rank(self) -> tuple[Path, ...]:
        return tuple(sorted(self.traces().values(), key=lambda path: _rank_and_age(path.name)))

    @property
    def trace(self) -> Path | None:
        """Of the lowest rank the newest."""
        return self._by_rank[0] if self._by_rank else None

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the other traces beside it."""
        return tuple(sorted(path.name for path in self._by_rank[1:]))

    @property
    def ranks(self) -> tuple[str, ...]:
        """Those of them that are other ranks' of the same window, the newest of each: of any name in a window's
        directory, and elsewhere of the same but for the rank."""
        return tuple(self._other_ranks())

    def _other_ranks(self) -> Iterator[str]:
        if self.trace is None:
            return
        first = trace_name(self.trace.name)
        taken = {_rank_and_age(self.trace.name)[0], _LAST}
        for path in self._by_rank[1:]:
            rank, named = _rank_and_age(path.name)[0], trace_name(path.name)
            if rank in taken or named is None or first is None:
                continue
            if self.step is not None or named.of_all_ranks == first.of_all_ranks:
                taken.add(rank)
                yield path.name

    def told(self, kind: type[Findings]) -> Findings:
        """The findings beside the traces as far as ``kind`` has them.

        Raises:
            Unreadable: where there are none, or none that this version can use.
        """
        if self.within and not is_inside(self.findings, self.within):
            raise Unreadable(f"{FINDINGS} is missing, or leads out of the logdir")
        return read_findings(self.findings, kind)

    def report(self, step_ms: float | None = None) -> WindowReport:
        """The findings beside the trace if they can be used; else the trace is analyzed.

        Raises:
            UsageError: where neither can be read.
        """
        return self._written(step_ms) or self._analyzed(step_ms)[0]

    def load(self, step_ms: float | None = None) -> tuple[WindowReport, Trace | None]:
        """The report and the trace, which is read once; no trace where only its findings can be read."""
        report = self._written(step_ms)
        if report is None:
            return self._analyzed(step_ms)
        try:
            return report, self._read()
        except UsageError:
            return report, None

    def _analyzed(self, step_ms: float | None) -> tuple[WindowReport, Trace | None]:
        try:
            if self.trace is None or not self.ranks:
                trace = self._read()
                return analyze_rank(trace, step_ms=step_ms), trace
            # Each rank is read by a process of its own.
            with search_path.Sheltered():
                report = analyze_window([self.trace, *(self.path / name for name in self.ranks)], step_ms=step_ms)
            return report, read(self.path / report.source)
        except TraceError as error:
            raise UsageError(str(error)) from error

    def _written(self, step_ms: float | None) -> WindowReport | None:
        """Findings that a publisher wrote; a step time that is handed over makes others of them."""
        if step_ms is not None:
            return None
        try:
            report = self.told(WindowReport)
        except Unreadable:
            return None
        # Written when not all ranks were there, or by a version that did not look at them.
        return report if report.ranks is not None or not self.ranks else None

    def _read(self) -> Trace:
        if self.trace is None:
            raise UsageError(f"{self.path} holds no trace, and no findings that this version can use")
        try:
            return read(self.trace)
        except TraceError as error:
            raise UsageError(str(error)) from error


class Windows(Sequence[Window]):
    """A run's windows in the order of their steps, each made when it is looked at: a run may have thousands."""

    def __init__(self, profile: Path, names: Sequence[str], run: str = "", within: tuple[Path, ...] = ()) -> None:
        self._profile, self._names, self._run, self._within = profile, names, run, within
        self._made: dict[str, Window] = {}

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, place: int) -> Window: ...

    @overload
    def __getitem__(self, place: slice) -> Windows: ...

    def __getitem__(self, place: int | slice) -> Window | Windows:
        names = self._names[place]
        if not isinstance(names, str):
            return Windows(self._profile, names, self._run, self._within)
        if names not in self._made:
            self._made[names] = Window(self._profile / names, self._run, self._within)
        return self._made[names]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _rank_and_age(name: str) -> tuple[float, int, str]:
    """The lowest rank first, and of one rank's files the newest; files that name no rank last."""
    named = trace_name(name)
    if named is None or named.rank is None:
        return _LAST, 0, name
    return named.rank, -(named.time or 0), name
