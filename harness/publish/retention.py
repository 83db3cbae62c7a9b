"""Which traces stay: the disk is finite, the findings in ``window.json`` are small and stay for ever."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import msgspec

from harness.logdir.findings import Unreadable, read_findings
from harness.logdir.layout import step_of_window, trace_name
from harness.logdir.scan import windows_in
from harness.quantities import parse_bytes
from harness.schedule import KEEP_BYTES
from harness.trace.figures import step_us as step_us_of
from harness.trace.schema import StepTime


class Keep(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the traces of one run; None limits nothing."""

    windows: int | None = None
    """Traces."""
    bytes: int | None = parse_bytes(KEEP_BYTES)
    """Of all traces together."""
    age_s: float | None = None
    """A trace's age, counted from the newest one."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A window whose trace is there."""

    step: int
    bytes: int
    time: float
    """When it was written, seconds."""
    step_us: float | None = None
    verdict: str | None = None


def expendable(stored: Sequence[Stored], keep: Keep) -> list[Stored]:
    """The windows whose traces have to go, in that order.

    The oldest go first. The first window, the slowest, and both sides of a change of verdict go only when nothing
    else is left to meet a limit on number or size, and never for their age. The newest stays in any case.

    Args:
        stored: All windows with a trace, by step.
    """
    if not stored:
        return []
    notable = {window.step for window in _notable(stored)}
    ordinary = [window for window in stored if window.step not in notable]
    # Of the notable ones a change of verdict goes before the slowest, and the first window last.
    slowest = _slowest(stored)
    special = sorted(
        (window for window in stored[:-1] if window.step in notable),
        key=lambda window: (window is stored[0], window is slowest, window.step),
    )
    count, size = len(stored), sum(window.bytes for window in stored)
    gone: list[Stored] = []
    for window in [*ordinary, *special]:
        age_s = stored[-1].time - window.time
        too_old = keep.age_s is not None and age_s > keep.age_s and window.step not in notable
        too_many = keep.windows is not None and count > keep.windows
        too_large = keep.bytes is not None and size > keep.bytes
        if too_old or too_many or too_large:
            gone.append(window)
            count, size = count - 1, size - window.bytes
    return gone


def _notable(stored: Sequence[Stored]) -> Iterator[Stored]:
    yield stored[0]
    yield stored[-1]
    slowest = _slowest(stored)
    if slowest is not None:
        yield slowest
    judged = [window for window in stored if window.verdict is not None]
    for before, after in pairwise(judged):
        if before.verdict != after.verdict:
            yield before
            yield after


def _slowest(stored: Sequence[Stored]) -> Stored | None:
    timed = [window for window in stored if window.step_us is not None]
    return max(timed, key=lambda window: window.step_us or 0.0, default=None)


class _Verdict(msgspec.Struct):
    label: str


class _Findings(msgspec.Struct):
    """What of ``window.json`` is asked here."""

    schema_version: int
    step_time: StepTime
    verdict: _Verdict


@dataclass
class Retention:
    """Keeps the traces of one run within limits; remembers what it has read."""

    profile: Path
    findings: str
    _known: dict[str, Stored] = field(default_factory=dict)

    def make_room(self, keep: Keep, *, incoming: Path | None = None) -> list[str]:
        """Remove traces until the limits hold, also once ``incoming``, the newest, has joined them.

        Only the trace files go, by unlink: who has one open reads on, and no directory disappears.

        Returns:
            The names of the windows whose traces are gone.
        """
        found = [(step_of_window(folder.name), folder) for folder in self._windows()]
        if incoming is not None:
            # Its name has a suffix as long as it is built.
            found.append((step_of_window(incoming.name.partition(".")[0]), incoming))
        by_step = {step: folder for step, folder in found if step is not None}
        stored = {step: self._stored(folder, step) for step, folder in sorted(by_step.items())}
        present = [window for window in stored.values() if window.bytes]
        removed = []
        for window in expendable(present, keep):
            folder = by_step[window.step]
            for trace in _traces(folder):
                trace.unlink(missing_ok=True)
            self._known.pop(folder.name, None)
            removed.append(folder.name)
        return removed

    def _windows(self) -> list[Path]:
        try:
            return windows_in(self.profile)
        except OSError:
            return []

    def _stored(self, folder: Path, step: int) -> Stored:
        known = self._known.get(folder.name)
        if known is not None:
            return known
        sizes = [trace.stat() for trace in _traces(folder)]
        step_us = verdict = None
        if sizes:
            try:
                findings = read_findings(folder / self.findings, _Findings)
            except Unreadable:
                pass
            else:
                step_us = step_us_of(findings.step_time)
                verdict = findings.verdict.label
        stored = Stored(
            step=step,
            bytes=sum(size.st_size for size in sizes),
            time=max((size.st_mtime for size in sizes), default=0.0),
            step_us=step_us,
            verdict=verdict,
        )
        if folder.parent == self.profile:
            self._known[folder.name] = stored
        return stored


def _traces(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder) if trace_name(name) is not None]
    except OSError:
        return []
