"""What is called a change between two sets of windows, and what is not."""

import math
import random
import statistics
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from harness.trace import WindowReport, analyze, read
from harness.trace.compare.comparison import APART, Comparison, Row, compare, culprits, regressions, undecided
from harness.trace.schema import Step
from tests.trace.conftest import recorded

GPU = "eager_transformer_mem"


def report(name: str = GPU) -> WindowReport:
    return analyze(read(recorded(name)))


BASE = report()


def window(
    scale: float = 1.0, *, noise: Sequence[float] = (), operator: str | None = None, by: float = 1.0
) -> WindowReport:
    """The recorded window with every time scaled, the steps at these relative distances, and one operator scaled on
    its own."""
    median = BASE.step_time.profiled_median_us
    assert median is not None
    noise = noise or [0.0] * 5
    step = BASE.steps[0]
    steps = [
        Step(
            number=number,
            start_us=step.start_us,
            duration_us=median * scale * (1 + off),
            device_busy_us=step.device_busy_us * scale * (1 + off),
            host_us=step.host_us * scale * (1 + off),
        )
        for number, off in enumerate(noise)
    ]
    operators = [
        replace(row, self_device_time_us=row.self_device_time_us * scale * (by if row.name == operator else 1.0))
        for row in BASE.operators
    ]
    kernels = [
        replace(row, total_us=row.total_us * scale * (by if row.operator == operator else 1.0)) for row in BASE.kernels
    ]
    return replace(
        BASE,
        steps=steps,
        window=replace(BASE.window, steps=len(steps)),
        step_time=replace(BASE.step_time, profiled_median_us=median * scale, unprofiled_median_us=None),
        operators=operators,
        kernels=kernels,
    )


def run(
    scale: float = 1.0, *, noise: Sequence[float] = (-0.01, 0.005, 0.0, -0.004, 0.01), **how: object
) -> list[WindowReport]:
    """Four windows that lie a percent apart."""
    return [window(scale * off, noise=noise, **how) for off in (0.99, 1.0, 1.01, 1.0)]  # type: ignore[arg-type]


def row(found: Comparison, group: str, name: str) -> Row:
    (one,) = [row for row in found.rows if (row.group, row.name) == (group, name)]
    return one


QUIET = (-0.01, 0.005, 0.0, -0.004, 0.01)
LOUD = (-0.3, 0.25, 0.0, -0.2, 0.3)


def test_a_set_against_itself_has_no_change() -> None:
    windows = [window(noise=QUIET), window(noise=QUIET)]
    found = compare(windows, windows)
    assert {one.outcome for one in found.rows} == {"same"}
    assert not regressions(found, 0.0001)
    assert not culprits(found)


def test_a_change_beyond_the_noise_is_one() -> None:
    found = compare(run(1.0), run(1.1))
    step = row(found, "step", "step, profiled")
    assert step.outcome == "more"
    assert step.change == pytest.approx(0.1)
    assert step.low is not None
    assert step.high is not None
    assert 0 < step.low < 0.1 < step.high < 0.15
    assert [one.name for one in regressions(found, 0.05)] == ["step, profiled"]
    assert not regressions(found, 0.15)
    assert not undecided(found, 0.05)
    assert not found.warnings


def test_one_window_a_side_is_sure_of_large_changes_alone() -> None:
    """Its steps agree to a percent, which says little of the window before or after."""
    found = compare([window(noise=QUIET)], [window(1.06, noise=QUIET)])
    step = row(found, "step", "step, profiled")
    assert step.outcome == "same"
    assert step.high is not None
    assert not regressions(found, 0.05)
    assert undecided(found, 0.05) == [step]
    assert not undecided(found, step.high + 0.001)
    (said,) = found.warnings
    assert "before and after have one window" in said
    assert all(row.low >= -1 for row in found.rows if row.low is not None), "nothing takes less than no time"
    assert "profiler.wait" in said
    assert regressions(compare([window(noise=QUIET)], [window(1.3, noise=QUIET)]), 0.05)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_what_windows_differ_by_on_their_own_is_seldom_a_change(count: int) -> None:
    """Windows that lie three times as far apart as their steps; then the same with half as much again."""
    draw = random.Random(count)

    def some(scale: float) -> list[WindowReport]:
        return [
            window(scale * (1 + draw.gauss(0, 0.03)), noise=[draw.gauss(0, 0.01) for _ in range(3)])
            for _ in range(count)
        ]

    kept = [regressions(compare(some(1.0), some(1.0)), 0.02) for _ in range(80)]
    assert sum(map(bool, kept)) <= 8
    found = [regressions(compare(some(1.0), some(1.5)), 0.02) for _ in range(20)]
    assert sum(map(bool, found)) >= (8 if count == 1 else 18)


def test_noise_is_no_change() -> None:
    found = compare([window(noise=LOUD)], [window(1.1, noise=LOUD)])
    assert row(found, "step", "step, profiled").outcome == "same"
    assert not regressions(found, 0.05)


