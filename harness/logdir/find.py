"""From a path to the traces behind it: a trace file, a window, a run, or a logdir."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.errors import UsageError
from harness.files import read_regular
from harness.logdir.run import MANIFEST, PROFILE, step_of_window
from harness.publish.staging import FINDINGS
from harness.trace import Trace, TraceError, WindowReport, analyze_rank, analyze_window, read
from harness.trace.schema import SCHEMA_VERSION

TRACE_SUFFIXES = (".pt.trace.json", ".pt.trace.json.gz")
OTHER_SUFFIXES = (".json", ".json.gz")
_RANK = re.compile(r"(?:_|rank)([0-9]{1,18})\.(?:([0-9]{1,20})\.)?pt\.trace\.json")


@dataclass(frozen=True)
class Window:
    """One rank's trace of one window, and the findings that lie beside it, if any do."""

    path: Path
    """The window's directory, or the trace file itself."""
    trace: Path | None
    step: int | None = None
    """At which recording began, from the directory's name."""
    findings: Path | None = None
    others: tuple[str, ...] = ()
    """Names of the other traces beside it."""
    ranks: tuple[str, ...] = ()
    """Those of them that are other ranks' of the same window."""

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
            report = analyze_window([self.trace, *(self.path / name for name in self.ranks)], step_ms=step_ms)
            return report, read(self.path / report.source)
        except TraceError as error:
            raise UsageError(str(error)) from error

    def _written(self, step_ms: float | None) -> WindowReport | None:
        """Findings that a publisher wrote; a step time that is handed over makes others of them."""
        if self.findings is None or step_ms is not None:
            return None
        report = _decoded(self.findings)
        # Written when not all ranks were there, or by a version that did not look at them.
        complete = report is None or report.ranks is not None or not self.ranks
        return report if complete else None

    def _read(self) -> Trace:
        if self.trace is None:
            raise UsageError(f"{self.path} holds no trace, and no findings that this version can use")
        try:
            return read(self.trace)
        except TraceError as error:
            raise UsageError(str(error)) from error


@dataclass(frozen=True)
class Run:
    """A directory with windows, in the order of their steps."""

    path: Path
    windows: tuple[Window, ...]

    def window(self, number: int) -> Window:
        """By step, the one that begins with it or else the last to begin before; negative ones count from the
        newest, which is -1.

        Raises:
            UsageError: where there is none; the message lists those that are there.
        """
        if number < 0 and -number <= len(self.windows):
            return self.windows[number]
        if number >= 0:
            for window in self.windows:
                if window.step == number:
                    return window
        steps = [str(window.step) for window in self.windows]
        listed = ", ".join(steps if len(steps) <= 12 else [*steps[:6], "...", *steps[-5:]])
        raise UsageError(f"--window {number}: {self.path} has no such window; there are {listed} (-1 is the newest)")


Found = Window | Run | list[Run]


def find(path: Path) -> Found:
    """What ``path`` is: a window (also a single trace file), a run, or a logdir's runs in the order of their paths.

    Raises:
        UsageError: where it is nothing of these, or cannot be read.
    """
    try:
        return _find(path)
    except PermissionError as error:
        raise UsageError(f"{error.filename or path} cannot be read: permission denied") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def _find(path: Path) -> Found:
    if not path.exists():
        raise UsageError(f"{path} does not exist; give a trace file, a window, a run or a logdir")
    if not path.is_dir():
        if not path.is_file():
            raise UsageError(f"{path} is no regular file; give a trace file, a window, a run or a logdir")
        if path.name == FINDINGS:
            return _window(path.parent) or Window(path, None, findings=path)
        return Window(path, path)
    run = _run(path)
    if run is not None:
        if not run.windows:
            raise UsageError(f"{path} has no window yet; see the profiler's schedule, or try: harness runs {path}")
        return run
    window = _window(path)
    if window is not None:
        return window
    runs = [run for run in _runs_below(path) if run.windows]
    if runs:
        return runs[0] if len(runs) == 1 else runs
    loose = _window(path, OTHER_SUFFIXES)
    if loose is not None:
        return loose
    raise UsageError(f"{path} holds no trace: neither *.pt.trace.json[.gz] nor a run with windows")


def _run(path: Path) -> Run | None:
    """The run in ``path``, which may be its folder of windows too; None where there is none."""
    for folder in (path / PROFILE, path):
        windows = sorted(_windows(folder), key=lambda window: window.step or 0)
        if windows:
            return Run(path, tuple(windows))
    return Run(path, ()) if (path / MANIFEST).exists() else None


def _windows(folder: Path) -> Iterator[Window]:
    if not folder.is_dir():
        return
    for path in folder.iterdir():
        if step_of_window(path.name) is not None and path.is_dir():
            window = _window(path)
            if window is not None:
                yield window


def _window(path: Path, suffixes: tuple[str, ...] = TRACE_SUFFIXES) -> Window | None:
    """The window in ``path``; None where neither a trace nor findings are in it."""
    names = sorted(os.listdir(path))
    traces = [name for name in names if name.endswith(suffixes) and name not in (MANIFEST, FINDINGS)]
    findings = path / FINDINGS if FINDINGS in names else None
    if not traces and findings is None:
        return None
    first = min(traces, key=_rank_and_age, default=None)
    step = step_of_window(path.name)
    others = tuple(name for name in traces if name != first)
    return Window(
        path,
        path / first if first is not None else None,
        step=step,
        findings=findings,
        others=others,
        ranks=tuple(_other_ranks(first, others, anywhere=step is not None)) if first is not None else (),
    )


def _other_ranks(first: str, others: tuple[str, ...], *, anywhere: bool) -> Iterator[str]:
    """The newest trace of each other rank. anywhere: of any name, as in a window; else of the same but for the rank."""
    taken = {_rank_and_age(first)[0], float("inf")}
    for name in sorted(others, key=_rank_and_age):
        rank = _rank_and_age(name)[0]
        if rank not in taken and (anywhere or _RANK.split(name)[0] == _RANK.split(first)[0]):
            taken.add(rank)
            yield name


def _rank_and_age(name: str) -> tuple[float, int, str]:
    """The lowest rank first, and of one rank's files the newest; files that name no rank last."""
    match = _RANK.search(name)
    return (int(match[1]), -int(match[2] or 0), name) if match else (float("inf"), 0, name)


def _runs_below(logdir: Path) -> Iterator[Run]:
    for folder, folders, _ in os.walk(logdir, onerror=_raise):
        folders.sort()
        run = _run(Path(folder))
        if run is not None:
            folders.clear()
            yield run


def _raise(error: OSError) -> None:
    raise error


def findings_of(window: Path) -> WindowReport | None:
    """The findings that lie in a window's directory; None where there are none of this version."""
    return _decoded(window / FINDINGS)


def _decoded(path: Path) -> WindowReport | None:
    try:
        report = msgspec.json.decode(read_regular(path), type=WindowReport)
    except (OSError, msgspec.MsgspecError):
        return None
    return report if report.schema_version == SCHEMA_VERSION else None
