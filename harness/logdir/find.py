"""From a path to the traces behind it: a trace file, a window, a run, or a logdir."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError
from harness.logdir.layout import FINDINGS, TRACE_SUFFIX
from harness.logdir.scan import Run, Scanner, find_runs
from harness.logdir.window import OTHER_SUFFIXES, Window

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


class Chosen(NamedTuple):
    """One window, and what it was chosen from."""

    window: Window
    run: Run | None = None
    """Whose window it is; None for one that was given by itself."""
    runs: Sequence[Run] = ()
    """All of the logdir that was given."""


def choose(path: Path, number: int | None = None) -> Chosen:
    """The one window that ``path`` stands for: of a run the newest, of a logdir its newest run's.

    Args:
        number: Of a run, the window that begins at this step; negative ones count from the newest (-1).

    Raises:
        UsageError: where there is none, or ``number`` is given for what is no run.
    """
    found = find(path)
    if isinstance(found, Window):
        if number is not None:
            raise UsageError(f"--window picks a window of a run, and {path} is one trace; leave it out")
        return Chosen(found)
    runs = found if isinstance(found, list) else []
    run = newest(found) if isinstance(found, list) else found
    return Chosen(run.window(-1 if number is None else number), run, runs)


def newest(runs: Sequence[Run]) -> Run:
    """The run whose last window is the youngest."""
    return max(runs, key=lambda run: run.window(-1).path.stat().st_mtime)


def _find(path: Path) -> Found:
    if not path.exists():
        raise UsageError(f"{path} does not exist; give a trace file, a window, a run or a logdir")
    if not path.is_dir():
        if not path.is_file():
            raise UsageError(f"{path} is no regular file; give a trace file, a window, a run or a logdir")
        return Window(path.parent) if path.name == FINDINGS else Window(path, alone=True)
    window = Window(path)
    if window.step is not None and not window.is_empty:
        return window
    run = Scanner().run_at(path)
    if run is not None:
        if all(window.is_empty for window in run.windows):
            raise UsageError(f"{path} has no window yet; see the profiler's schedule, or try: harness runs {path}")
        return run
    if not window.is_empty:
        return window
    runs = [run for run in find_runs(path) if any(not window.is_empty for window in run.windows)]
    if runs:
        return runs[0] if len(runs) == 1 else runs
    loose = Window(path, suffixes=OTHER_SUFFIXES)
    if not loose.is_empty:
        return loose
    raise UsageError(f"{path} holds no trace: neither *{TRACE_SUFFIX}[.gz] nor a run with windows")
