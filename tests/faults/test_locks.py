"""File systems without locks: jobs train, record and publish all the same, and a running job is not called killed."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from harness.files import locks
from harness.logdir.layout import LOCK
from tests import reading
from tests.faults.shim import failing
from tests.launch import TINY, Command, Launcher, expect_usage_error, python, wait_until, window_every

JOB = (*(text for text in TINY if text != "profiler=none"), *window_every(1, 1, 1))
SLOW = (
    *JOB,
    "data=custom",
    "data.eval=null",
    "data.train._target_=slow_digits.SlowDigits",
    "+data.train.seconds=0.01",
    "profiler.max_overhead=null",
    "trainer.max_steps=100000",
)


def status_of(harness: Launcher, logdir: Path, rules: str) -> str:
    done = harness.run("runs", str(logdir), "--format", "json", env=failing(rules))
    assert done.status == 0, done.text
    (row,) = json.loads(done.out)
    return str(row["status"])


def running(harness: Launcher, logdir: Path, rules: str) -> tuple[Command, Path]:
    """A job that has published a window."""
    job = harness.start("train", *SLOW, f"logdir={logdir}", env=failing(rules))
    wait_until(lambda: any(logdir.glob("*/*/profile/window_*")), 60, lambda: f"a window; the job said:\n{job.text}")
    return job, reading.only_run(logdir)


@pytest.mark.parametrize("error", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EIO", "ESTALE"])
def test_a_job_trains_records_and_publishes_without_locks_and_says_so_once(
    error: str, shimmed: Launcher, logdir: Path
) -> None:
    done = shimmed.run("train", *JOB, "checkpoint=default", f"logdir={logdir}", env=failing(f"flock={error}"))
    assert done.status == 0, done.text
    run = reading.only_run(logdir)
    assert reading.manifest(run)["status"] == "completed"
    assert [path.name for path in reading.windows(run)] == ["window_00000002", "window_00000005"]
    assert all((path / "window.json").exists() for path in reading.windows(run))
    assert (run / "train.log").read_text().count("gives no locks") == 1
    assert not (logdir.parent / f".{logdir.name}.staging").exists()


@pytest.mark.parametrize("rules", ["", "flock=ENOLCK", "flock=ENOSYS"])
def test_a_running_job_is_running_and_a_killed_one_killed(rules: str, shimmed: Launcher, logdir: Path) -> None:
    job, run = running(shimmed, logdir, rules)
    # Who looks may see locks where the job saw none, as through another mount.
    assert [status_of(shimmed, logdir, look) for look in (rules, "")] == ["running"] * 2
    again = shimmed.run("train", f"resume={run}", env=failing(rules))
    expect_usage_error(again, "another process trains in this run")
    asked = shimmed.run("trigger", str(run), "--steps", "2", env=failing(rules))
    assert asked.status == 0, asked.text
    assert (Path(asked.out.strip()) / "window.json").exists()
    job.signal(signal.SIGKILL)
    job.wait()
    assert [status_of(shimmed, logdir, look) for look in (rules, "")] == ["killed"] * 2
    expect_usage_error(shimmed.run("trigger", str(run), env=failing(rules)), "is not running")
    overrides = ("trainer.max_steps=3", "+data.train.seconds=0")
    done = shimmed.run("train", f"resume={run}", *overrides, env=failing(rules))
    assert done.status == 0, done.text


def test_of_another_hosts_job_nothing_is_said_that_cannot_be_known(shimmed: Launcher, logdir: Path) -> None:
    job, run = running(shimmed, logdir, "flock=ENOLCK")
    job.signal(signal.SIGKILL)
    job.wait()
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**manifest, "host": "elsewhere"}))
    holder = json.loads((run / LOCK).read_text())
    (run / LOCK).write_text(json.dumps({**holder, "host": "elsewhere"}))
    assert status_of(shimmed, logdir, "flock=ENOLCK") == "running"
    # Version 0.1.0 wrote nothing into the file.
    (run / LOCK).write_text("")
    assert status_of(shimmed, logdir, "flock=ENOLCK") == "running"
    assert status_of(shimmed, logdir, "") == "killed"
    (run / "run.json").write_text(json.dumps({**manifest, "pid": os.getpid()}))
    assert status_of(shimmed, logdir, "flock=ENOLCK") == "running"
    for nobody in (0, -1, 2**70):
        (run / "run.json").write_text(json.dumps({**manifest, "pid": nobody}))
        assert status_of(shimmed, logdir, "flock=ENOLCK") == "killed"


@pytest.mark.parametrize("error", ["EPERM", "EOPNOTSUPP", "ENOSYS"])
def test_a_window_is_asked_for_where_there_are_no_links(error: str, shimmed: Launcher, logdir: Path) -> None:
    job, run = running(shimmed, logdir, f"link={error}")
    asked = shimmed.run("trigger", str(run), env=failing(f"link={error}"))
    assert asked.status == 0, asked.text
    assert [path.name for path in run.glob(".trigger.request*")] == []
    job.signal(signal.SIGTERM)
    assert job.wait().status == 143


HOLD = """
import sys
from pathlib import Path
from harness.files import locks
lock = locks.take(Path(sys.argv[1]))
print("held" if lock is not None else "refused", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["pipe", "directory", "device"])
def test_what_is_no_file_is_no_lock(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    elif name == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    assert locks.is_held(path) is None
    assert locks.holder(path) is None
    with pytest.raises(OSError, match=r"no regular file|directory"):
        locks.take(path)


def test_numbers_of_processes_that_come_again_hold_nothing(tmp_path: Path) -> None:
    """A process has the number of one that has died without locks."""
    done = python("-c", HOLD, str(tmp_path / "lock"), cwd=tmp_path, **failing("flock=ENOLCK"))
    assert done.out == "held\n", done.text
    (tmp_path / "lock").write_text(
        json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "locked": False, "began": 1})
    )
    assert locks.is_held(tmp_path / "lock") is False
    lock = locks.take(tmp_path / "lock")
    assert lock is not None
    assert locks.is_held(tmp_path / "lock") is True
    lock.close()
    assert locks.is_held(tmp_path / "lock") is False
