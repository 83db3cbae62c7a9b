"""A process that records is none the worse for it: real scripts, their exit statuses, their own data, their windows.

On a machine with a CUDA device they work, record and profile there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import reading
from tests.launch import Ended, Launcher, tree, wait_until

PRELUDE = """
import json, os, sys, threading, time
import torch
from torch.profiler import ProfilerActivity, profile
from harness.record import Profiler, Schedule, span

torch.set_num_threads(1)
CUDA = torch.cuda.is_available()
ACTIVITIES = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])]

def work(times=3, device="cuda" if CUDA else "cpu"):
    for _ in range(times):
        torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)

def products(prof):
    "How often the operator is in the user's own trace, by torch's own export."
    prof.export_chrome_trace("own.json")
    events = json.load(open("own.json"))["traceEvents"]
    return sum(event.get("name") == "aten::mm" for event in events)

def say(**facts):
    print(json.dumps(facts), flush=True)

def new(run="a", *, wait=2, warmup=1, active=4, **more):
    return Profiler("tb", run, Schedule(wait=wait, warmup=warmup, active=active), max_overhead=None, **more)
"""


def run(harness: Launcher, folder: Path, code: str, *, status: int = 0) -> tuple[list[dict[str, Any]], Ended]:
    """What the script has said, once it has ended as it should."""
    done = harness.script(PRELUDE + code, cwd=folder)
    assert done.status == status, done.text
    return [json.loads(line) for line in done.out.splitlines() if line.startswith("{")], done


def windows(folder: Path, name: str = "a") -> dict[str, list[int]]:
    """The steps that stand in each published window, and that it says so."""
    found = {}
    for path in reading.windows(folder / "tb" / name):
        report = json.loads((path / "window.json").read_bytes())
        assert [step["number"] for step in report["steps"]] == list(
            range(report["window"]["first_step"], report["window"]["first_step"] + report["window"]["steps"])
        )
        found[path.name.removeprefix("window_").lstrip("0")] = [step["number"] for step in report["steps"]]
    return found


def wait_for_windows(folder: Path, count: int, name: str = "a") -> dict[str, list[int]]:
    """Those that a publisher which has outlived its job brings."""
    wait_until(lambda: len(reading.windows(folder / "tb" / name)) >= count, 60, "the window")
    return windows(folder, name)


THEIRS = {
    "torch.profiler": "profile(activities=ACTIVITIES)",
    "torch.autograd": "torch.autograd.profiler.profile()",
    "with stacks and memory": "profile(activities=ACTIVITIES, with_stack=True, profile_memory=True)",
}


@pytest.mark.parametrize("theirs", THEIRS.values(), ids=THEIRS)
@pytest.mark.parametrize(("at", "whole"), [(2, 0), (3, 0), (5, 2)], ids=["warm-up", "first step", "third step"])
def test_a_profiler_of_the_users_inside_a_window_is_whole_and_the_window_partial(
    theirs: str, at: int, whole: int, harness: Launcher, tmp_path: Path
) -> None:
    (said,), _ = run(
        harness,
        tmp_path,
        f"""
from torch.autograd import profiler as before
way_in = before.profile._prepare_trace
with new() as profiler:
    for step in range(15):
        work()
        if step == {at}:
            with {theirs} as prof:
                work(7)
            own = products(prof)
        profiler.step()
say(own=own, as_before=before.profile._prepare_trace is way_in)
""",
    )
    assert said == {"own": 7, "as_before": True}
    found = windows(tmp_path)
    assert found.get("3", []) == list(range(3, 3 + whole))
    assert {name: steps for name, steps in found.items() if name != "3"} == {"10": [10, 11, 12, 13]}
    if at > 2 and whole:
        report = json.loads((tmp_path / "tb/a/profile/window_00000003/window.json").read_bytes())
        assert report["window"]["partial"]
        assert any("another profiler of torch has begun" in warning for warning in report["window"]["warnings"])


@pytest.mark.parametrize(
    "theirs",
    ["torch.autograd.profiler.emit_itt()", "torch.autograd.profiler_legacy.profile()"],
    ids=["itt", "legacy"],
)
def test_other_kinds_of_profilers_begin_inside_a_window_as_outside(
    theirs: str, harness: Launcher, tmp_path: Path
) -> None:
    run(
        harness,
        tmp_path,
        f"""
