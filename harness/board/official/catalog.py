"""The runs below the logdirs as the plugin lists them: run, span, worker, file.

A run of the harness has a directory for every window; its windows are the spans of one run. Any other directory with
traces is a run by itself, as the plugin has it, with the files of a worker as its spans.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from harness.logdir.run import PROFILE, step_of_window
from harness.web.disk import is_inside, printable

TRACE = re.compile(r"(.*?)(?:\.(\d+))?\.pt\.trace\.json(?:\.gz)?")
"""Worker and, perhaps, the time of the recording."""
ONLY = "default"
_NUMBER = re.compile(r"(\d+)")


@dataclass
class Run:
    """One entry of the plugin's list."""

    name: str
    spans: dict[str, dict[str, Path]] = field(default_factory=dict)
    """By span, oldest first, the file of each worker."""
    newest: float = 0.0
    """When its newest file was written, s since 1970."""

    @property
    def workers(self) -> list[str]:
        """Those of the newest span first, by number."""
        found: dict[str, None] = {}
        for files in reversed(self.spans.values()):
            found |= dict.fromkeys(sorted(files, key=natural))
        return list(found)

    def spans_of(self, worker: str) -> list[str]:
        return [span for span, files in self.spans.items() if worker in files]


def find_runs(logdirs: dict[Path, str | None]) -> dict[str, Run]:
    """Runs by name.

    Args:
        logdirs: Each directory and what stands before its runs' names, if anything. Nothing outside of them is
            found, wherever links lead.
    """
    runs: dict[str, Run] = {}
    for logdir, group in logdirs.items():
        root = logdir.resolve()
        windows: dict[Path, dict[str, dict[str, Path]]] = defaultdict(dict)
        for folder, files in _folders_with_traces(root):
            step = step_of_window(folder.name)
            if step is None:
                _add(runs, _name(root, folder, group), _spans_of_files(files))
                continue
            run = folder.parent.parent if folder.parent.name == PROFILE else folder.parent
            windows[run][f"step {step}"] = {worker: times[max(times)] for worker, times in files.items()}
        for run, spans in windows.items():
            _add(runs, _name(root, run, group), dict(sorted(spans.items(), key=lambda item: natural(item[0]))))
    return dict(sorted(runs.items(), key=lambda item: natural(item[0])))


def logdirs_of(logdir: str, spec: str = "") -> dict[Path, str | None]:
    """The directories that TensorBoard was started on, from its `--logdir` and `--logdir_spec`.

    Several of `--logdir` are separated by commas, those of `--logdir_spec` may have names: `a:path/1,b:path/2`.
    """
    if logdir:
        whole = Path(logdir).expanduser()
        parts = [Path(part).expanduser() for part in logdir.split(",") if part]
        several = len(parts) > 1 and not whole.exists() and any(part.exists() for part in parts)
        return {part: part.name for part in parts} if several else {whole: None}
    found: dict[Path, str | None] = {}
    for part in filter(None, spec.split(",")):
        name, colon, path = part.partition(":")
        named = bool(colon) and not part.startswith("/")
        place = Path(path if named else part).expanduser()
        found[place] = name if named else place.name
    return found


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts `rank_10` after `rank_9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(text)]


def _add(runs: dict[str, Run], name: str, spans: dict[str, dict[str, Path]]) -> None:
    unique, number = name, 2
    while unique in runs:
        unique, number = f"{name} ({number})", number + 1
    newest = list(spans.values())[-1]
    runs[unique] = Run(unique, spans, max(_modified(path) for path in newest.values()))


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _name(root: Path, folder: Path, group: str | None) -> str:
    """Relative to the logdir; a run that was given itself, or whose windows were, has its own name."""
    inside = folder.is_relative_to(root) and folder != root
    name = folder.relative_to(root).as_posix() if inside else folder.name
    return printable(name if group is None else f"{group}/{name}")


Files = dict[str, dict[int, Path]]
"""By worker, the file of each time; -1 for none."""


def _folders_with_traces(root: Path) -> Iterator[tuple[Path, Files]]:
    seen = {root}
    for folder, folders, names in os.walk(root, followlinks=True):
        here = Path(folder)
        folders[:] = sorted(name for name in folders if _enters(root, here / name, seen))
        files: Files = defaultdict(dict)
        for name in names:
            match = TRACE.fullmatch(name)
            path = here / name
            if match and (not path.is_symlink() or is_inside(path, root)):
                files[printable(match[1])][int(match[2]) if match[2] else -1] = path
        if files:
            yield here, files


def _enters(root: Path, folder: Path, seen: set[Path]) -> bool:
    """A link is followed once, and not out of the logdir."""
    if not folder.is_symlink():
        return True
    if not is_inside(folder, root):
        return False
    target = folder.resolve()
    if target in seen or folder.is_relative_to(target):
        return False
    seen.add(target)
    return True


def _spans_of_files(files: Files) -> dict[str, dict[str, Path]]:
    """As the plugin numbers them: the n-th file of each worker is its span n."""
    spans: dict[str, dict[str, Path]] = defaultdict(dict)
    for worker, times in files.items():
        timed = sorted(time for time in times if time >= 0)
        for number, time in enumerate(timed, 1):
            spans[str(number)][worker] = times[time]
        if -1 in times:
            spans[ONLY][worker] = times[-1]
    return dict(sorted(spans.items(), key=lambda item: natural(item[0])))
