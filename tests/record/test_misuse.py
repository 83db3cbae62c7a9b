"""What people do with a profiler that nobody meant: it works, or the log says what to do."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.record import Profiler, Schedule, TraceOptions
from harness.schedule import STEPS_AT_MOST
from tests import reading
from tests.launch import Launcher, wait_until

CPU = TraceOptions(activities=("cpu",))


def new(logdir: Path, run: str = "a", *, wait: int = 2, warmup: int = 1, active: int = 2, **more: Any) -> Profiler:
    return Profiler(logdir, run, Schedule(wait=wait, warmup=warmup, active=active), CPU, max_overhead=None, **more)


def loop(profiler: Profiler, steps: int) -> None:
    for _ in range(steps):
        torch.ones(4, 4) @ torch.ones(4, 4)
        profiler.step()


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno >= logging.WARNING]


def recorded(logdir: Path, run: str = "a") -> dict[str, list[int]]:
    return reading.recorded(logdir / run)


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "harness")


def test_a_loop_without_a_step_says_so(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with new(logdir):
        for _ in range(9):
            torch.ones(2) + 1
    (message,) = warned(caplog)
    assert "step() was never called" in message


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_loop_shorter_than_its_first_window_says_which_steps_that_would_have_recorded(
    steps: int, logdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with new(logdir) as profiler:
        loop(profiler, steps)
    (message,) = warned(caplog)
    assert f"the loop ended with step {steps - 1}" in message
    assert "recorded steps 3 to 4" in message


def test_a_loop_that_had_a_window_says_nothing(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with new(logdir) as profiler:
        loop(profiler, 7)
    assert warned(caplog) == []


def test_entering_twice_at_once_is_an_error_and_disturbs_nothing(logdir: Path) -> None:
    with new(logdir) as profiler:
        loop(profiler, 4)
        with pytest.raises(RuntimeError, match="entered already"):
            profiler.__enter__()
        loop(profiler, 3)
    assert recorded(logdir) == {"window_00000003": [3, 4]}


def test_entering_again_later_counts_on_under_the_same_name(logdir: Path) -> None:
    profiler = new(logdir)
    for _ in range(3):
        with profiler:
            loop(profiler, 5)
    assert recorded(logdir) == {f"window_{step:08d}": [step, step + 1] for step in (3, 8, 13)}


@pytest.mark.parametrize("said", [("step", "begin_step"), ("end_step", "step")], ids=["begun twice", "ended before"])
def test_a_step_of_which_more_is_said_than_meant_is_one(said: tuple[str, str], logdir: Path) -> None:
    with new(logdir) as profiler:
        for _ in range(12):
            torch.ones(2) + 1
            for method in said:
                getattr(profiler, method)()
    assert recorded(logdir) == {"window_00000003": [3, 4], "window_00000008": [8, 9]}


@pytest.mark.parametrize("entered", [True, False], ids=["with", "without"])
def test_a_disk_that_fails_between_making_and_entering_costs_the_windows_and_not_the_job(
    entered: bool, logdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    profiler = new(logdir)
    (logdir.parent / ".logs.staging").write_text("in the way")
    if entered:
        profiler.__enter__()
    loop(profiler, 12)
    profiler.close()
    assert recorded(logdir) == {}
    assert sum("there will be no windows" in message for message in warned(caplog)) == 1


def test_steps_whose_beginning_is_never_said_are_counted_and_whole(logdir: Path) -> None:
    with new(logdir) as profiler:
        for _ in range(12):
            torch.ones(2) + 1
            profiler.end_step()
            profiler.begin_step()
            profiler.end_step()
            profiler.begin_step()
    assert recorded(logdir)["window_00000003"] == [3, 4]


def test_without_with_it_records_and_says_how_it_is_meant(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    profiler = new(logdir)
    loop(profiler, 12)
    profiler.close()
    assert recorded(logdir) == {"window_00000003": [3, 4], "window_00000008": [8, 9]}
    (message,) = warned(caplog)
    assert "with Profiler(...)" in message


def test_closing_twice_or_unentered_leaves_nothing(logdir: Path) -> None:
    profiler = new(logdir)
    profiler.close()
    profiler.close()
    assert not logdir.exists()
    assert not (logdir.parent / ".logs.staging").exists()


def test_steps_after_the_end_cost_nothing(logdir: Path) -> None:
    with new(logdir) as profiler:
        loop(profiler, 6)
    loop(profiler, 20)
    assert list(recorded(logdir)) == ["window_00000003"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"wait": 2, "warmup": 1, "active": 2},
        {"wait": 0, "warmup": 1, "active": 2, "repeat": 1, "skip_first": 4},
        {"wait": 4, "warmup": 1, "active": 1, "skip_first": 1, "skip_first_wait": True},
    ],
    ids=["plain", "skip and repeat", "no first wait"],
)
def test_torchs_own_schedule_is_as_good(arguments: dict[str, Any], logdir: Path) -> None:
    for run, schedule in (("a", torch.profiler.schedule(**arguments)), ("b", Schedule(**arguments))):
        with Profiler(logdir, run, schedule, CPU, max_overhead=None) as profiler:
            loop(profiler, 12)
    assert recorded(logdir, "a") == recorded(logdir, "b") != {}


def test_another_function_is_no_schedule(logdir: Path) -> None:
    for wrong in (lambda step: torch.profiler.ProfilerAction.NONE, 5, {"wait": 1}):
        with pytest.raises(TypeError, match="Schedule"):
            Profiler(logdir, "a", wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["warmup", "active"])
def test_a_window_of_absurdly_many_steps_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field} must be at most"):
        Schedule(**{"wait": 1, "warmup": 1, "active": 1, field: 2**70})
    assert Schedule(**{"wait": 1, "warmup": 1, "active": 1, field: STEPS_AT_MOST})


def test_a_second_job_under_an_old_name_gets_one_of_its_own(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with new(logdir) as profiler:
            loop(profiler, 6)
    assert profiler.run == "a_3"
    for run in ("a", "a_2", "a_3"):
        assert recorded(logdir, run) == {"window_00000003": [3, 4]}
    assert "holds the windows of an earlier job" in caplog.text


def test_a_job_that_resumes_goes_on_under_its_own_name(logdir: Path) -> None:
    with new(logdir) as profiler:
        loop(profiler, 6)
    with new(logdir, first_step=6) as profiler:
        loop(profiler, 6)
    with new(logdir, resumes=True) as profiler:
        loop(profiler, 6)
    assert recorded(logdir) == {"window_00000003": [3, 4], "window_00000008": [8, 9]}
    assert [path.name for path in logdir.iterdir()] == ["a"]


def test_the_shared_case_of_a_job_resumed_in_the_warm_up_records_that_window(logdir: Path) -> None:
    with new(logdir, wait=4, warmup=2, active=4, first_step=15) as profiler:
        loop(profiler, 16)
    assert recorded(logdir) == {"window_00000016": [16, 17, 18, 19], "window_00000026": [26, 27, 28, 29]}
    assert profiler.passed_over == {}


def test_two_processes_under_one_name_have_a_run_each(harness: Launcher, tmp_path: Path) -> None:
    code = """