import torch.autograd.profiler_legacy
with new() as profiler:
    for step in range(15):
        work()
        if step == 5:
            try:
                with {theirs}:
                    work()
            except RuntimeError as error:  # a build without it
                assert "already enabled" not in str(error), error
        profiler.step()
""",
    )
    assert windows(tmp_path) == {"3": [3, 4], "10": [10, 11, 12, 13]}


def test_a_scheduled_profiler_that_warms_up_is_let_be(harness: Launcher, tmp_path: Path) -> None:
    """Ours would take its place without a word, and its export would end the process."""
    (said,), _ = run(
        harness,
        tmp_path,
        """
from torch.profiler import schedule
own = []
theirs = profile(activities=ACTIVITIES, schedule=schedule(wait=1, warmup=5, active=2, repeat=1),
                 on_trace_ready=lambda prof: own.append(products(prof)))
with theirs, new(wait=3, warmup=1, active=2) as profiler:
    for step in range(30):
        work()
        profiler.step()
        theirs.step()
say(own=own, passed_over=profiler.passed_over)
""",
    )
    assert said["own"] == [6]
    assert said["passed_over"] == {"other profiler": 1}
    # Theirs marks its steps as torch does, with the same numbers.
    assert windows(tmp_path) == {str(first): [first, first + 1] for first in (10, 16, 22, 28)}


def test_a_profiler_in_another_thread_waits_for_the_window_to_end(harness: Launcher, tmp_path: Path) -> None:
    (said,), _ = run(
        harness,
        tmp_path,
        """
own = []
def theirs():
    with profile(activities=ACTIVITIES) as prof:
        work(5)
    own.append(products(prof))
with new(active=400) as profiler:
    for step in range(8):
        work()
        if step == 5:
            thread = threading.Thread(target=theirs)
            thread.start()
            while thread.is_alive():
                work()
        profiler.step()
say(own=own)
""",
    )
    assert said == {"own": [5]}
    assert windows(tmp_path) == {"3": [3, 4]}


def test_a_profiler_that_a_busy_thread_keeps_waiting_gets_an_error_and_the_window_goes_on(
    harness: Launcher, tmp_path: Path
) -> None:
    (said,), done = run(
        harness,
        tmp_path,
        """
import harness.record.process
harness.record.process.PATIENCE_S = 0.2
begun, tried = threading.Event(), threading.Event()
def loop():
    with new() as profiler:
        for step in range(15):
            work()
            if step == 4:
                begun.set()
                tried.wait()
            profiler.step()
thread = threading.Thread(target=loop)
thread.start()
begun.wait()
try:
    with profile(activities=ACTIVITIES):
        work()
except RuntimeError as error:
    say(error=str(error))
tried.set()
thread.join()
""",
    )
    assert "which has not ended it" in said["error"]
    assert "ends early" not in done.text
    assert windows(tmp_path) == {"3": [3, 4, 5, 6], "10": [10, 11, 12, 13]}


def test_two_profilers_on_the_same_steps_take_turns(harness: Launcher, tmp_path: Path) -> None:
    said, done = run(
        harness,
        tmp_path,
        """
import logging
logging.basicConfig()
with new("a", wait=2, warmup=1, active=2) as a, new("b", wait=2, warmup=1, active=2) as b:
    for _ in range(40):
        work()
        a.step()
        b.step()
