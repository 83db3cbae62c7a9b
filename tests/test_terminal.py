"""A terminal that is closed is a wish to stop, and whatever can no longer be printed ends nothing."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harness.train.checkpoint import Checkpoints
from tests import reading
from tests.distributed import jobs
from tests.launch import NOISE, Command, Launcher, environment, python, wait_until
from tests.test_resume import SLOW, job

FOR_EVER = (*SLOW, "+data.train.seconds=0.02", "trainer.max_steps=100000", "checkpoint.every=null", "data.eval=null")


class Terminal:
    """A real one, whose other end this test has."""

    def __init__(self) -> None:
        self._ours, theirs = pty.openpty()
        self.path = os.ttyname(theirs)
        # The process that opens it next, and leads a session, gets it as its controlling terminal: see zygote.py.
        os.close(theirs)

    def read(self) -> str:
        return os.read(self._ours, 1 << 16).decode(errors="replace")

    def close(self) -> None:
        os.close(self._ours)


def trains(logdir: Path, command: Command) -> Path:
    wait_until(
        lambda: any("train/loss" in path.read_text() for path in logdir.glob("*/*/run.json")) or not command.running,
        60,
        lambda: f"a step: {command.text}",
    )
    return reading.only_run(logdir)


def assert_stopped(run: Path, signal_name: str) -> None:
    manifest = reading.manifest(run)
    assert manifest["status"] == "interrupted"
    assert Checkpoints(run / "checkpoints").steps() == [manifest["step"]]
    assert max(reading.scalars(run, "train/loss")) == manifest["step"]
    assert f"{signal_name}: stopped after step {manifest['step']}, all saved" in (run / "train.log").read_text()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_closed_terminal_stops_the_job_with_everything_saved(workers: int, harness: Launcher, logdir: Path) -> None:
    terminal = Terminal()
    command = harness.start(*job(*FOR_EVER, f"data.workers={workers}", f"logdir={logdir}"), stderr=terminal.path)
    run = trains(logdir, command)
    assert "train" in terminal.read(), "a bar is drawn"
    terminal.close()
    done = command.wait(60)
    assert done.status == 128 + signal.SIGHUP, done.text
    assert_stopped(run, "SIGHUP")


def test_a_terminal_that_is_closed_more_than_once_and_a_sigterm_beside_it_stop_the_job_in_order(
    harness: Launcher, logdir: Path
) -> None:
    command = harness.start(*job(*FOR_EVER, f"logdir={logdir}"))
    run = trains(logdir, command)
    # The kernel, the shell and whoever ends the session, as fast as they can.
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        command.signal(number)
    done = command.wait(60)
    assert done.status in (128 + signal.SIGHUP, 128 + signal.SIGTERM), done.text
    assert reading.manifest(run)["status"] == "interrupted"
    assert Checkpoints(run / "checkpoints").steps() == [reading.manifest(run)["step"]]


@pytest.mark.parametrize("mode", ["live", "full output"])
def test_a_job_that_ignores_sighup_trains_on_without_its_terminal_to_its_end(
    mode: str, tmp_path: Path, logdir: Path
) -> None:
    # As under nohup, with a terminal for its output all the same; real processes, since the signal is ignored before.
    arguments = job(*NOISE, "trainer.max_steps=400", "checkpoint.every=100", "data.eval=null", f"logdir={logdir}")
    terminal = Terminal()
    where = f"2>{terminal.path}" if mode == "live" else f">{terminal.path} 2>&1"
    slow = [*arguments, "data=custom", "data.train._target_=slow_digits.SlowDigits", "+data.train.seconds=0.005"]
    slow = [text for text in slow if not text.startswith(("data=synthetic", "data.train.shape", "data.train.num"))]
    shell = f"trap '' HUP; exec {sys.executable} -m harness {shlex.join(slow)} {where}"
    process = subprocess.Popen(
        ["sh", "-c", shell],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(
            lambda: any("train/loss" in path.read_text() for path in logdir.glob("*/*/run.json")), 60, "its first step"
        )
        terminal.close()
        assert process.wait(120) == 0
    finally:
        process.kill()
    run = reading.only_run(logdir)
    assert (reading.manifest(run)["status"], reading.manifest(run)["step"]) == ("completed", 400)
    assert 400 in Checkpoints(run / "checkpoints").steps()


@pytest.mark.parametrize("closed", ["out", "err", "both"])
def test_a_reader_that_goes_ends_nothing(closed: str, tmp_path: Path, logdir: Path) -> None:
    # `harness train 2>&1 | head -1`; a line comes every ten seconds, and all at the end.
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "harness", *job(*NOISE, "data.eval=null", f"logdir={logdir}")],
            cwd=tmp_path,
            env=environment(),
            stdout=theirs if closed != "err" else subprocess.PIPE,
            stderr=theirs if closed != "out" else subprocess.PIPE,
            timeout=120,
            check=False,
        )
    finally:
        os.close(theirs)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert b"Traceback" not in (done.stdout or b"") + (done.stderr or b"")
    run = reading.only_run(logdir)
    assert reading.manifest(run)["status"] == "completed"
    assert Checkpoints(run / "checkpoints").steps()[-1] == 14


def test_sighup_at_one_rank_ends_all_after_the_same_step(harness: Launcher, logdir: Path) -> None:
    ranks = jobs.start(harness, 2, *jobs.SLOW, "checkpoint.enabled=true", "checkpoint.every=null", f"logdir={logdir}")
    run = trains(logdir, ranks.ranks[0])
    ranks.signal(1, signal.SIGHUP)
    assert [ended.status for ended in ranks.wait(60)] == [129, 129], ranks.text
    assert_stopped(run, "SIGHUP")


def test_a_closed_terminal_ends_the_launcher_of_several_ranks_in_order(harness: Launcher, logdir: Path) -> None:
    slow = [text for text in jobs.SLOW if not text.startswith("checkpoint")]
    arguments = [*slow, "trainer.devices=2", "checkpoint.every=null", f"logdir={logdir}"]
    terminal = Terminal()
    command = harness.start("train", *arguments, stderr=terminal.path)
    run = trains(logdir, command)
    terminal.close()
    # A shell says it too.
    command.signal(signal.SIGHUP)
    done = command.wait(120)
    assert done.status == 128 + signal.SIGHUP, done.text
    wait_until(lambda: reading.manifest(run)["status"] == "interrupted", 60, "the ranks' last words")
    assert_stopped(run, "SIGHUP")


def test_a_launcher_that_ignores_sighup_and_its_ranks_go_on(harness: Launcher, tmp_path: Path, logdir: Path) -> None:
    (tmp_path / "ignoring.py").write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from harness.distributed import launch\n"
        "launch.run(sys.argv[1:], processes=2, max_restarts=0, threads=1)\n"
    )
    slow = [text for text in jobs.SLOW if not text.startswith(("data", "+data", "trainer.max_steps"))]
    arguments = [*slow, *NOISE, "trainer.max_steps=300", "data.eval=null", f"logdir={logdir}"]
    process = subprocess.Popen(
        [sys.executable, "ignoring.py", *arguments], cwd=tmp_path, env=environment(), start_new_session=True
    )
    try:
        wait_until(lambda: any(logdir.glob("*/*/run.json")) or process.poll() is not None, 90, "the run")
        os.killpg(process.pid, signal.SIGHUP)
        assert process.wait(120) == 0
    finally:
        process.kill()
    assert reading.manifest(reading.only_run(logdir))["status"] == "completed"


def test_what_a_terminal_cannot_show_is_no_reason_to_fail(tmp_path: Path) -> None:
    code = (
        "import sys, os\n"
        "from harness import console\n"
        "with console.lasting():\n"
        "    console.out.print('é → ' + os.fsdecode(b'\\xff'), highlight=False)\n"
        "    console.err.print('logged', highlight=False)\n"
        "    print('the last line', end='')\n"
    )
    done = python("-c", code, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.status, done.out) == (0, "\\xe9 \\u2192 \\udcff\nthe last line"), done.text
    assert done.err == "logged\n"
