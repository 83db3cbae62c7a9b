"""What differs between two sets of windows, and what of it is more than noise.

Every figure is of one step, so sets of other numbers of steps compare. Its value is the median over the windows, and
windows are the samples: the steps of one share what the machine does at that moment, and are no samples of the run. How
far windows lie apart is measured where there are several, and expected from how far their steps lie apart where there
is one (`APART`); in between both count, each by its degrees of freedom (Smyth 2004, "Linear models and empirical Bayes
methods", a moderated variance). Runs differ besides (`RUNS`). A figure scatters as the whole does that it is a part of,
the step's duration, the host's time or the device's, and a small one more in proportion, as independent pieces do.
Whether two values differ is Welch's test on them, at a level that Holm's procedure keeps for all figures of one kind
together; and a difference has to be worth its name (`SMALLEST`, `WEIGHT`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec

from harness.trace.compare.groups import (
    COME_AND_GO,
    GROUPS,
    Figure,
    Figures,
    Found,
    Group,
    Unit,
    Whole,
    figures_of,
    of_devices,
    of_each_step,
    of_steps,
    whole,
)
from harness.trace.compare.noise import MEDIAN, Difference, Estimate, difference, holm, spread, variance
from harness.trace.figures import HasSteps, step_us
from harness.trace.schema import VerdictLabel, WindowReport
from harness.trace.thresholds import Threshold

COMPARISON_VERSION = 1
CONFIDENCE = 0.95
SMALLEST = Threshold(
    0.02,
    "Of the figure itself. Two runs of one program on one machine differ by a percent or two in clocks and placement, "
    "which a few windows cannot show.",
)
WEIGHT = Threshold(0.002, "Of the step: a difference of less is not worth a row, however certain.")
APART = Threshold(
    3.0,
    "Windows of one run lie further apart than steps within a window do, which share what the machine does at that "
    "moment: 0.5 to 8 times as far, 3 in the middle, on an H200 and on shared CPUs.",
)
BELIEF = Threshold(
    2,
    "Degrees of freedom, as many as three windows have: APART says no more than that. Of one window it is all that is "
    "known of the noise; the more windows there are, the less it counts.",
)
RUNS = Threshold(
    0.5,
    "As far as windows of one run lie apart, runs of one job do, which no number of windows makes smaller: a neighbour "
    "that comes or goes, heat and clocks stay for minutes, so windows that follow each other share them.",
)
MORE = "record more windows (profiler.wait=15 profiler.max_overhead=null: one in 20 steps)"
"""The remedy for noise that is not known well enough."""

Outcome = Literal["same", "more", "less", "new", "gone", "unknown"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure, before and after; times are of one step, or of one sample where that was asked for."""

    group: Group
    name: str
    unit: Unit
    before: float | None
    """None where it is not there."""
    after: float | None
    change: float | None
    """After over before, less one; None where there is nothing before, or less: an operator may free memory."""
    low: float | None
    high: float | None
    """Ends of the 95 % interval of the change; None where the noise is not known."""
    outcome: Outcome
    """`same`: within the noise, or too small. `unknown`: one step alone has no noise to compare with."""
    noise: float | None
    """Standard error of the difference, relative to the value before."""

    @property
    def more(self) -> float:
        """Absolute, in the unit."""
        return (self.after or 0.0) - (self.before or 0.0)

    @property
    def is_change(self) -> bool:
        """Whether it is more than noise, and worth its name."""
        return self.outcome not in ("same", "unknown")


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two sets, in words."""

    name: str
    windows: int
    steps: int
    torch_version: str | None
    device: str | None
    world_size: int
    verdict: VerdictLabel
    """Of most windows, and of the newest of those that are as many."""
    step_us: float | None
    per_second: float | None = None
    """Throughput that the run's manifest tells, in :attr:`unit`."""
    unit: str | None = None
    per_step: float | None = None
    """Samples, or whatever the unit is, of one step of a rank."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of two sets, in groups, the largest change first, real ones before noise."""

    schema_version: int = COMPARISON_VERSION
    before: Side
    after: Side
    rows: list[Row]
    per_sample: bool = False
    """Times are of one sample, not of one step."""
    warnings: list[str] = []