say(a=a.passed_over, b=b.passed_over)
""",
    )
    a, b = windows(tmp_path, "a"), windows(tmp_path, "b")
    assert len(a) == len(b) == 4
    assert not set(a) & set(b)
    assert said == [{"a": {"other profiler": 4}, "b": {"other profiler": 4}}]
    assert "another Profiler of this process is recording" in done.text


ENDS = {
    "sys.exit": ("sys.exit(7)", 7),
    "an error": ("raise KeyError('mine')", 1),
    "the last line": ("", 0),
    "another thread's exit": (
        "threading.Thread(target=lambda: time.sleep(0.3)).start(); sys.exit(7)",
        7,
    ),
}


@pytest.mark.parametrize(("end", "status"), ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("entered", [True, False], ids=["entered", "not entered"])
def test_a_process_that_ends_while_it_records_keeps_its_status_and_the_window(
    end: str, status: int, entered: bool, harness: Launcher, tmp_path: Path
) -> None:
    run(
        harness,
        tmp_path,
        f"""
profiler = new()
if {entered}:
    profiler.__enter__()
for _ in range(5):
    work()
    profiler.step()
work()
{end}
""",
        status=status,
    )
    assert wait_for_windows(tmp_path, 1) == {"3": [3, 4]}


def test_a_thread_that_nobody_waits_for_may_record_when_the_process_ends(harness: Launcher, tmp_path: Path) -> None:
    run(
        harness,
        tmp_path,
        """
recording = threading.Event()
def loop():
    with new(active=1000) as profiler:
        for _ in range(5):
            work()
            profiler.step()
        recording.set()
        time.sleep(600)
threading.Thread(target=loop, daemon=True).start()
recording.wait()
sys.exit(7)
""",
        status=7,
    )


def test_a_thread_that_is_gone_may_have_left_a_window_when_the_process_ends(harness: Launcher, tmp_path: Path) -> None:
    run(
        harness,
        tmp_path,
        """
def loop():
    profiler = new(active=1000)
    profiler.__enter__()
    for _ in range(5):
        work()
        profiler.step()
thread = threading.Thread(target=loop)
thread.start()
thread.join()
sys.exit(7)
""",
        status=7,
    )


def test_a_window_that_a_thread_has_left_behind_costs_nobody_anything(harness: Launcher, tmp_path: Path) -> None:
    """torch leaves a recording to no other thread: to end it there is impossible, to export it ends the process."""
    run(
        harness,
        tmp_path,
        """
profiler = new("a", active=1000)
def loop():
    profiler.__enter__()
    for _ in range(5):
        work()
        profiler.step()
thread = threading.Thread(target=loop)
thread.start()
thread.join()
profiler.close()
with new("b") as another:
    for _ in range(15):
        work()
        another.step()
""",
    )
    if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14):
        # Before, torch begins no profiler any more in a process where one was left behind.
        assert windows(tmp_path, "b") == {"3": [3, 4, 5, 6], "10": [10, 11, 12, 13]}


def test_the_next_profiler_closes_one_that_was_abandoned(harness: Launcher, tmp_path: Path) -> None:
    """A cell of a notebook, interrupted within a window and run again, under the same name and under another."""
    run(
        harness,
        tmp_path,
        """
def cell(run, steps):
    profiler = new(run)
    profiler.__enter__()
    for _ in range(steps):
        work()
        profiler.step()
    return profiler
