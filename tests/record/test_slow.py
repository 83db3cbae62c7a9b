"""Steps that are slow, on a clock of the test's own and in a real loop."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from harness.publish import PublishedWindow
from harness.record import Profiler, Schedule
from harness.record.slow import KEPT, LEAST, RENEW, SlowSteps


def notices(durations: Iterable[float], **settings: float) -> list[int]:
    """The steps after which something is said."""
    now = 0.0
    slow = SlowSteps(settings.get("factor", 3.0), every_s=settings.get("every_s", 0.0), clock=lambda: now)
    found = []
    for step, duration in enumerate(durations):
        slow.begin()
        now += duration
        if slow.end() is not None:
            found.append(step)
    return found


def test_three_slow_steps_in_a_row_are_said_after_the_third() -> None:
    assert notices([1.0] * 50 + [3.5] * 3 + [1.0] * 50) == [52]


@pytest.mark.parametrize(
    "durations",
    [
        pytest.param([1.0] * 50 + [9.0, 9.0, 1.0] * 20, id="never three in a row"),
        pytest.param([1.0] * 50 + [2.9] * 50, id="not slow enough"),
        pytest.param([9.0] * (LEAST - 1) + [30.0] * 3, id="before the pace is known"),
        pytest.param([1.0 * 1.01**step for step in range(800)], id="slower by and by"),
    ],
)
def test_nothing_is_said_of(durations: list[float]) -> None:
    assert notices(durations) == []


def test_what_stays_slow_is_said_once_and_becomes_the_pace() -> None:
    assert notices([1.0] * 50 + [5.0] * 200 + [20.0] * 3) == [52, 252]


def test_notices_keep_their_distance() -> None:
    episode = [1.0] * (KEPT + RENEW) + [9.0] * 3
    assert len(notices(episode * 6)) == 6
    assert len(notices(episode * 6, every_s=300.0)) == 3


@pytest.mark.parametrize(("factor", "steps"), [(1.0, 3), (float("nan"), 3), (2.0, 0)])
def test_numbers_that_cannot_be_are_refused(factor: float, steps: int) -> None:
    with pytest.raises(ValueError, match="factor must be more than 1"):
        SlowSteps(factor, steps=steps)


def test_a_slow_loop_is_recorded_while_it_is_slow_with_the_cause(tmp_path: Path) -> None:
    found: list[PublishedWindow] = []
    with Profiler(
        tmp_path / "logs",
        "run",
        Schedule(wait=10**9, warmup=1, active=2),
        on_window=found.append,
        slow=SlowSteps(20.0, steps=3),
    ) as profiler:
        for step in range(60):
            time.sleep(0.3 if step >= 40 else 0.002)
            profiler.step()
    (window,) = found
    assert window.first_step == 44  # steps 40, 41, 42 are slow, 43 warms up
    assert window.unprofiled_step_us == pytest.approx(300e3, rel=0.5)
    assert window.report is not None
    assert window.report.window.trigger == "slow"
    assert window.report.window.cause is not None
    assert window.report.window.cause.startswith("3 steps in a row took ")
