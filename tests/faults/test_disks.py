"""File systems that fail, fill up, or lack what others have, and clocks that jump: a table, and a job under each row.

It ends by itself, with a status that is true, no traceback and nothing torn; and what it says is saved is there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness.logdir.layout import staging_root
from tests import reading
from tests.faults import outcome
from tests.faults.jobs import EVALUATED, TRAIN, read_manifest
from tests.faults.shim import failing
from tests.faults.watch import digests
from tests.launch import Ended, Launcher, window_every

STEPS = 20
JOB = (
    *(*TRAIN, *EVALUATED, *window_every(4, 1, 2), f"trainer.max_steps={STEPS}", "trainer.log_every=5"),
    *("trainer.eval_every=7", "checkpoint.every=5", "checkpoint.keep=2", "profiler.drain_s=5"),
)
LIMIT_S = 90.0

FAILS: dict[str, tuple[str, int | None]] = {
    # What fails, and the exit status where there is but one.
    "no checkpoint takes its name": ("rename:step_*=EIO", 1),
    "the second checkpoint does not": ("rename:step_*=ENOSPC@2", 0),
    "the last checkpoint does not": ("rename:step_00000020.pt=ESTALE", 1),
    "the last checkpoint does not at first": ("rename:step_00000020.pt=EIO@1", 0),
    "no checkpoint is synced": ("fsync:.step_*=EIO", 1),
    "no checkpoint is written": ("write:.step_*=ENOSPC", 1),
    "no folder of checkpoints": ("mkdir:checkpoints=EROFS", 1),
    "the link to the best fails": ("rename:best.pt=EIO", None),
    "run.json cannot be written again": ("rename:run.json=EIO@2+", 1),
    "run.json fails once": ("rename:run.json=EIO@3", 0),
    "run.json cannot be written": ("rename:run.json=EROFS", None),
    "run.json is not synced": ("fsync:.run.json*=EIO", None),
    "no window takes its name": ("rename:window_????????=EIO", 0),
    "the first window does not at first": ("rename:window_????????=EIO@1", 0),
    "no window is handed over": ("rename:*.job=ENOSPC", 0),
    "no window is compressed": ("write:*.pt.trace.json.gz=ENOSPC", 0),
    "traces cannot be read": ("open:*.pt.trace.json=EIO", 0),
    "findings cannot be written": ("open:window.json=EIO", 0),
    "no file is synced": ("fsync=EIO", None),
    "no folder is synced": ("fsync:profile=EINVAL;fsync:checkpoints=EINVAL", None),
    "no lock is there": ("flock=ENOLCK", 0),
    "no lock is known": ("flock=ENOSYS", 0),
    "locks fail": ("flock=EIO", None),
    "locks are stale": ("flock=ESTALE", None),
    "no hard link": ("link=EPERM", 0),
    "no event is written": ("write:events.out.*=EIO", 0),
    "nothing is made": ("mkdir=EROFS", 2),
}


def train(harness: Launcher, logdir: Path, **env: str) -> Ended:
    return harness.start("train", *JOB, f"logdir={logdir}", cwd=logdir.parent, env=env).wait(LIMIT_S)


def assert_true(done: Ended, logdir: Path) -> None:
    """Whatever failed, what was said holds."""
    assert "Traceback" not in done.text, done.text
    assert done.status in (0, 1, 2), done.text
    runs = sorted(logdir.rglob("run.json"))
    assert len(runs) <= 1
    if done.status == 2:
        assert not runs, done.text
        assert done.text.count("error:") == 1, done.text
        return
    if not runs:
        assert done.status == 1, done.text
        return
    run = runs[0].parent
    manifest = read_manifest(run)
    assert list(outcome.torn_checkpoints(run, None)) == []
    for window in reading.windows(run):
        assert [text for text in outcome.torn_window(window, digests(window)) if text.startswith("window")] == []
    said = set(re.findall(r"recorded(?:, cut short)?: profile/(window_\d+)", done.said))
    assert said <= {window.name for window in reading.windows(run)}, done.text
    assert list(run.rglob("*.tmp")) == [], done.text
    last = run / "checkpoints" / f"step_{STEPS:08d}.pt"
    is_over = manifest.status == "completed" and manifest.step == STEPS and last.exists()
    assert (done.status == 0) == is_over, f"{manifest.status}, {manifest.step}, {last.exists()}: {done.text}"
    if done.status == 1:
        assert "all saved" not in done.said
    if is_over:
        assert outcome.loaded(last)["state"]["step"] == STEPS


@pytest.mark.parametrize("fault", FAILS)
def test_whatever_call_fails_what_a_job_says_is_true(fault: str, shimmed: Launcher, tmp_path: Path) -> None:
    rules, status = FAILS[fault]
    done = train(shimmed, tmp_path / "logs", **failing(rules))
    assert_true(done, tmp_path / "logs")
    assert status in (None, done.status), done.text


@pytest.mark.parametrize("fault", ["no window takes its name", "findings cannot be written", "no window is compressed"])
def test_what_waits_for_a_disk_to_mend_is_published_when_it_has(fault: str, shimmed: Launcher, tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    assert train(shimmed, logdir, **failing(FAILS[fault][0])).status == 0
    # With a disk that is well again.
    done = shimmed.run("report", str(logdir), cwd=tmp_path)
    assert done.status == 0, done.text
    assert [window.name for window in reading.windows(reading.only_run(logdir))] == [
        f"window_{step:08d}" for step in (5, 12, 19)
    ]
    assert not staging_root(logdir).exists()


CLOCKS = {
    "a day ahead": "86400@0.5",
    "an hour back": "-3600@0.5",
    "thirty years back": "-946080000@0.5",
}


@pytest.mark.parametrize("jump", CLOCKS)
def test_a_clock_that_jumps_changes_nothing_but_times(jump: str, shimmed: Launcher, tmp_path: Path) -> None:
    done = train(shimmed, tmp_path / "logs", **failing(clock=CLOCKS[jump]))
    assert_true(done, tmp_path / "logs")
    assert done.status == 0, done.text
    run = reading.only_run(tmp_path / "logs")
    assert len(reading.windows(run)) == 3, done.text
    assert sorted(reading.scalars(run, "train/loss")) == [5, 10, 15, 20]


@pytest.mark.parametrize("free_kib", [0, 8, 40, 150, 600, 1500])
def test_whenever_a_disk_fills_up_what_a_job_says_is_true(free_kib: int, harness: Launcher, small_disk: Path) -> None:
    stat = os.statvfs(small_disk)
    filler = small_disk / "filler"
    filler.write_bytes(b"x" * max(0, stat.f_bavail * stat.f_bsize - free_kib * 1024))
    logdir = small_disk / "logs"
    done = train(harness, logdir)
    assert_true(done, logdir)
    # Space that comes back is all that was missing.
    filler.unlink()
    if done.status == 0 or not list(logdir.rglob("run.json")):
        return
    again = harness.run("train", f"resume={reading.only_run(logdir)}", cwd=small_disk)
    assert again.status == 0, again.text
    assert_true(again, logdir)
