"""What has changed since earlier windows of a run, and since when: what is worth a sentence in the log.

A window is a sample of a few steps, so two of them differ though nothing has changed. Every threshold stands
here, with its reason, and each is measured against the noise of the windows' own steps.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from harness.trace.compare.noise import spread
from harness.trace.figures import HasSteps, is_unprofiled, operator_times, parts_of_step, step_us
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
WATCHED = 40
"""The largest times of a window: what lies behind them weighs less than a twentieth."""


class Watched(NamedTuple):
    """A time that is watched."""

    kind: Literal["step", "profiled step", "phase", "operator"]
    name: str = ""
    """Of the phase or the operator."""


STEP = {Watched("step"), Watched("profiled step")}
"""The one where it is known, else the other."""


@dataclass(frozen=True, kw_only=True)
class NewVerdict:
    """The verdict is another one."""

    step: int
    """Of the first window that shows it."""
    label: VerdictLabel
    before: VerdictLabel


@dataclass(frozen=True, kw_only=True)
class NewTime:
    """A time of the step is no longer what it was."""

    step: int
    """Of the first window that shows it."""
    what: Watched
    before_us: float
    """The level that it had; 0 for what was not there."""
    now_us: float
    """0 for what is gone."""


@dataclass(frozen=True, kw_only=True)
class FurtherTimes:
    """More times have changed in one window than are told one by one."""

    step: int
    count: int


Change = NewVerdict | NewTime | FurtherTimes
"""Something that is not as it was; :func:`harness.report.words.since` says it."""


class _Sample(NamedTuple):
    """Times of one step in one window, µs, and how far its steps lie apart."""

    times: dict[Watched, float]
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
        self._watches: dict[Watched, _Watch] = {}
        self._windows = 0

    def take(self, report: WindowReport, step: int) -> list[Change]:
        """What the window changes. Its times count where the schedule recorded it: others may have other options."""
        changes: list[Change] = list(self._verdict(report, step))
        if report.window.trigger in (None, "schedule") and report.window.steps:
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
            yield NewVerdict(step=since, label=label, before=before)

    def _times(self, sample: _Sample, step: int) -> list[Change]:
        found: list[NewTime] = []
        self._windows += 1
        for what in dict.fromkeys([*sample.times, *(self._watches.keys() - STEP)]):
            now = sample.times.get(what, 0.0)
            watch = self._watches.get(what) or self._new_watch(what)
            self._watches[what] = watch
            if watch.differs(step, now, sample.noise, sample.step_us):
                since = watch.differing[0][0]
                settled = statistics.mean(value for _, value, _ in watch.differing)
                found.append(NewTime(step=since, what=what, before_us=watch.level, now_us=settled))
                self._watches[what] = _Watch(*map(list, zip(*((v, n) for _, v, n in watch.differing), strict=True)))
            elif not watch.differing:
                watch.add(now, sample.noise)
                if not now and (not watch.level or len(watch.values) == REFERENCE_WINDOWS):
                    # Names that come and go, as one for each epoch, must not add up.
                    del self._watches[what]
        found.sort(key=lambda change: -abs(change.now_us - change.before_us))
        changes: list[Change] = list(found[:SAID_AT_ONCE])
        if len(found) > SAID_AT_ONCE:
            changes.append(FurtherTimes(step=step, count=len(found) - SAID_AT_ONCE))
        return changes

    def _new_watch(self, what: Watched) -> _Watch:
        """A phase or an operator that is new took no time before."""
        before = 0 if what in STEP else min(self._windows - 1, REFERENCE_WINDOWS)
        return _Watch([0.0] * before, [0.0] * before)


def _sample(report: WindowReport) -> _Sample:
    """The step itself, the phases by the host's time, and the largest operators by self time."""
    steps = max(report.window.steps, 1)
    step = Watched("step" if is_unprofiled(report.step_time) else "profiled step")
    times = {step: step_us(report.step_time) or 0.0}
    times |= {Watched("phase", phase.name): phase.host_us / steps for phase in parts_of_step(report)}
    operators = operator_times(report)
    largest = sorted(operators, key=lambda name: -operators[name])[:WATCHED]
    times |= {Watched("operator", name): operators[name] for name in largest}
    return _Sample(times, report.step_time.profiled_median_us or 0.0, _noise(report))


def _noise(report: HasSteps) -> float:
    """How far the steps of a window lie apart: the standard deviation of their durations over the median."""
    median = report.step_time.profiled_median_us
    return spread([step.duration_us for step in report.steps]) / median if median else 0.0