def compare(
    before: Sequence[WindowReport],
    after: Sequence[WindowReport],
    *,
    names: tuple[str, str] = ("before", "after"),
    samples: tuple[float, float] = (1.0, 1.0),
    groups: Sequence[Group] = GROUPS,
) -> Comparison:
    """Set side by side what two sets of windows found. Each holds at least one window.

    samples: of a step on each side, by which times are divided, so that other batch sizes compare.
    groups: the figures that are asked for; what is called a change in one of them does not depend on the others.
    """
    sides = _side(names[0], before), _side(names[1], after)
    rows: list[Row] = []
    for group in groups:
        rows += _rows(group, figures_of(group, before, after), before, after, samples)
    return Comparison(before=sides[0], after=sides[1], rows=rows, warnings=list(_warnings(before, after, rows)))


def step_rows(before: Sequence[HasSteps], after: Sequence[HasSteps]) -> list[Row]:
    """The rows of :func:`compare` on the step, of findings that need hold no more."""
    return _rows("step", of_steps(before, after), before, after, (1.0, 1.0))


def device_rows(before: Sequence[HasSteps], after: Sequence[HasSteps]) -> list[Row]:
    """The same on where the device's time goes."""
    return _rows("device", of_devices(before, after), before, after, (1.0, 1.0))


def regressions(found: Comparison, limit: float) -> list[Row]:
    """Step time and peak memory that are more by over `limit` (a fraction), beyond noise. The step with the profiler
    counts only where the one without it is not known: it depends on what is recorded."""
    steps, memory = ([row for row in found.rows if row.group == group] for group in ("step", "memory"))
    grown = [row for row in (*steps[:1], *memory) if row.outcome == "more"]
    return [row for row in grown if row.change is not None and row.change > limit]


def undecided(found: Comparison, limit: float) -> list[Row]:
    """The step, where it may take more by over `limit` and nothing is sure: its interval goes further, or is not
    known."""
    steps = [row for row in found.rows if row.group == "step"]
    return [row for row in steps[:1] if row.outcome != "more" and (row.high is None or row.high > limit)]


def culprits(found: Comparison, most: int = 5) -> list[Row]:
    """Phases, operators and kernels whose time has grown, or that are new, largest first."""
    grown = [
        row for row in found.rows if row.group in ("phase", "operator", "kernel") and row.outcome in ("more", "new")
    ]
    grown.sort(key=lambda row: -row.more)
    return grown[:most]


def _side(name: str, windows: Sequence[WindowReport]) -> Side:
    newest = windows[-1]
    device = next((one.name for one in newest.devices), None)
    labels = [one.verdict.label for one in reversed(windows)]
    known = [us for one in windows if (us := step_us(one.step_time))]
    return Side(
        name=name,
        windows=len(windows),
        steps=sum(one.window.steps for one in windows),
        torch_version=newest.torch_version,
        device=device,
        world_size=newest.world_size,
        verdict=max(labels, key=labels.count),
        step_us=statistics.median(known) if known else None,
    )


def _warnings(before: Sequence[WindowReport], after: Sequence[WindowReport], rows: Iterable[Row]) -> Iterator[str]:
    if _shapes(before[-1]) != _shapes(after[-1]) and _shapes(before[-1]) and _shapes(after[-1]):
        yield "the operators' input shapes differ: a step is not the same work on both sides"
    if {bool(one.device) for one in before} != {bool(one.device) for one in after}:
        yield "one side has a device and the other has none: operators are compared by their time on the host"
    alone = []
    for what, windows in (("before", before), ("after", after)):
        if sum(one.window.steps for one in windows) < 2:
            yield f"{what} has one step or none: no noise can be told from it, so no time is called a change"
        if len(windows) == 1:
            alone.append(what)
        if any(one.window.lost_events or one.window.launches_without_work for one in windows):
            yield f"{what} has windows that lost events: their sums lack them"
    step = next((row for row in rows if row.group == "step"), None)
    if alone and step is not None and step.high is not None and step.change is not None:
        yield (
            f"{' and '.join(alone)} {'have' if len(alone) > 1 else 'has'} one window: how far windows lie apart is "
            f"guessed from its steps, and a step that takes up to {100 * (step.high - step.change):.0f} % more or less "
            f"counts as noise; {MORE}"
        )


def _shapes(report: WindowReport) -> set[tuple[str, str]]:
    return {(row.name, str(row.input_shapes)) for row in report.operators_by_shape}


