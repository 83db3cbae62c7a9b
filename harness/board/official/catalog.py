"""The runs below the logdirs as the plugin lists them: run, span, worker, file.

A run of the harness has a directory for every window; its windows are the spans of one run. Any other directory with
traces is a run by itself, as the plugin has it, with the files of a worker as its spans.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.files import printable
from harness.logdir.layout import trace_name
from harness.logdir.scan import Logdir, Scanner
from harness.logdir.window import Window

ONLY = "default"
_NUMBER = re.compile(r"(\d+)")


@dataclass
class Entry:
    """One run of the plugin's list."""

    name: str
    spans: dict[str, dict[str, Path]] = field(default_factory=dict)
    """By span, oldest first, the file of each worker."""
    windows: dict[str, str] = field(default_factory=dict)
    """By span, the name of the window that it is; empty for what is no run of the harness."""
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


def entries(logdirs: Iterable[Logdir], scanner: Scanner) -> dict[str, Entry]:
    """Those with traces, by name, which is the one that every list of the harness has for them."""
    found: dict[str, Entry] = {}
    looked = scanner.look(logdirs)
    for run in looked.runs:
        spans: dict[str, dict[str, Path]] = {}
        windows: dict[str, str] = {}
        for window in scanner.windows(run):
            if files := _files(window):
                # Two names may be one number.
                span = f"step {window.step}" if f"step {window.step}" not in spans else window.name
                spans[span] = {worker: times[max(times)] for worker, times in files.items()}
                windows[span] = window.name
        if spans:
            found[run.name] = _entry(run.name, spans, windows)
    for loose in looked.loose:
        if files := _files(loose.traces):
            found[loose.name] = _entry(loose.name, _spans_of_files(files), {})
    return dict(sorted(found.items(), key=lambda item: natural(item[0])))


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts `rank_10` after `rank_9`."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _NUMBER.split(text)]


def _entry(name: str, spans: dict[str, dict[str, Path]], windows: dict[str, str]) -> Entry:
    newest = list(spans.values())[-1]
    return Entry(name, spans, windows, max(_modified(path) for path in newest.values()))


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


Files = Mapping[str, dict[int, Path]]
"""By worker, the file of each time; -1 for none."""


def _files(window: Window) -> Files:
    found: dict[str, dict[int, Path]] = defaultdict(dict)
    for path in window.traces().values():
        if (named := trace_name(path.name)) is not None:
            found[printable(named.worker)][-1 if named.time is None else named.time] = path
    return found


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
