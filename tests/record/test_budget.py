"""The overhead budget: what it counts, when it binds, what it means for the schedule."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import torch

from harness.publish import PublishedWindow
from harness.record import Profiler, Schedule, TraceOptions
from harness.record.budget import GRACE_S, RECOVERY_S, Account, OverheadBudget, account_of
from harness.trace import WindowReport
from tests import reading

CPU = TraceOptions(activities=("cpu",))
RUN = "mine/first"


@dataclass
class Clock:
    """A job's time, which passes when the test says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_short_job_is_not_held_to_it() -> None:
    clock = Clock()
    budget = OverheadBudget(0.01, clock=clock)
    budget.spend(30.0)
    clock.now = GRACE_S - 1
    assert budget.allows_a_window()
    clock.now = GRACE_S
    assert not budget.allows_a_window()


def test_the_next_window_waits_until_the_job_can_pay_for_it_too() -> None:
    clock = Clock()
    budget = OverheadBudget(0.01, clock=clock)
    budget.spend(3.0)
    budget.spend(1.0)
    clock.now = 499.0
    assert not budget.allows_a_window()
    clock.now = 500.0
    assert budget.allows_a_window()
    assert budget.overhead == pytest.approx(4 / 500)


def test_no_limit_allows_everything() -> None:
    clock = Clock()
    budget = OverheadBudget(None, clock=clock)
    budget.spend(1000.0)
    clock.now = 1001.0
    assert budget.allows_a_window()


def test_an_earlier_life_counts() -> None:
    clock = Clock(1e9)
    budget = OverheadBudget(0.01, Account(ran_s=1000.0, spent_s=50.0, latest_s=1.0), clock=clock)
    assert not budget.allows_a_window()
    assert budget.overhead == pytest.approx(0.05)
    clock.now += 4100
    assert budget.allows_a_window()


def job(logdir: Path, schedule: Schedule, steps: range, clock: Clock, step_s: float, limit: float) -> Profiler:
    """A loop whose every step takes ``step_s`` of the job's time, whatever it takes here."""
    profiler = Profiler(logdir, RUN, schedule, CPU, first_step=steps.start, max_overhead=limit, clock=clock)
    x = torch.ones(8, 8)
    with profiler:
        for _ in steps:
            x = (x @ x).clamp(-1, 1)
            clock.now += step_s
            profiler.step()
    return profiler


def windows_until(logdir: Path, schedule: Schedule, count: int) -> tuple[list[int], Profiler, int]:
    """The first steps of ``count`` windows of a job with ten seconds a step, its profiler, and how long it ran."""
    clock, x = Clock(), torch.ones(8, 8)
    profiler = Profiler(logdir, RUN, schedule, CPU, max_overhead=1e-5, clock=clock)
    firsts: list[int] = []
    step = 0
    with profiler:
        while len(firsts) < count and step < 300_000:
            x = (x @ x).clamp(-1, 1)
            if profiler.in_window and (not firsts or firsts[-1] != step):
                firsts.append(step)
            clock.now += 10.0
            step += 1
            profiler.step()
    return firsts, profiler, step


def test_cycles_pass_without_a_window_and_those_that_have_one_are_the_schedules_own(logdir: Path) -> None:
    firsts, profiler, steps = windows_until(logdir, Schedule(wait=4, warmup=0, active=1), 4)
    assert len(firsts) == 4
    assert firsts[0] == 4
    assert all((first - 4) % 5 == 0 for first in firsts)
    assert profiler.figures["profiler/skipped"] == (firsts[-1] - 4) // 5 + 1 - 4 > 0
    assert steps == firsts[-1] + 1
    assert [int(name.removeprefix("window_")) for name in reading.recorded(logdir / RUN)] == firsts


def test_repeat_counts_windows_and_not_the_cycles_that_passed_without_one(logdir: Path) -> None:
    started = time.perf_counter()
    firsts, profiler, steps = windows_until(logdir, Schedule(wait=4, warmup=0, active=1, repeat=2), 2)
    took_s = time.perf_counter() - started
    assert len(firsts) == 2
    assert profiler.figures["profiler/skipped"] > 0
    first, second = (reading.report(window, WindowReport).window for window in reading.windows(logdir / RUN))
    # The second one came once the job had paid for the first and for half of another, at 1e-5 of its time.
    assert 1.5 * (first.cost_us or 0) / 1e6 <= 1e-5 * 10.0 * firsts[1]
    # What the profiling has cost are its stalls at least, and all the time that there was at most.
    stalls_s = sum(sum((window.stalls_us or {}).values()) for window in (first, second)) / 1e6
    assert 0 < stalls_s <= profiler.figures["profiler/overhead"] * 10.0 * steps <= took_s