import logging, sys, time, torch
from pathlib import Path
from harness.record import Profiler, Schedule, TraceOptions
logging.basicConfig()
with Profiler("tb", "a", Schedule(wait=2, warmup=1, active=2), TraceOptions(activities=("cpu",)),
              max_overhead=None, first_step=int(sys.argv[1])) as profiler:
    Path(f"{sys.argv[2]}.there").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    for _ in range(17):
        torch.ones(4, 4) @ torch.ones(4, 4)
        profiler.step()
"""
    first = harness.start_script(code, "0", "first", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "first.there").exists() or not first.running, 60)
    # One that would go on with the run while the other one is in it, too.
    others = [
        harness.start_script(code, "0", "second", cwd=tmp_path),
        harness.start_script(code, "5", "third", cwd=tmp_path),
    ]
    wait_until(lambda: all((tmp_path / f"{name}.there").exists() for name in ("second", "third")), 60)
    (tmp_path / "go").touch()
    done = [each.wait() for each in (first, *others)]
    assert [each.status for each in done] == [0, 0, 0], [each.text for each in done]
    assert sorted(path.name for path in (tmp_path / "tb").iterdir()) == ["a", "a_2", "a_3"]
    steps = [sorted(recorded(tmp_path / "tb", run)) for run in ("a", "a_2", "a_3")]
    assert sorted(map(len, steps)) == [3, 3, 3]
    assert not any("tries again" in each.text for each in done)
    assert all("is another process's run" in each.text for each in done[1:])
    assert not (tmp_path / ".tb.staging").exists()


def test_the_environment_of_many_ranks_without_a_group_is_said(
    logdir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    for rank in ("0", "3"):
        monkeypatch.setenv("RANK", rank)
        with new(logdir) as profiler:
            loop(profiler, 7)
    assert recorded(logdir) == {"window_00000003": [3, 4]}, "not by every rank, each as rank 0"
    assert [path.name for path in logdir.iterdir()] == ["a"]
    (message,) = warned(caplog)
    assert "init_process_group" in message


@pytest.mark.parametrize("size", ["", "1", "many", "9" * 30])
def test_an_environment_without_ranks_is_none(
    size: str, logdir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with new(logdir) as profiler:
        loop(profiler, 7)
    assert recorded(logdir) == {"window_00000003": [3, 4]}
    assert warned(caplog) == []


def test_cycles_without_a_window_are_told_with_their_reasons(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([0.0] * 6 + [100.0] * 10_000)
    schedule = Schedule(wait=2, warmup=1, active=2)
    with Profiler(logdir, "a", schedule, CPU, max_overhead=1e-9, clock=lambda: next(clock)) as profiler:
        loop(profiler, 40)
    passed = profiler.passed_over
    assert set(passed) == {"budget"}
    assert passed["budget"] >= 6
    (said, in_all) = [message for message in caplog.messages if "window" in message]
    assert "max_overhead" in said, "once, not at every cycle"
    assert f"{passed['budget']} could not be paid for" in in_all


def test_cycles_without_a_window_after_the_last_one_are_told_too(harness: Launcher, logdir: Path) -> None:
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with new(logdir) as profiler:
        loop(profiler, 6)
        theirs.start()
        loop(profiler, 11)
        theirs.stop()
    assert list(recorded(logdir)) == ["window_00000003"]
    (row,) = json.loads(harness.run("runs", str(logdir), "--format", "json").out)
    assert row["passed_over"] == profiler.passed_over == {"other profiler": 3}


def test_a_run_and_its_report_say_how_many_cycles_had_no_window(harness: Launcher, logdir: Path) -> None:
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with new(logdir) as profiler:
        theirs.start()
        loop(profiler, 11)
        theirs.stop()
        loop(profiler, 6)
    said = "2 cycles without a window: 2 for another profiler in the process"
    assert said in harness.run("report", str(logdir / "a")).said
    assert said in harness.run("runs", str(logdir)).said
    (row,) = json.loads(harness.run("runs", str(logdir), "--format", "json").out)
    assert row["passed_over"] == {"other profiler": 2}


def test_windows_tell_of_the_cycles_before_them(logdir: Path) -> None:
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    with new(logdir) as profiler:
        theirs.start()
        loop(profiler, 11)
        theirs.stop()
        loop(profiler, 6)
    (window,) = reading.windows(logdir / "a")
    report = json.loads((window / "window.json").read_bytes())
    assert report["window"]["passed_over"] == {"other profiler": 2}
