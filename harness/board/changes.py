"""What has changed since earlier windows, and is worth a sentence in the log.

A window is a sample of a few steps, so two of them differ though nothing has changed. Every threshold stands
here, with its reason, and each is measured against the noise of the windows' own steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.report.units import duration, printable, shorten
from harness.trace.figures import operator_times, parts_of_step, step_noise
from harness.trace.schema import VerdictLabel, WindowReport
from harness.trace.thresholds import Threshold

SIGMAS = Threshold(
    3.0,
    "A change must stand out of the noise: of the step times within the windows, and of the same time between the "
    "reference windows, whichever is larger. One window in 370 does by chance, for each of some fifty times that are "
    "watched, so a second window in a row has to agree.",
)
GROWTH = Threshold(
    0.25,
    "Of the time itself. Clocks, neighbours and other inputs move a time from hour to hour, more slowly than a few "
    "reference windows can show.",
)
WEIGHT = Threshold(0.05, "Of the step: who would change something for less than a twentieth of the job's time?")
CLEAR = Threshold(
    0.6,
    "Confidence from which one window is enough to say that a verdict has changed. Nearer to a tie (0.5) the label "
    "flips with the noise, and a second window has to agree.",
)
REFERENCE_WINDOWS = 5
"""The first so many after the last change are what later ones are measured against. They stay, so that what creeps
up by a percent a day is said once it has added up, where a running mean would creep along."""
LEAST_REFERENCE = 3
"""Fewer tell nothing of the noise between windows, and the first of a job carries its warm-up."""
AGREEING = 2
"""Windows in a row that differ, on the same side. On a busy host one window in a few has a thread that waited for a
core in the middle of an operator."""
SAID_AT_ONCE = 5
"""Of one window; when everything has changed the largest tell it."""
STEP = {"the step", "the profiled step"}
"""The one where it is known, else the other."""
WATCHED = 40
"""The largest times of a window: what lies behind them weighs less than a twentieth."""

SINCE: dict[VerdictLabel, str] = {
    "input-bound": "the loop waits for input",
    "sync-bound": "the device runs dry because the host waits for it",
    "overhead-bound": "the device waits for the host to launch its work",
    "copy-bound": "copies between host and device take the time",
    "communication-bound": "communication with other ranks takes the time",
    "compute-bound": "the device works all the time, mostly on arithmetic",
    "memory-bound": "the device works all the time, mostly on moving data through its memory",
    "device-bound": "the device works all the time",
    "cpu-bound": "the step is the host's own work",
}


@dataclass(frozen=True)
class Change:
    """Something that is not as it was."""

    step: int
    """Of the first window that shows it."""
    text: str
    """`since step 12,000 the loop waits for input (input-bound; before: compute-bound)`"""
    label: VerdictLabel | None = None
    """The new verdict, where it is that which has changed."""


class _Sample(NamedTuple):
    """Times of one step in one window, µs, and how far its steps lie apart."""

    times: dict[str, float]
    step_us: float
    noise: float
    """Relative standard deviation of the step times."""


@dataclass
class _Watch:
    """The reference of one time."""

    values: list[float] = field(default_factory=list)
    noises: list[float] = field(default_factory=list)
    differing: list[tuple[int, float, float]] = field(default_factory=list)
    """The windows since the last one that did not differ: step, value, noise."""

    def add(self, value: float, noise: float) -> None:
        if len(self.values) < REFERENCE_WINDOWS:
            self.values.append(value)
            self.noises.append(noise)

    def differs(self, step: int, value: float, noise: float, step_us: float) -> bool:
        """Whether this window and those before it agree that the time is no longer what it was."""
        off = value - self.level
        small = max(GROWTH.value * self.level, WEIGHT.value * step_us)
        if len(self.values) < LEAST_REFERENCE or abs(off) <= small or abs(off) <= self.spread(noise):
            self.differing.clear()
            return False
        if self.differing and (self.differing[-1][1] > self.level) != (off > 0):
            self.differing.clear()
        self.differing.append((step, value, noise))
        return len(self.differing) >= AGREEING

    @property
    def level(self) -> float:
        return statistics.median(self.values) if self.values else 0.0

    def spread(self, noise: float) -> float:
        """How far from the level a value may lie by chance, µs."""
        within = max([*self.noises, noise]) * self.level
        return max(SIGMAS.value * within, SIGMAS.value * statistics.stdev(self.values))


class Changes:
    """Watches verdicts and times over a run's windows, which come in the order of their steps."""

    def __init__(self) -> None:
        self._label: VerdictLabel | None = None
        self._doubted: tuple[VerdictLabel, int] | None = None
        self._watches: dict[str, _Watch] = {}
        self._windows = 0

    def take(self, report: WindowReport, step: int, *, comparable: bool = True) -> list[Change]:
        """What the window changes.

        Args:
            comparable: Its times were taken under the same options as the others'.
        """
        changes = list(self._verdict(report, step))
        if comparable and report.window.steps:
            changes += self._times(_sample(report), step)
        return changes

    def _verdict(self, report: WindowReport, step: int) -> Iterator[Change]:
        label, before = report.verdict.label, self._label
        if label == "undetermined" or label == before:
            self._doubted = None if label == before else self._doubted
            return
        doubted, self._doubted = self._doubted, (label, step)
        agreed = doubted is not None and doubted[0] == label
        if before is not None and report.verdict.confidence < CLEAR.value and not agreed:
            return
        self._label, self._doubted = label, None
        if before is not None:
            since = doubted[1] if doubted is not None and agreed else step
            yield Change(since, f"since step {since:,} {SINCE[label]} ({label}; before: {before})", label)

    def _times(self, sample: _Sample, step: int) -> list[Change]:
        found: list[tuple[float, Change]] = []
        self._windows += 1
        for name in dict.fromkeys([*sample.times, *(self._watches.keys() - STEP)]):
            now = sample.times.get(name, 0.0)
            watch = self._watches.get(name) or self._new_watch(name)
            self._watches[name] = watch
            if watch.differs(step, now, sample.noise, sample.step_us):
                since = watch.differing[0][0]
                settled = statistics.mean(value for _, value, _ in watch.differing)
                change = Change(since, _sentence(name, since, watch.level, settled))
                found.append((abs(settled - watch.level), change))
                self._watches[name] = _Watch(*map(list, zip(*((v, n) for _, v, n in watch.differing), strict=True)))
            elif not watch.differing:
                watch.add(now, sample.noise)
                if not now and (not watch.level or len(watch.values) == REFERENCE_WINDOWS):
                    # Names that come and go, as one for each epoch, must not add up.
                    del self._watches[name]
        found.sort(key=lambda item: -item[0])
        changes = [change for _, change in found[:SAID_AT_ONCE]]
        if len(found) > SAID_AT_ONCE:
            changes.append(Change(step, f"since step {step:,} {len(found) - SAID_AT_ONCE} more times differ"))
        return changes

    def _new_watch(self, name: str) -> _Watch:
        """A phase or an operator that is new took no time before."""
        before = 0 if name in STEP else min(self._windows - 1, REFERENCE_WINDOWS)
        return _Watch([0.0] * before, [0.0] * before)


