"""The profiler in a loop of one's own: which steps it records, and what of it is visible when."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.record import Profiler, PublishedWindow, Schedule, TraceOptions, span
from tests import reading
from tests.launch import tree

CPU = TraceOptions(activities=("cpu",))
RUN = "mine/first"


def train(
    profiler: Profiler, steps: range, *, on_step: Callable[[int], object] = lambda step: None, size: int = 8
) -> None:
    """A loop of one's own: some torch operators a step, in a span."""
    x = torch.ones(size, size)
    with profiler:
        for step in steps:
            with profiler.span("forward"):
                x = (x @ x).clamp(-1, 1)
            on_step(step)
            profiler.step()


def record(logdir: Path, schedule: Schedule | None, steps: range, **more: Any) -> dict[str, list[int]]:
    """Train with a profiler of this schedule; the recorded steps by window."""
    train(Profiler(logdir, RUN, schedule, CPU, first_step=steps.start), steps, **more)
    return reading.recorded(logdir / RUN)


def metadata(window: Path) -> dict[str, Any]:
    found = reading.trace(window)["harness"]
    return json.loads(found) if isinstance(found, str) else found


def test_it_works_in_anybodys_loop_with_a_dozen_lines(logdir: Path) -> None:
    with Profiler(logdir, "my_job", Schedule(wait=4, warmup=1, active=2)) as profiler:
        for _ in range(15):
            with profiler.span("forward"):
                torch.ones(8, 8) @ torch.ones(8, 8)
            profiler.step()

    assert reading.recorded(logdir / "my_job") == {"window_00000005": [5, 6], "window_00000012": [12, 13]}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule(wait=3, warmup=2, active=2), {5: [5, 6], 12: [12, 13], 19: [19, 20], 26: [26, 27]}),
        (Schedule(wait=3, warmup=2, active=2, repeat=2), {5: [5, 6], 12: [12, 13]}),
        (Schedule(wait=8, warmup=1, active=1, skip_first=4), {13: [13], 23: [23]}),
        (Schedule(wait=8, warmup=1, active=1, skip_first=4, skip_first_wait=True), {5: [5], 15: [15], 25: [25]}),
        (Schedule(wait=0, warmup=1, active=9), {1: range(1, 10), 11: range(11, 20), 21: range(21, 30)}),
        (Schedule(wait=7, warmup=0, active=3), {7: [7, 8, 9], 17: [17, 18, 19], 27: [27, 28, 29]}),
        (Schedule(wait=0, warmup=0, active=10), {0: range(10), 10: range(10, 20), 20: range(20, 30)}),
        (Schedule(wait=0, warmup=0, active=1, repeat=3), {0: [0], 1: [1], 2: [2]}),
        (Schedule(wait=40, warmup=2, active=2), {}),
        (None, {}),
    ],
    ids=["periodic", "repeat", "skip", "no first wait", "no wait", "no warm-up", "neither", "single", "never", "off"],
)
def test_a_window_holds_exactly_the_steps_that_its_schedule_names(
    schedule: Schedule | None, expected: dict[int, Any], logdir: Path
) -> None:
    assert record(logdir, schedule, range(30)) == {
        f"window_{first:08d}": list(steps) for first, steps in expected.items()
    }


def test_nothing_but_complete_windows_is_ever_visible_in_the_logdir(logdir: Path) -> None:
    seen: dict[str, set[tuple[tuple[str, int], ...]]] = {}
    strange: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for path in tree(logdir) if logdir.is_dir() else ():
                ours = path.startswith((f"{RUN}/profile/window_", f"{RUN}/.trigger."))
                if not ours and not f"{RUN}/profile".startswith(path):
                    strange.add(path)
            for window in (logdir / RUN).glob("profile/*"):
                files = tuple(sorted((file.name, file.stat().st_size) for file in window.iterdir()))
                seen.setdefault(window.name, set()).add(files)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        record(logdir, Schedule(wait=1, warmup=1, active=8, repeat=5), range(52), size=64)
    finally:
        over.set()
        watcher.join()

    assert not strange
    assert len(seen) == 5
    for name, sights in seen.items():
        assert len(sights) == 1, f"{name} changed while it was visible: {sights}"
        assert reading.steps(logdir / RUN / "profile" / name)


