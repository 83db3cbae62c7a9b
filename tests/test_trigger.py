"""``harness trigger`` from another process, against loops that run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from harness.commands import trigger
from harness.errors import UsageError
from harness.logdir.layout import ANSWER, REQUEST
from harness.logdir.request import Answer, new_request, place, read_answer
from harness.record import Profiler, Schedule
from harness.trace import read
from tests.launch import wait_until

NEVER = Schedule(wait=10**9, warmup=1, active=2)


class Loop:
    """A loop of somebody's own, in a thread, until it is told to stop."""

    def __init__(self, logdir: Path, schedule: Schedule | None) -> None:
        self.run = logdir / "run"
        self.steps = 0
        self._over = threading.Event()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._train, args=(logdir, schedule))

    def _train(self, logdir: Path, schedule: Schedule | None) -> None:
        with Profiler(logdir, "run", schedule) as profiler:
            self._began.set()
            while not self._over.is_set():
                torch.ones(8) + 1
                time.sleep(0.005)
                self.steps += 1
                profiler.step()

    def __enter__(self) -> Loop:
        self._thread.start()
        self._began.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def ask(run: Path, *, steps: int | None = None, with_stack: bool = False, memory: bool = False, s: float = 60) -> Path:
    return trigger.ask(run, steps=steps, with_stack=with_stack, memory=memory, timeout_s=s)


def facts(window: Path) -> dict[str, Any]:
    (path,) = window.glob("*.pt.trace.json*")
    found = read(path).harness
    assert found is not None
    return {"first_step": found.first_step, "steps": found.steps, "trigger": found.trigger, "partial": found.partial}