def test_windows_that_differ_among_themselves_are_noise_too() -> None:
    """Every window's own steps agree to a percent, and the windows do not."""
    before = [window(scale, noise=QUIET) for scale in (0.9, 1.0, 1.15)]
    after = [window(scale, noise=QUIET) for scale in (1.0, 1.1, 1.25)]
    assert row(compare(before, after), "step", "step, profiled").outcome == "same"
    settled = [window(scale, noise=QUIET) for scale in (1.5, 1.51, 1.49, 1.5)]
    assert row(compare(before, settled), "step", "step, profiled").outcome == "more"


def test_a_certain_change_of_a_percent_is_too_small() -> None:
    tiny = (-0.0001, 0.0001, 0.0, 0.0)
    assert row(compare([window(noise=tiny)], [window(1.01, noise=tiny)]), "step", "step, profiled").outcome == "same"
    assert row(compare([window(noise=tiny)], [window(1.03, noise=tiny)]), "step", "step, profiled").outcome == "more"


def test_one_step_alone_tells_no_noise() -> None:
    found = compare([window(noise=[0.0])], [window(2.0, noise=[0.0])])
    assert row(found, "step", "step, profiled").outcome == "unknown"
    assert not regressions(found, 0.05)
    assert any("one step" in warning for warning in found.warnings)


def test_the_operator_that_has_grown_is_the_culprit() -> None:
    largest = max(
        (one for one in BASE.operators if one.device_type == "cpu" and not one.is_annotation),
        key=lambda one: one.self_device_time_us,
    )
    found = compare([window(noise=QUIET)], [window(1.0, noise=QUIET, operator=largest.name, by=1.5)])
    grown = row(found, "operator", largest.name)
    assert (grown.outcome, grown.change) == ("more", pytest.approx(0.5))
    assert largest.name in [one.name for one in culprits(found) if one.group == "operator"]
    others = [one for one in found.rows if one.group == "operator" and one.name != largest.name]
    assert {one.outcome for one in others} == {"same"}
    assert next(one for one in found.rows if one.group == "operator") == grown  # ranked first


def test_operators_that_came_and_went_are_told() -> None:
    renamed = [replace(one, name=f"{one.name}_v2") for one in BASE.operators]
    found = compare([window(noise=QUIET)], [replace(window(noise=QUIET), operators=renamed)])
    assert row(found, "operator", "aten::addmm").outcome == "gone"
    assert row(found, "operator", "aten::addmm_v2").outcome == "new"
    assert row(found, "operator", "aten::addmm_v2").change is None


def test_small_parts_scatter_more_in_proportion() -> None:
    found = compare([window(noise=QUIET)], [window(1.0, noise=QUIET)])
    rows = [one for one in found.rows if one.group == "kernel" and one.noise is not None and one.before]
    largest = max(rows, key=lambda one: one.before or 0)
    smallest = min(rows, key=lambda one: one.before or 0)
    assert largest.noise is not None
    assert smallest.noise is not None
    whole = statistics.median(step.device_busy_us for step in BASE.steps)
    expected = [math.sqrt(APART.value**2 + whole / (one.before or 1)) for one in (smallest, largest)]
    assert smallest.noise / largest.noise == pytest.approx(expected[0] / expected[1], rel=0.05)


def test_peak_memory_that_grows_is_a_regression() -> None:
    memory = BASE.memory
    assert memory is not None
    more = replace(window(noise=LOUD), memory=replace(memory, peak_allocated_bytes=memory.peak_allocated_bytes * 2))
    found = compare([window(noise=LOUD)], [more])
    assert [one.name for one in regressions(found, 0.05)] == ["peak allocated"]


def test_the_unprofiled_step_is_compared_where_both_sides_know_it() -> None:
    sides = [
        [replace(window(noise=QUIET), step_time=replace(BASE.step_time, unprofiled_median_us=us))] for us in (1e4, 2e4)
    ]
    assert row(compare(*sides), "step", "step").change == pytest.approx(1.0)
    assert not [one for one in compare(sides[0], [window(noise=QUIET)]).rows if one.name == "step"]


@pytest.mark.parametrize("other", ["matmul_64", "copy_bound", "ddp_straggler_rank1.rank0", "lab5_cnn", "cuda_graph"])
def test_any_two_traces_can_be_set_side_by_side(other: str) -> None:
    found = compare([BASE], [report(other)])
    assert found.after.verdict
    assert all(one.outcome != "more" or (one.change or 0) > 0 for one in found.rows)


def test_work_that_is_not_the_same_is_said_so() -> None:
    found = compare([report("matmul_64")], [report("matmul_512")])
    assert any("shapes differ" in warning for warning in found.warnings)
    assert not compare([BASE, BASE], [BASE, BASE]).warnings