def test_a_resumed_job_knows_what_its_windows_have_cost(logdir: Path) -> None:
    schedule = Schedule(wait=13, warmup=1, active=1)
    job(logdir, schedule, range(30), Clock(), 1.0, 1.0)
    windows = reading.windows(logdir / RUN)
    assert len(windows) == 2
    reports = [msgspec.json.decode((path / "window.json").read_bytes(), type=WindowReport) for path in windows]
    account = account_of(logdir / RUN / "profile", 30)
    assert account.spent_s == pytest.approx(sum(report.window.cost_us or 0 for report in reports) / 1e6)
    assert account.latest_s == pytest.approx((reports[-1].window.cost_us or 0) / 1e6)
    assert account.ran_s > account.spent_s
    assert account_of(logdir / RUN / "profile", 20).spent_s == pytest.approx((reports[0].window.cost_us or 0) / 1e6)
    # So much in so short a time: the next windows wait, also in another process.
    resumed = job(logdir, schedule, range(30, 60), Clock(), 100.0, 1e-7)
    assert len(reading.windows(logdir / RUN)) == 2
    assert resumed.figures["profiler/overhead"] > 0


def test_a_resumed_job_goes_on_counting_towards_repeat(logdir: Path) -> None:
    schedule = Schedule(wait=3, warmup=1, active=1, repeat=3)
    clock = Clock()
    job(logdir, schedule, range(11), clock, 1.0, 1.0)
    assert len(reading.windows(logdir / RUN)) == 2
    # Cycles pass without a window, in a life that ends before it could record another.
    job(logdir, schedule, range(11, 31), Clock(), 100.0, 1e-9)
    assert len(reading.windows(logdir / RUN)) == 2
    job(logdir, schedule, range(31, 60), Clock(), 0.0, 1.0)
    assert len(reading.windows(logdir / RUN)) == 3


def test_a_short_job_records_all_that_its_schedule_names(logdir: Path) -> None:
    x = torch.ones(8, 8)
    seen: list[PublishedWindow] = []
    schedule = Schedule(wait=10, warmup=2, active=3, repeat=3)
    with Profiler(logdir, RUN, schedule, CPU, max_overhead=0.01, on_window=seen.append, clock=Clock()) as profiler:
        for _ in range(60):
            x @ x
            profiler.step()
    assert list(reading.recorded(logdir / RUN)) == [f"window_{step:08d}" for step in (12, 27, 42)]
    for window in seen:
        assert window.report is not None
        assert window.report.window.cost_us == window.cost_us >= window.stall_us > 0
        assert set(window.stalls_us) == {"start_us", "begin_us", "stop_us", "export_us"}
        assert all(value > 0 for value in window.stalls_us.values())


def test_a_debt_that_no_window_has_made_is_paid_within_hours() -> None:
    """As of a machine that slept for a day while a window was written."""
    clock = Clock()
    budget = OverheadBudget(0.01, clock=clock)
    clock.now = 1000.0
    budget.spend(1.0)
    budget.spend(86_400.0)
    assert not budget.allows_a_window()
    assert budget.overhead == pytest.approx(86_401 / 1000)
    clock.now += RECOVERY_S + 100 * 1.0
    assert budget.allows_a_window(), "the next one is not expected to cost a day"
    resumed = OverheadBudget(0.01, Account(ran_s=1000.0, spent_s=86_401.0, latest_s=86_400.0), clock=clock)
    assert resumed.wait_s <= 2 * RECOVERY_S


def test_what_a_window_costs_is_what_the_usual_ones_do() -> None:
    clock = Clock()
    budget = OverheadBudget(0.01, clock=clock)
    for cost in (1.0, 1.0, 1.0, 50.0):
        budget.spend(cost)
    clock.now = 100 * (53.0 + 1.0)
    assert budget.allows_a_window()


@pytest.mark.parametrize("active", [1, 2, 3, 5])
@pytest.mark.parametrize("slow", ["warm-up", "first", "last"])
def test_a_step_that_is_slow_for_a_reason_of_its_own_is_not_charged(active: int, slow: str, logdir: Path) -> None:
    """An evaluation, a recompilation, a slow batch: here half a second, in steps of a few ms."""
    windows: list[PublishedWindow] = []
    schedule = Schedule(wait=12, warmup=2, active=active, repeat=1)
    at = {"warm-up": 13, "first": 14, "last": 14 + active - 1}[slow]
    with Profiler(logdir, RUN, schedule, CPU, on_window=windows.append, max_overhead=0.01) as profiler:
        for step in range(14 + active + 2):
            time.sleep(0.5 if step == at else 0.002)
            profiler.step()
    (window,) = windows
    extra_us = window.cost_us - window.stall_us
    assert extra_us < 250_000, "the half second is on the profiler's account"