def test_windows_are_staged_beside_the_logdir_and_the_folder_is_gone_afterwards(logdir: Path) -> None:
    staging = logdir.parent / ".logs.staging"
    there = []
    record(
        logdir, Schedule(wait=1, warmup=1, active=1), range(9), on_step=lambda _: there.append((staging / RUN).is_dir())
    )

    assert all(there)
    assert tree(logdir.parent)[0] == "logs"
    assert not staging.exists()


def test_staging_of_another_run_that_is_still_recording_stays(logdir: Path) -> None:
    other = Profiler(logdir, "mine/second", Schedule(wait=1, warmup=1, active=1), CPU).__enter__()
    record(logdir, Schedule(wait=1, warmup=1, active=1), range(3))

    assert (logdir.parent / ".logs.staging" / "mine" / "second").is_dir()
    other.close()
    assert not (logdir.parent / ".logs.staging").exists()


def test_the_trace_says_what_the_harness_knows(logdir: Path) -> None:
    record(logdir, Schedule(wait=12, warmup=2, active=3, repeat=1), range(20))

    found = metadata(logdir / RUN / "profile" / "window_00000014")
    assert found["first_step"] == 14
    assert found["steps"] == 3
    assert found["partial"] is False
    assert found["unprofiled_step_us"] > 0
    assert found["schedule"] == {
        "wait": 12,
        "warmup": 2,
        "active": 3,
        "repeat": 1,
        "skip_first": 0,
        "skip_first_wait": False,
    }
    assert (found["rank"], found["world_size"]) == (0, 1)
    assert {"warmup_extra_us", "active_extra_us", "start_us", "begin_us"} <= set(found["cost"])
    assert all(isinstance(value, float) for value in found["cost"].values())


def test_a_window_without_unprofiled_steps_before_it_says_so(logdir: Path) -> None:
    record(logdir, Schedule(wait=0, warmup=1, active=2, repeat=1), range(4))

    found = metadata(logdir / RUN / "profile" / "window_00000001")
    assert found["unprofiled_step_us"] is None
    assert found["cost"]["active_extra_us"] is None


def test_the_callback_gets_each_window_once_it_is_there(logdir: Path) -> None:
    windows: list[PublishedWindow] = []

    def take(window: PublishedWindow) -> None:
        assert reading.steps(window.path)
        windows.append(window)

    train(Profiler(logdir, RUN, Schedule(wait=3, warmup=1, active=2), CPU, on_window=take), range(12))

    assert [(w.first_step, w.steps, w.partial) for w in windows] == [(4, 2, False), (10, 2, False)]
    assert [w.path for w in windows] == reading.windows(logdir / RUN)
    assert all(len(w.profiled_steps_us) == w.steps for w in windows)
    assert all(w.stalls_us["stop_us"] > 0 for w in windows)


def test_a_clock_that_steps_back_and_forth_moves_no_window(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true, steps = time.time, itertools.cycle([0.0, -86_400.0, 3_600.0, -7.0])
    monkeypatch.setattr(time, "time", lambda: true() + next(steps))
    monkeypatch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))

    assert record(logdir, Schedule(wait=3, warmup=1, active=2), range(24)) == {
        f"window_{first:08d}": [first, first + 1] for first in (4, 10, 16, 22)
    }


def test_a_loop_that_ends_inside_a_window_leaves_it_as_partial(logdir: Path) -> None:
    windows = record(logdir, Schedule(wait=3, warmup=1, active=5), range(6))

    # The loop's last step() has opened the span of a step that never came.
    assert windows in ({"window_00000004": [4, 5]}, {"window_00000004": [4, 5, 6]})
    found = metadata(logdir / RUN / "profile" / "window_00000004")
    assert found["partial"] is True
    assert found["steps"] == 2


