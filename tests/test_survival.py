"""Whoever dies, whenever: no window is lost once it is recorded, none is half there, none comes twice."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import msgspec
import pytest

from harness.publish import Staging
from harness.record import Schedule
from harness.trace import WindowReport, read
from tests import reading
from tests.launch import Command, Launcher, session, wait_until, window_every
from tests.train.test_resume import SLOW, Watch, start, wait_until_it_trains
from tests.train.test_trainer import Job

KILLING_S = float(os.environ.get("HARNESS_TEST_KILLING_S", "10"))
"""For how long; a change to what is killed deserves minutes."""
VICTIMS = ("job", "worker", "worker", "both")


def workers(command: Command) -> list[int]:
    """The publisher processes of a job that loads its data by itself."""
    return [pid for pid in session(command.pid) if pid != command.pid]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def test_jobs_and_publishers_killed_at_random_lose_no_recorded_window(harness: Launcher, tmp_path: Path) -> None:
    draw = random.Random(os.environ.get("HARNESS_TEST_SEED", "11"))
    logdir = tmp_path / "logs"
    overrides = [*SLOW, "+data.train.seconds=0.01", "trainer.max_steps=1000000", "scheduler.max_steps=1000000"]
    overrides += [*window_every(5, 1, 2), "profiler.max_overhead=null", "checkpoint.every=20", "checkpoint.keep=2"]
    recorded: set[str] = set()
    run: Path | None = None
    victims: list[str] = []
    turn: list[str] = []
    until = time.monotonic() + KILLING_S
    with Watch(logdir) as watch:
        # A busy machine may start few jobs in that time.
        while time.monotonic() < until or len(victims) < 2 * len(VICTIMS):
            if run is None:
                command = start(harness, tmp_path, *overrides, f"logdir={logdir}")
            else:
                command = harness.start("train", f"resume={run}", cwd=tmp_path)
            wait_until_it_trains(command)
            assert command.running, command.text
            run = reading.only_run(logdir)
            staging = Staging(logdir, str(run.relative_to(logdir)))
            while command.running:
                alive_until = time.monotonic() + draw.uniform(0.05, 0.7)
                while time.monotonic() < alive_until:
                    # A window waits for the publisher for some ms only.
                    recorded.update(staging.jobs())
                    time.sleep(0.002)
                if not turn:
                    turn = draw.sample(VICTIMS, len(VICTIMS))
                victim = turn.pop()
                victims.append(victim)
                for pid in workers(command) if victim != "job" else ():
                    kill(pid)
                if victim != "worker":
                    command.signal(signal.SIGKILL)
                    command.wait()
            recorded.update(staging.jobs())
            for window in reading.windows(run):
                assert_complete(window)
        assert run is not None
        last = harness.start("train", f"resume={run}", cwd=tmp_path)
        wait_until_it_trains(last)
        last.signal(signal.SIGTERM)
        done = last.wait()
        assert done.status == 143, done.text
        # Signalled jobs wait for their publisher for some seconds only; a report publishes whatever is left.
        wait_until(lambda: not workers(last), 60)
        assert harness.run("report", str(run), cwd=tmp_path).status == 0

    assert set(victims) == set(VICTIMS)
    visible = {window.name for window in reading.windows(run)}
    assert len(recorded) >= 5
    assert recorded <= visible
    assert {name for name, sights in watch.seen.items() if len(sights) != 1} == set()
    for window in reading.windows(run):
        assert_complete(window)
    assert not staging.root.exists()


def assert_complete(window: Path) -> None:
    """One trace of the window's own steps, and its findings unless it was in hand at two deaths."""
    first = int(window.name.removeprefix("window_"))
    assert reading.steps(window)[0] == first
    findings = window / "window.json"
    if findings.exists():
        report = msgspec.json.decode(findings.read_bytes(), type=WindowReport)
        assert report.window.first_step == first
        assert report.window.cost_us is not None
    else:
        (trace,) = window.iterdir()
        assert len(read(trace))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (3, {}),
        (5, {}),
        (6, {}),
        (7, {6: (1, True)}),
        (8, {6: (2, True)}),
        (9, {6: (3, False)}),
        (10, {6: (3, False)}),
    ],
    ids=["waiting", "warming up", "where recording begins", "one step in", "two in", "as it ends", "after it"],
)
def test_a_signal_in_any_phase_of_a_window_leaves_what_was_recorded(
    step: int, expected: dict[int, tuple[int, bool]], tmp_path: Path
) -> None:
    def stop(now: int, metrics: dict[str, float]) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGTERM)

    job = Job(
        tmp_path, max_steps=100, schedule=Schedule(wait=4, warmup=2, active=3, repeat=1), settings={"on_log": stop}
    )
    summary = job.fit()
    assert summary.stopped_by == signal.SIGTERM
    assert summary.step == step
    assert {window.first_step: (window.steps, window.partial) for window in summary.windows} == expected
    windows = reading.windows(tmp_path / "logs" / "a" / "b")
    assert [window.name for window in windows] == [f"window_{first:08d}" for first in expected]
    for window in windows:
        report = msgspec.json.decode((window / "window.json").read_bytes(), type=WindowReport)
        assert report.window.partial == expected[6][1]
    assert not (tmp_path / ".logs.staging").exists()
