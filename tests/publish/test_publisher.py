"""The publisher process: what it makes of jobs, and what becomes of them when it dies."""

from __future__ import annotations

import errno
import gzip
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from harness.logdir.layout import FINDINGS, window_name
from harness.publish import Cost, Job, Keep, PublishedWindow, Publisher, Staging
from harness.publish.recover import recover
from harness.publish.retention import Retention
from harness.publish.staging import BUILD
from harness.publish.worker import attempt
from harness.trace import WindowReport
from tests.launch import ROOT, children, environment, tree, wait_until

TRACES = ROOT / "tests" / "traces"
SMALL = TRACES / "matmul_64.pt.trace.json.gz"
COST = Cost(warmup_extra_us=-50.0, active_extra_us=100.0, start_us=1.0, begin_us=2.0, stop_us=3.0, export_us=4.0)


@pytest.fixture
def staging(logdir: Path) -> Staging:
    made = Staging(logdir, "mine/first")
    made.make()
    return made


@pytest.fixture
def publisher(staging: Staging) -> Iterator[Publisher]:
    made = Publisher(staging)
    yield made
    list(made.drain(60))


def record(staging: Staging, step: int, *, data: bytes | None = None, **more: object) -> Job:
    """A raw trace in staging, and the job that goes with it."""
    data = gzip.decompress(SMALL.read_bytes()) if data is None else data
    folder = staging.raw(window_name(step))
    folder.mkdir()
    (folder / f"host_0.{step}.pt.trace.json").write_bytes(data)
    settings = {"raw_bytes": len(data), "unprofiled_step_us": 90.0, **more}
    return Job(first_step=step, steps=3, partial=False, profiled_steps_us=[1.0], cost=COST, **settings)  # type: ignore[arg-type]


def submit(publisher: Publisher, staging: Staging, *steps: int, **more: object) -> None:
    for step in steps:
        publisher.submit(window_name(step), record(staging, step, **more))  # type: ignore[arg-type]


def published(publisher: Publisher, count: int) -> list[PublishedWindow]:
    """As a loop that polls gets them."""
    found: list[PublishedWindow] = []

    def enough() -> bool:
        found.extend(publisher.poll())
        return len(found) >= count

    wait_until(enough, 60, lambda: f"{count} windows, not {found}")
    return found


def worker(staging: Staging) -> int:
    """The child that publishes for this run."""
    (pid,) = children(str(staging.logdir))
    return pid


KILLER = """
import os, signal, sys
from pathlib import Path

deaths = Path({deaths!r})

def die(event, arguments):
    if event == "os.mkdir" and str(arguments[0]).endswith({build!r}) and deaths.stat().st_size:
        os.truncate(deaths, deaths.stat().st_size - 1)
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
"""