def _rows(
    group: Group,
    figures: Figures[Found],
    before: Sequence[Found],
    after: Sequence[Found],
    samples: tuple[float, float],
) -> list[Row]:
    found: list[tuple[str, Figure[Found], Estimate, Estimate, Difference]] = []
    parts = {figure.part_of for figure in figures.values()}
    scatters = {part: _scatter(part, (*before, *after)) for part in parts}
    wholes = [
        {part: statistics.median(whole(one, part) for one in windows) for part in parts} for windows in (before, after)
    ]
    for name, figure in figures.items():
        part = figure.part_of
        then, now = (
            _over(_estimate(figure, windows, scatters[part], of[part]), count if figure.unit == "us" else 1.0)
            for windows, of, count in zip((before, after), wholes, samples, strict=True)
        )
        if not math.isfinite(then.value) or not math.isfinite(now.value):
            continue
        found.append((name, figure, then, now, difference(then, now, CONFIDENCE)))
    steps = [us / samples[0] for one in before if (us := step_us(one.step_time))]
    least = WEIGHT.value * min(steps, default=0.0)
    # What weighs nothing on either side is not asked about, and makes no other figure less certain.
    asked = [
        place
        for place, (_, figure, then, now, _) in enumerate(found)
        if figure.unit != "us" or max(then.value, now.value) >= least
    ]
    real = dict(zip(asked, holm([found[place][-1].p for place in asked], 1 - CONFIDENCE), strict=True))
    rows = [
        _row(group, name, figure, then, now, apart, real=real.get(place, False), least=least)
        for place, (name, figure, then, now, apart) in enumerate(found)
    ]
    if group == "step":
        return rows
    return sorted(rows, key=lambda row: (row.outcome in ("same", "unknown"), -abs(row.more)))


def _row(
    group: Group,
    name: str,
    figure: Figure[Found],
    then: Estimate,
    now: Estimate,
    apart: Difference,
    *,
    real: bool,
    least: float,
) -> Row:
    known = math.isfinite(apart.low)
    base = then.value
    notable = abs(apart.value) >= max(SMALLEST.value * abs(base), least if figure.unit == "us" else 0.0)
    outcome: Outcome = "same"
    if not known:
        outcome = "unknown"
    elif real and notable:
        outcome = "more" if apart.value > 0 else "less"
        if not base:
            outcome = "new"
        elif not now.value and group in COME_AND_GO:
            outcome = "gone"
    return Row(
        group=group,
        name=name,
        unit=figure.unit,
        before=then.value,
        after=now.value,
        change=apart.value / base if base > 0 else None,
        low=max(apart.low / base, -1.0) if base > 0 and known else None,  # nothing takes less than no time
        high=apart.high / base if base > 0 and known else None,
        outcome=outcome,
        noise=math.hypot(then.error, now.error) / base if base > 0 and known else None,
    )


def _estimate(figure: Figure[Found], windows: Sequence[Found], scatter: float, of_step: float) -> Estimate:
    """The median over windows, its error from what is expected of such windows and from how far these lie apart.

    scatter: from step to step, of the whole that the figure is part of, relative; 0 where it is not known.
    of_step: that whole, in a step.
    """
    values = [figure.value(one) for one in windows]
    value, count = statistics.median(values), len(values)
    apart = variance(values)
    steps = sum(one.window.steps for one in windows)
    if figure.part_of is None:
        expected, belief = 0.0, 0.0
    elif steps < 2:
        return Estimate(value, 0.0, 0)
    else:
        # Idle time is what is left of the step, and scatters as far as the step.
        common, own = (of_step, of_step) if figure.part_of == "rest" else (value, math.sqrt(value * of_step))
        expected = scatter**2 * ((APART.value * common) ** 2 + own**2)
        belief = min(BELIEF.value, steps - count) if scatter else 0.0
    freedom = belief + count - 1
    both = (belief * expected + (count - 1) * apart) / freedom if freedom else 0.0
    error = math.sqrt(both * ((MEDIAN**2 if count > 2 else 1.0) / count + RUNS.value**2))
    return Estimate(value, error, max(freedom, 1))


def _over(found: Estimate, count: float) -> Estimate:
    return Estimate(found.value / count, found.error / count, found.freedom)


def _scatter(part_of: Whole | None, windows: Iterable[HasSteps]) -> float:
    """How far the steps of a window lie apart, relative: of all windows together, for a few steps tell little."""
    known = [spread(of_each_step(one, part_of)) / all_of_it for one in windows if (all_of_it := whole(one, part_of))]
    return math.sqrt(statistics.fmean(one**2 for one in known)) if known else 0.0