@pytest.mark.parametrize("steps", [3, 4, 5], ids=["waiting", "warming up", "where recording starts"])
def test_a_loop_that_ends_before_a_step_is_recorded_leaves_nothing(steps: int, logdir: Path) -> None:
    assert record(logdir, Schedule(wait=3, warmup=2, active=2), range(steps)) == {}
    assert tree(logdir) == []
    assert not (logdir.parent / ".logs.staging").exists()


def test_a_loop_that_raises_inside_a_window_leaves_it_as_partial_and_the_error_passes(logdir: Path) -> None:
    def fail(step: int) -> None:
        if step == 6:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        record(logdir, Schedule(wait=3, warmup=1, active=5), range(20), on_step=fail)

    found = metadata(logdir / RUN / "profile" / "window_00000004")
    assert (found["partial"], found["steps"]) == (True, 2)
    assert {4, 5} <= set(reading.steps(logdir / RUN / "profile" / "window_00000004"))


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (4, {8: [8, 9], 17: [17, 18]}),
        (6, {8: [8, 9], 17: [17, 18]}),
        (7, {8: [8, 9], 17: [17, 18]}),
        (8, {17: [17, 18]}),
        (9, {17: [17, 18]}),
        (10, {17: [17, 18]}),
    ],
    ids=["waiting", "first warm-up step", "warming up", "recording starts", "recording", "just after"],
)
def test_a_job_that_begins_inside_a_window_waits_for_the_next(
    first: int, expected: dict[int, list[int]], logdir: Path
) -> None:
    schedule = Schedule(wait=5, warmup=2, active=2, skip_first=1)
    assert record(logdir, schedule, range(first, 20)) == {
        f"window_{step:08d}": steps for step, steps in expected.items()
    }


def test_a_window_that_is_there_already_is_never_touched(logdir: Path) -> None:
    schedule = Schedule(wait=3, warmup=1, active=2)
    record(logdir, schedule, range(6))
    (window,) = reading.windows(logdir / RUN)
    before = {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [window, *window.iterdir()]}

    assert list(record(logdir, schedule, range(2, 12))) == ["window_00000004", "window_00000010"]
    assert before == {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [window, *window.iterdir()]}


def test_what_a_killed_job_left_in_staging_is_cleared(logdir: Path) -> None:
    left = logdir.parent / ".logs.staging" / RUN / "window_00000004"
    left.mkdir(parents=True)
    (left / "host_0.1.pt.trace.json").write_text('{"traceEvents": [')

    assert record(logdir, Schedule(wait=3, warmup=1, active=2), range(7)) == {"window_00000004": [4, 5]}
    assert not (logdir.parent / ".logs.staging").exists()


def test_spans_are_in_the_trace_of_every_recorded_step(logdir: Path) -> None:
    record(logdir, Schedule(wait=3, warmup=2, active=3, repeat=1), range(12))
    found = reading.trace(logdir / RUN / "profile" / "window_00000005")
    assert reading.names(found, "user_annotation").count("forward") == 3


def test_spans_are_recorded_by_nobody_outside_a_window(logdir: Path) -> None:
    x = torch.ones(8, 8)
    profiler = Profiler(logdir, RUN, Schedule(wait=1000, warmup=1, active=1), CPU)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs, profiler:
        for _ in range(3):
            with profiler.span("forward"), span("loss"):
                x @ x
            profiler.step()

    names = {event.key for event in theirs.key_averages()}
    assert "aten::mm" in names
    assert not names & {"forward", "loss"}


def test_spans_are_off_again_after_a_window(logdir: Path) -> None:
    record(logdir, Schedule(wait=1, warmup=1, active=1, repeat=1), range(4))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs, span("later"):
        torch.ones(2) + 1
    assert "later" not in {event.key for event in theirs.key_averages()}


def test_spans_are_off_again_after_a_window_that_was_cut_short(logdir: Path) -> None:
    record(logdir, Schedule(wait=1, warmup=1, active=9), range(5))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as theirs, span("later"):
        torch.ones(2) + 1
    assert "later" not in {event.key for event in theirs.key_averages()}