@pytest.fixture
def deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As many bytes as are in this file, so many times the worker is killed in the middle of a window."""
    left = tmp_path / "deaths"
    left.touch()
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(KILLER.format(deaths=str(left), build=BUILD))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return left


def test_a_window_comes_with_its_findings_and_all_that_it_cost(publisher: Publisher, staging: Staging) -> None:
    submit(publisher, staging, 7)
    (window,) = published(publisher, 1)
    assert window.path == staging.profile / "window_00000007"
    assert tree(window.path) == ["host_0.7.pt.trace.json.gz", "window.json"]
    assert gzip.decompress((window.path / "host_0.7.pt.trace.json.gz").read_bytes()) == gzip.decompress(
        SMALL.read_bytes()
    )
    written = msgspec.json.decode((window.path / "window.json").read_bytes(), type=WindowReport)
    assert window.report == written
    assert written.source == "host_0.7.pt.trace.json.gz"
    # Warm-up steps that were faster than the median pay nothing back.
    assert written.window.cost_us == window.cost_us == 110.0
    assert written.window.stalls_us == window.stalls_us
    assert window.stall_us == 10.0
    wait_until(lambda: tree(staging.folder) == [], 60)
    list(publisher.drain(60))
    assert not staging.root.exists()


def test_the_worker_is_niced_and_knows_no_torch(publisher: Publisher, staging: Staging) -> None:
    submit(publisher, staging, 1)
    published(publisher, 1)
    pid = worker(staging)
    assert os.getpriority(os.PRIO_PROCESS, pid) >= os.getpriority(os.PRIO_PROCESS, 0) + 10
    assert "torch" not in Path(f"/proc/{pid}/maps").read_text()


def test_more_than_three_large_windows_are_a_backlog_and_small_ones_are_none(
    publisher: Publisher, staging: Staging
) -> None:
    publisher.start()
    os.kill(worker(staging), signal.SIGSTOP)
    try:
        submit(publisher, staging, 1, 2, 3, 4, 5)
        assert not publisher.behind
        submit(publisher, staging, 6, raw_bytes=65 * 1024**2)
        assert publisher.behind
        assert publisher.waiting == 6
    finally:
        os.kill(worker(staging), signal.SIGCONT)
    assert len(list(publisher.drain(60))) == 6
    assert not publisher.behind


def test_a_worker_that_is_killed_is_started_again_and_loses_nothing(
    deaths: Path, publisher: Publisher, staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    for step in range(1, 4):
        deaths.write_bytes(b".")
        submit(publisher, staging, step)
        (window,) = published(publisher, 1)
        assert window.first_step == step
        assert window.report is not None
    assert sum("started again" in message for message in caplog.messages) == 3


def test_a_worker_that_is_killed_between_two_windows_is_started_again_for_the_next(
    publisher: Publisher, staging: Staging
) -> None:
    for step in range(1, 4):
        submit(publisher, staging, step)
        (window,) = published(publisher, 1)
        assert window.first_step == step
        assert window.report is not None
        os.kill(worker(staging), signal.SIGKILL)


def test_a_trace_that_kills_the_worker_twice_is_published_as_it_is(
    deaths: Path, publisher: Publisher, staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    data = gzip.decompress(SMALL.read_bytes())
    deaths.write_bytes(b"..")
    submit(publisher, staging, 5, data=data)
    (window,) = published(publisher, 1)
    assert window.report is None
    assert "died of it 2 times" in str(window.error)
    (trace,) = window.path.iterdir()
    assert gzip.decompress(trace.read_bytes()) == data
    assert any("without findings" in message for message in caplog.messages)


def test_a_trace_that_cannot_be_read_is_published_all_the_same(publisher: Publisher, staging: Staging) -> None:
    submit(publisher, staging, 3, data=b'{"traceEvents": 12}')
    (window,) = published(publisher, 1)
    assert window.report is None
    assert "TraceError" in str(window.error)
    assert [path.suffix for path in window.path.iterdir()] == [".gz"]


def test_a_trace_above_the_limit_is_dropped_and_the_warning_says_what_to_do(
    publisher: Publisher, staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    submit(publisher, staging, 3, max_trace_bytes=1000)
    wait_until(lambda: not publisher.poll() and not publisher.waiting, 60)
    assert not staging.profile.exists()
    wait_until(lambda: tree(staging.folder) == [], 60)
    (message,) = caplog.messages
    assert "profiler.active" in message
    assert "max_trace_mib" in message


def test_what_is_finished_in_staging_is_published_by_the_next_start(staging: Staging) -> None:
    for step in (3, 9):
        staging.write(window_name(step), record(staging, step))
    record(staging, 12)  # killed before it was finished
    staging.make()
    kept = [name for step in (3, 9) for name in (f"{step}", f"{step}/host_0.{step}.pt.trace.json", f"{step}.job")]
    assert tree(staging.folder) == sorted(f"window_0000000{name}" for name in kept)
    publisher = Publisher(staging)
    publisher.start()
    assert [window.first_step for window in published(publisher, 2)] == [3, 9]
    assert list(publisher.drain(60)) == []
    assert not staging.root.exists()


def test_a_window_published_just_before_the_worker_died_is_not_published_twice(staging: Staging) -> None:
    staging.write(window_name(3), record(staging, 3))
    list(recover(staging.logdir))
    before = {path: path.stat().st_ino for path in staging.profile.rglob("*")}
    staging.make()
    staging.write(window_name(3), record(staging, 3, data=b"{}"))
    publisher = Publisher(staging)
    publisher.start()
    (window,) = published(publisher, 1)
    assert window.report is not None
    assert {path: path.stat().st_ino for path in staging.profile.rglob("*")} == before
    list(publisher.drain(60))
    assert not staging.root.exists()


@pytest.mark.parametrize("where", ["run", "logdir"])
def test_a_report_publishes_what_a_dead_job_left(where: str, staging: Staging) -> None:
    staging.write(window_name(3), record(staging, 3))
    path = staging.logdir / staging.run if where == "run" else staging.logdir
    path.mkdir(parents=True, exist_ok=True)
    code = "from harness.cli import main; import sys; sys.argv = ['harness', 'report', sys.argv[1]]; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "window_00000003" in done.stderr
    assert tree(staging.profile / "window_00000003") == ["host_0.3.pt.trace.json.gz", "window.json"]
    assert not staging.root.exists()


def test_what_a_living_publisher_is_responsible_for_nobody_else_publishes(
    publisher: Publisher, staging: Staging
) -> None:
    submit(publisher, staging, 1)
    published(publisher, 1)
    os.kill(worker(staging), signal.SIGSTOP)
    try:
        submit(publisher, staging, 2)
        assert list(recover(staging.logdir)) == []
    finally:
        os.kill(worker(staging), signal.SIGCONT)
    assert [window.first_step for window in published(publisher, 1)] == [2]


def test_a_full_logdir_keeps_windows_until_there_is_room(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    staging = Staging(small_disk / "logs", "job")
    staging.make()
    publisher = Publisher(staging)
    job = record(staging, 1)
    filler = small_disk / "filler"
    with filler.open("wb") as file:
        file.write(b"x" * (shutil.disk_usage(small_disk).free - 8192))
    publisher.submit(window_name(1), job)
    wait_until(lambda: publisher.poll() or caplog.messages, 60)
    assert "cannot be published" in caplog.messages[0]
    assert not staging.profile.exists() or tree(staging.profile) == []
    filler.unlink()
    assert [window.first_step for window in publisher.drain(60)] == [1]
    assert tree(small_disk) == [
        *("logs", "logs/job", "logs/job/profile", "logs/job/profile/window_00000001"),
        *(f"logs/job/profile/window_00000001/{name}" for name in ("host_0.1.pt.trace.json.gz", "window.json")),
    ]


def test_a_disk_that_is_full_in_the_middle_of_the_rename_shows_nothing_and_loses_nothing(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    name = window_name(3)
    staging.write(name, record(staging, 3))
    retention = Retention(staging.profile, FINDINGS)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", full)
        outcome = attempt(staging, name, retention)
    assert outcome.status == "failed"
    assert "No space left" in str(outcome.error)
    assert tree(staging.profile) == []
    assert not staging.build(name).exists()
    assert attempt(staging, name, retention).status == "published"
    assert (staging.profile / name / FINDINGS).exists()


def test_a_logdir_that_was_taken_away_comes_back_with_the_next_window(publisher: Publisher, staging: Staging) -> None:
    submit(publisher, staging, 1)
    published(publisher, 1)
    shutil.rmtree(staging.logdir)
    submit(publisher, staging, 2)
    (window,) = published(publisher, 1)
    assert tree(window.path) == ["host_0.2.pt.trace.json.gz", "window.json"]


def test_traces_on_disk_never_exceed_their_limit(publisher: Publisher, staging: Staging) -> None:
    size = SMALL.stat().st_size
    limit = 4 * size
    for step in range(1, 9):
        submit(publisher, staging, step, keep=Keep(bytes=limit))
        published(publisher, 1)
        assert sum(path.stat().st_size for path in staging.profile.glob("*/*.gz")) <= limit
    assert len(list(staging.profile.glob("*/window.json"))) == 8
    assert (staging.profile / "window_00000001" / "host_0.1.pt.trace.json.gz").exists()
    assert (staging.profile / "window_00000008" / "host_0.8.pt.trace.json.gz").exists()


ORPHAN = """
import os, signal, sys
from pathlib import Path
from tests.publish.test_publisher import Publisher, Staging, record, window_name
staging = Staging(Path(sys.argv[1]), "job")
staging.make()
publisher = Publisher(staging)
for step in range(1, 4):
    publisher.submit(window_name(step), record(staging, step))