first = cell("a", 5)
second = cell("a", 5)
third = cell("c", 15)
third.close()
""",
    )
    assert wait_for_windows(tmp_path, 1, "a") == {"3": [3, 4]}
    assert wait_for_windows(tmp_path, 1, "a_2") == {"3": [3, 4]}
    assert windows(tmp_path, "c") == {"3": [3, 4, 5, 6], "10": [10, 11, 12, 13]}


CHILDREN = {"exit": ("sys.exit(5)", 5), "end": ("raise SystemExit", 0), "error": ("raise KeyError", 1)}


@pytest.mark.parametrize(("end", "status"), CHILDREN.values(), ids=CHILDREN)
@pytest.mark.parametrize("at", [1, 5, 8], ids=["before a window", "inside", "after"])
def test_a_forked_child_ends_as_it_would_and_leaves_its_parents_window_alone(
    end: str, status: int, at: int, harness: Launcher, tmp_path: Path
) -> None:
    said, done = run(
        harness,
        tmp_path,
        f"""
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
child = None
with new() as profiler:
    for step in range(15):
        work()
        if step == {at}:
            child = os.fork()
            if child == 0:
                work(50, 'cpu')
                before = resident()
                work(20_000, 'cpu')
                say(grown=resident() - before)
                for _ in range(3):
                    profiler.step()
                    with profiler.span("child"):
                        work(3, "cpu")
                {end}
            say(child=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        profiler.step()
""",
    )
    told = {key: value for line in said for key, value in line.items()}
    assert told["child"] == status, done.text
    assert told["grown"] < 8 * 2**20, "what the child does piles up in it"
    assert windows(tmp_path) == {"3": [3, 4, 5, 6], "10": [10, 11, 12, 13]}
    assert not (tmp_path / ".tb.staging").exists()


def test_workers_of_a_loader_forked_in_a_window_end_with_it(harness: Launcher, tmp_path: Path) -> None:
    run(
        harness,
        tmp_path,
        """
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(64.0))
steps = 0
with new() as profiler:
    for epoch in range(5):
        for batch in DataLoader(data, batch_size=16, num_workers=2, multiprocessing_context="fork"):
            work()
            profiler.step()
""",
    )
    assert windows(tmp_path) == {"3": [3, 4, 5, 6], "10": [10, 11, 12, 13], "17": [17, 18, 19]}


def test_the_environment_of_the_users_children_is_their_own(harness: Launcher, tmp_path: Path) -> None:
    (said,), done = run(
        harness,
        tmp_path,
        """
import subprocess
before = dict(os.environ)
with new() as profiler:
    for step in range(12):
        work()
        if step in (1, 4, 8):
            inside = subprocess.run(["env"], capture_output=True, text=True).stdout
            assert "KINETO" not in inside, inside
        profiler.step()
say(same=before == dict(os.environ))
""",
    )
    assert said == {"same": True}
    if not torch.cuda.is_available():
        assert "gpuGetDeviceCount" not in done.text
        assert "USDT" not in done.text


def test_a_forgotten_step_ends_the_window_before_it_fills_the_memory(harness: Launcher, tmp_path: Path) -> None:
    (said,), done = run(
        harness,
        tmp_path,
        """
import logging
logging.basicConfig()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
with new(max_trace_mib=256) as profiler:
    for _ in range(5):
        work()
        profiler.step()
    before, until = resident(), time.monotonic() + 60
    while profiler.in_window and time.monotonic() < until:
        work(1000)
    ended = not profiler.in_window
    for _ in range(20):
        profiler.step()
say(ended=ended)
""",
    )
    assert said == {"ended": True}
    assert "ends early, with 2 of its steps, as partial" in done.said
    assert "is step() called once a step?" in done.said
    assert windows(tmp_path)["3"] == [3, 4]


def test_a_span_in_compiled_code_compiles_nothing_again_where_a_window_begins(
    harness: Launcher, tmp_path: Path
) -> None:
    (said,), _ = run(
        harness,
        tmp_path,
        """
compiled = []
def backend(graph, inputs):
    compiled.append(step)
    return graph.forward
profiler = new()
@torch.compile(backend=backend)
def forward(x):
    with profiler.span("forward"):
        y = x * 2
    with span("loss"):
        return y.sum()
with profiler:
    for step in range(20):
        forward(torch.ones(4))
        profiler.step()
say(compiled=compiled)
""",
    )
    assert said == {"compiled": [0]}


def test_the_shared_case_of_a_loop_that_ends_in_a_window_holds_one_step(harness: Launcher, tmp_path: Path) -> None:
    run(
        harness,
        tmp_path,
        """
with new(wait=5, warmup=1, active=4) as profiler:
    for _ in range(7):
        work()
        profiler.step()
    time.sleep(0.5)
""",
    )
    assert windows(tmp_path) == {"6": [6]}
    report = json.loads((tmp_path / "tb/a/profile/window_00000006/window.json").read_bytes())
    assert report["window"]["steps"] == 1
    assert report["steps"][0]["duration_us"] < 400_000
    assert tree(tmp_path / ".tb.staging") == []