def test_options_reach_torch(logdir: Path) -> None:
    options = TraceOptions(activities=("cpu",), record_shapes=True, profile_memory=True, with_stack=True)
    train(Profiler(logdir, RUN, Schedule(wait=1, warmup=1, active=1, repeat=1), options), range(4))
    found = reading.trace(logdir / RUN / "profile" / "window_00000002")
    products = [event for event in found["traceEvents"] if event.get("name") == "aten::mm"]
    assert products[0]["args"]["Input Dims"][:2] == [[8, 8], [8, 8]]
    assert any(event.get("name") == "[memory]" for event in found["traceEvents"])
    assert any(event.get("cat") == "python_function" for event in found["traceEvents"])


@pytest.mark.parametrize("run", ["", "../up", "a/../b", "/abs", "a/", ".", "  ", "...", "a/ /b"])
def test_a_run_name_that_is_no_path_below_the_logdir_is_refused(run: str, logdir: Path) -> None:
    with pytest.raises(ValueError, match="only letters"):
        Profiler(logdir, run, Schedule(wait=1, warmup=1, active=1))
    assert tree(logdir.parent) == []


@pytest.mark.parametrize(
    ("run", "cleaned"),
    [
        ("my job", "my-job"),
        ("a[0.1]", "a-0.1"),
        ("lr=[1e-3, 1e-4]/x", "lr=-1e-3,-1e-4/x"),
        ("Übung 1", "Ubung-1"),
        ("실험", "run-b59531d3"),
        ("x" * 300, "x" * 191 + "-1b432d13"),
        ("a\nb\\c", "a-b-c"),
        ("plain-", "plain-"),
    ],
)
def test_a_run_name_that_would_break_the_plugin_is_cleaned(
    run: str, cleaned: str, logdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "harness"):
        train(Profiler(logdir, run, Schedule(wait=1, warmup=1, active=1, repeat=1), CPU), range(4))
    assert reading.recorded(logdir / cleaned) == {"window_00000002": [2]}
    assert [message.split(" is written as ")[-1].split(":")[0] for message in caplog.messages] == (
        [cleaned] if cleaned != run else []
    )


@pytest.mark.parametrize(
    ("activities", "message"), [(("cpu", "gpu"), "unknown activities.*gpu"), ((), "activities|CUDA")]
)
def test_activities_that_cannot_be_are_refused(activities: tuple[str, ...], message: str, logdir: Path) -> None:
    with pytest.raises(ValueError, match=message):
        Profiler(logdir, RUN, Schedule(wait=1, warmup=1, active=1), TraceOptions(activities=activities))