print(publisher._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_whose_parent_is_killed_publishes_what_waits_and_ends(logdir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(logdir)],
        env=environment(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    pid = int(done.stdout)
    wait_until(lambda: not Path(f"/proc/{pid}/fd/0").exists(), 60, "the worker's end")
    assert len(list(logdir.glob("job/profile/*/window.json"))) == 3
    assert not Staging(logdir, "job").root.exists()


def test_draining_ends_at_its_limit_and_the_worker_goes_on(
    publisher: Publisher, staging: Staging, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.start()
    pid = worker(staging)
    os.kill(pid, signal.SIGSTOP)
    submit(publisher, staging, 1)
    started = time.monotonic()
    assert list(publisher.drain(0.2)) == []
    assert time.monotonic() - started < 30
    assert "goes on in the background" in caplog.text
    os.kill(pid, signal.SIGCONT)
    wait_until(lambda: (staging.profile / window_name(1)).exists(), 60)


def test_a_publisher_that_cannot_start_is_said_once_and_harms_nobody(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    publisher = Publisher(staging)
    with caplog.at_level(logging.WARNING, "harness"):
        submit(publisher, staging, 1, 2)
        assert publisher.poll() == []
        assert list(publisher.drain(1)) == []
    assert sum("cannot be started" in message for message in caplog.messages) == 1
    assert staging.jobs() == [window_name(1), window_name(2)]