def _sentence(name: str, step: int, level: float, now: float) -> str:
    if not level:
        return f"since step {step:,} there is {name}: {duration(now)} a step"
    if not now:
        return f"since step {step:,} {name} is gone ({duration(level)} a step before)"
    ratio = now / level
    size = f"{ratio:.3g} times the" if ratio >= 2 else f"{100 * abs(ratio - 1):.0f} % {'more' if ratio > 1 else 'less'}"
    return f"since step {step:,} {name} takes {size} time: {duration(level)} → {duration(now)} a step"


def _sample(report: WindowReport) -> _Sample:
    """The step itself, the phases by the host's time, and the largest operators by self time."""
    profiled = report.step_time.profiled_median_us or 0.0
    steps = max(report.window.steps, 1)
    unprofiled = report.step_time.unprofiled_median_us
    times = {"the profiled step": profiled} if unprofiled is None else {"the step": unprofiled}
    times |= {f"phase {_name(phase.name)}": phase.host_us / steps for phase in parts_of_step(report)}
    operators = operator_times(report)
    largest = sorted(operators, key=lambda name: -operators[name])[:WATCHED]
    times |= {_name(name): operators[name] for name in largest}
    return _Sample(times, profiled, step_noise(report))


def _name(name: str) -> str:
    return shorten(printable(name), 80)