def test_the_command_records_a_window_of_a_loop_of_ones_own_and_prints_its_path(tmp_path: Path) -> None:
    with Loop(tmp_path / "logs", NEVER) as loop:
        asked_at = loop.steps
        done = subprocess.run(
            [sys.executable, "-c", "from harness.cli import main; main()", "trigger", str(loop.run), "--steps=4"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    window = Path(done.stdout.strip())
    found = facts(window)
    assert window.parent == loop.run / "profile"
    assert window.name == f"window_{found['first_step']:08d}"
    assert found == {"first_step": found["first_step"], "steps": 4, "trigger": "request", "partial": False}
    assert found["first_step"] > asked_at


def test_one_after_another_is_answered_with_what_each_asked_for(tmp_path: Path) -> None:
    with Loop(tmp_path / "logs", NEVER) as loop:
        plain = ask(loop.run)
        stacks = ask(loop.run, steps=3, with_stack=True, memory=True)
    assert facts(plain)["steps"] == NEVER.active
    assert facts(stacks)["steps"] == 3
    found = [json.dumps(read(next(path.glob("*.pt.trace.json*"))).categories) for path in (plain, stacks)]
    assert ["python_function" in text for text in found] == [False, True]
    assert ["cpu_instant_event" in text for text in found] == [False, True]


@pytest.mark.parametrize("steps", [0, -1, 2**70, 10_001])
def test_a_window_of_absurdly_many_steps_is_refused_by_command_and_job(steps: int, tmp_path: Path) -> None:
    with Loop(tmp_path / "logs", NEVER) as loop:
        with pytest.raises(UsageError, match="between 1 and 10,000"):
            ask(loop.run, steps=steps)
        if abs(steps) < 2**60:
            # By another version's command.
            request = new_request(steps=steps, with_stack=False, memory=False)
            assert place(loop.run, request)
            wait_until(lambda: read_answer(loop.run, request) is not None, 30)
            answer = read_answer(loop.run, request)
            assert answer is not None
            assert answer.state == "failed"
            assert "10,000" in str(answer.reason)
        taken = ask(loop.run, steps=2)
    assert facts(taken)["steps"] == 2


def test_windows_of_the_schedule_stay_where_they_are_and_none_overlaps(tmp_path: Path) -> None:
    schedule = Schedule(wait=45, warmup=2, active=3)
    with Loop(tmp_path / "logs", schedule) as loop:
        asked = [ask(loop.run, steps=6) for _ in range(3)]
        while loop.steps < 120:
            time.sleep(0.01)
    found = sorted(((facts(path)) for path in (loop.run / "profile").iterdir()), key=lambda one: one["first_step"])
    whole = [one for one in found if not one["partial"]]
    assert sum(one["trigger"] == "request" for one in whole) == len(asked)
    for one in whole:
        if one["trigger"] == "schedule":
            assert (one["first_step"] - 47) % 50 == 0
            assert one["steps"] == 3
    spans = [(one["first_step"], one["first_step"] + one["steps"]) for one in found]
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


def planned_in(run: Path) -> Answer | None:
    with suppress(FileNotFoundError):
        return msgspec.json.decode((run / ANSWER).read_bytes(), type=Answer)
    return None


@contextmanager
def refused(match: str) -> Iterator[None]:
    with pytest.raises(UsageError, match=match):
        yield


def test_a_run_that_cannot_be_asked_is_told_why(tmp_path: Path) -> None:
    with refused("is no run: there is no such directory"):
        ask(tmp_path / "nowhere")
    with refused("is no run, or its job has no profiler"):
        ask(tmp_path)
    with Loop(tmp_path / "logs", NEVER) as loop:
        ask(loop.run)
    with refused("is no run, or its job has no profiler"):
        ask(loop.run)


def test_a_job_that_was_killed_is_not_running(tmp_path: Path) -> None:
    program = (
        "import os; from harness.record import Profiler, Schedule\n"
        f"with Profiler({str(tmp_path / 'logs')!r}, 'run', Schedule(wait=10**9, warmup=1, active=1)): os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program], check=False)
    with refused("is not running: process [0-9]+, which listened there, has ended"):
        ask(tmp_path / "logs" / "run")


def test_a_request_that_nobody_answers_in_time_is_taken_back(tmp_path: Path) -> None:
    with Profiler(tmp_path / "logs", "run", NEVER):
        # The loop stands still, so the request is heard and never taken.
        with refused("after 3 s the job has not taken the request"):
            ask(tmp_path / "logs" / "run", s=3)
        assert not (tmp_path / "logs" / "run" / REQUEST).exists()


def test_a_second_request_does_not_push_the_first_one_out(tmp_path: Path) -> None:
    with Profiler(tmp_path / "logs", "run", NEVER):
        run = tmp_path / "logs" / "run"
        first = new_request(steps=1, with_stack=False, memory=False)
        deadline = time.monotonic() + 30
        # The first is heard, the second waits in its file, the third is refused.
        assert place(run, first)
        while (run / REQUEST).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        second = new_request(steps=2, with_stack=False, memory=False)
        assert place(run, second)
        with refused("another request waits there"):
            ask(run)


def test_a_request_to_a_job_that_ends_before_its_window_is_answered(tmp_path: Path) -> None:
    with Loop(tmp_path / "logs", NEVER) as loop:
        answers: list[str] = []

        def wait() -> None:
            try:
                ask(loop.run, steps=10_000)
            except UsageError as error:
                answers.append(str(error))
            else:
                answers.append("recorded")

        asking = threading.Thread(target=wait)
        asking.start()
        while (planned := planned_in(loop.run)) is None:
            time.sleep(0.01)
        assert planned.first_step is not None
        while loop.steps < planned.first_step + 2:
            time.sleep(0.01)
    asking.join()
    # What there was of the window is published.
    assert answers == ["recorded"]


def test_the_command_starts_without_torch(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nfrom harness.commands.trigger import ask\n"
        "try: ask(Path('nowhere'), steps=None, with_stack=False, memory=False, timeout_s=1)\n"
        "except Exception: print([name for name in ('torch', 'hydra', 'tensorboard') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