def test_a_full_disk_costs_its_window_only(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    logdir = small_disk / "logs"
    logdir.mkdir()
    filler = small_disk / "filler"

    def fill(step: int) -> None:
        if step == 3:
            room = shutil.disk_usage(small_disk).free
            filler.write_bytes(b"x" * (room - 8192))
        if step == 10:
            filler.unlink()

    with caplog.at_level(logging.WARNING, "harness"):
        windows = record(logdir, Schedule(wait=3, warmup=1, active=4), range(24), on_step=fill)

    assert windows == {"window_00000012": [12, 13, 14, 15], "window_00000020": [20, 21, 22, 23]}
    (warning,) = caplog.messages
    assert "step 8" in warning
    assert "training goes on" in warning
    assert tree(small_disk) == tree(logdir.parent)
    assert not (small_disk / ".logs.staging").exists()


def test_a_trace_that_could_only_be_written_in_part_never_becomes_visible(
    logdir: Path, file_size_limit: Callable[[int], AbstractContextManager[None]], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "harness"), file_size_limit(2048):
        assert record(logdir, Schedule(wait=3, warmup=1, active=4, repeat=1), range(10)) == {}
    assert len(caplog.messages) == 1
    assert not (logdir.parent / ".logs.staging").exists()


def profiling(x: torch.Tensor) -> torch.profiler.profile:
    """Somebody else's profiler, recording."""
    theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    theirs.start()
    x + 1
    return theirs


def test_torchs_profiler_running_already_costs_windows_never_the_job(
    logdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = profiling(torch.ones(2))
    done = []
    try:
        with caplog.at_level(logging.WARNING, "harness"):
            windows = record(logdir, Schedule(wait=1, warmup=1, active=1), range(30), on_step=done.append)
    finally:
        theirs.stop()

    assert done == list(range(30))
    assert windows == {}
    assert caplog.messages == ["step 1: no window: another profiler of torch is running"], "said once, and no failure"
    assert "aten::mm" in {event.key for event in theirs.key_averages()}, "the other profiler was disturbed"


def test_after_three_windows_lost_in_a_row_torchs_profiler_is_left_alone(
    logdir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def break_staging(step: int) -> None:
        if step == 0:
            (logdir.parent / ".logs.staging" / RUN).rmdir()
            (logdir.parent / ".logs.staging" / RUN).write_text("in the way")
        if step == 20:
            (logdir.parent / ".logs.staging" / RUN).unlink()

    done = []
    with caplog.at_level(logging.WARNING, "harness"):
        windows = record(
            logdir,
            Schedule(wait=1, warmup=1, active=1),
            range(30),
            on_step=lambda step: (break_staging(step), done.append(step)),
        )

    assert done == list(range(30))
    assert windows == {}
    assert ["no more windows" in message for message in caplog.messages] == [False, False, True]


def test_windows_come_again_once_the_other_profiler_is_over(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    theirs = profiling(torch.ones(2))

    def end_theirs(step: int) -> None:
        if step == 7:
            theirs.stop()

    with caplog.at_level(logging.WARNING, "harness"):
        windows = record(logdir, Schedule(wait=3, warmup=1, active=1, repeat=4), range(22), on_step=end_theirs)

    assert windows == {"window_00000009": [9], "window_00000014": [14], "window_00000019": [19]}
    assert len(caplog.messages) == 1


def test_failures_count_in_a_row_only(
    logdir: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = torch.profiler.profile.export_chrome_trace

    def fail(self: torch.profiler.profile, path: str) -> None:
        raise RuntimeError("torch cannot")

    def disturb(step: int) -> None:
        # Every other window is lost: 4, 14, 24, 34, 44.
        monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", fail if step % 10 < 6 else export)

    with caplog.at_level(logging.WARNING, "harness"):
        windows = record(logdir, Schedule(wait=3, warmup=1, active=1), range(50), on_step=disturb)

    assert list(windows) == [f"window_{step:08d}" for step in (9, 19, 29, 39, 49)]
    assert len(caplog.messages) == 5
    assert not any("no more windows" in message for message in caplog.messages)


def test_a_callback_that_fails_costs_nothing_but_a_warning(logdir: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(window: PublishedWindow) -> None:
        raise ValueError("mine")

    with caplog.at_level(logging.WARNING, "harness"):
        train(Profiler(logdir, RUN, Schedule(wait=1, warmup=1, active=1, repeat=1), CPU, on_window=fail), range(6))
    assert reading.recorded(logdir / RUN) == {"window_00000002": [2]}
    assert "mine" in caplog.text


def test_time_between_end_step_and_begin_step_is_no_part_of_a_step(logdir: Path) -> None:
    windows: list[PublishedWindow] = []
    schedule = Schedule(wait=12, warmup=1, active=3, repeat=1)
    x = torch.ones(8, 8)
    with Profiler(logdir, RUN, schedule, CPU, on_window=windows.append) as profiler:
        for _ in range(20):
            x @ x
            profiler.end_step()
            time.sleep(0.02)
            profiler.begin_step()
    (window,) = windows
    assert window.unprofiled_step_us is not None
    assert window.unprofiled_step_us < 15_000
    assert all(duration < 15_000 for duration in window.profiled_steps_us)


def test_a_logdir_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Profiler(tmp_path / "file" / "logs", RUN, Schedule(wait=1, warmup=1, active=1), CPU)
