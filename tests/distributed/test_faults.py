"""Signals and deaths: all ranks end together, nothing is broken, and what goes on goes on exactly."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests import reading
from tests.distributed.jobs import GPT, SLOW, TINY_GPT, start, train, wait_for
from tests.launch import Launcher, window_every

EXACT = ("model.dropout=0.1", "data.batch_size=4", "trainer.max_steps=16", "trainer.eval_every=null")
"""Every rank draws from a random generator of its own."""
DYING = (
    "data=custom",
    "data.train._target_=dying_text.DyingText",
    "+data.train.context_length=16",
    "+data.train.at=13",
)


def losses(run: Path) -> dict[int, float]:
    return reading.scalars(run, "train/loss")


# Tests of one group run in one process of pytest's, where they share what a fixture has trained.
goes_on = pytest.mark.xdist_group("goes on exactly")
reshards = pytest.mark.xdist_group("another world size")


@pytest.fixture(scope="module")
def undisturbed(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of a job that nothing happens to, on two ranks."""
    logdir = tmp_path_factory.mktemp("undisturbed") / "logs"
    train(launcher, 2, *GPT, *EXACT, f"logdir={logdir}", "data.eval=null")
    return losses(reading.only_run(logdir))


def assert_whole(run: Path) -> None:
    """Every window that can be seen can be read."""
    for window in reading.windows(run):
        assert json.loads((window / "window.json").read_text())["window"]["steps"] >= 1
        for path in window.glob("*.gz"):
            reading.read_gz(path)


def test_a_signal_at_one_rank_ends_all_after_the_same_step(harness: Launcher, logdir: Path) -> None:
    job = start(harness, 2, *SLOW, "checkpoint=default", "profiler=periodic", f"logdir={logdir}")
    wait_for(job, logdir, "*/*/.trigger.lock")
    job.signal(1, signal.SIGTERM)
    assert [ended.status for ended in job.wait(30)] == [143, 143], job.text
    run = reading.only_run(logdir)
    manifest = reading.manifest(run)
    assert manifest["status"] == "interrupted"
    assert [path.name for path in (run / "checkpoints").glob("step_*")] == [f"step_{manifest['step']:08d}.pt"]
    assert "Traceback" not in job.text


@goes_on
def test_a_rank_that_is_killed_in_a_window_ends_the_job_which_goes_on_exactly(
    harness: Launcher, undisturbed: dict[int, float], logdir: Path, tmp_path: Path
) -> None:
    job = start(
        harness,
        2,
        *TINY_GPT,
        *EXACT,
        *DYING,
        *window_every(11, 1, 3),
        "profiler.ranks_timeout_s=1",
        "data.eval=null",
        "checkpoint.every=5",
        f"logdir={logdir}",
        f"+data.train.mark={tmp_path / 'died'}",
    )
    ended = job.wait(60)
    assert ended[1].status == 137, job.text
    assert ended[0].status == 1, job.text
    run = reading.only_run(logdir)
    assert reading.manifest(run)["status"] == "failed"
    assert_whole(run)
    train(harness, 2, f"resume={run}", cwd=tmp_path)
    assert reading.manifest(run)["resumed_from"] == [10]
    assert_whole(run)
    assert losses(run) == undisturbed, "to the last bit"


@goes_on
def test_the_launcher_starts_all_ranks_again_and_they_go_on_from_the_newest_checkpoint(
    harness: Launcher, undisturbed: dict[int, float], logdir: Path, tmp_path: Path
) -> None:
    done = harness.run(
        "train",
        *TINY_GPT,
        *EXACT,
        *DYING,
        *window_every(11, 1, 3),
        "profiler.ranks_timeout_s=1",
        "data.eval=null",
        "trainer.devices=2",
        "trainer.max_restarts=1",
        "checkpoint.every=5",
        f"logdir={logdir}",
        f"+data.train.mark={tmp_path / 'died'}",
    )
    assert done.status == 0, done.text
    run = reading.only_run(logdir)
    assert (reading.manifest(run)["status"], reading.manifest(run)["resumed_from"]) == ("completed", [10])
    assert losses(run) == undisturbed
    assert_whole(run)


@reshards
@pytest.mark.parametrize(("strategy", "size", "batch_size"), [("ddp", 1, 8), ("fsdp2", 1, 8), ("fsdp2", 4, 2)])
def test_a_checkpoint_is_read_at_another_world_size(
    harness: Launcher, saved: dict[str, Path], tmp_path: Path, strategy: str, size: int, batch_size: int
) -> None:
    run = tmp_path / "logs" / "experiment" / "run"
    reading.copy(saved[strategy], run)
    overrides = (f"resume={run}", "trainer.max_steps=6", f"data.batch_size={batch_size}")
    if size == 1:
        done = harness.run("train", *overrides, cwd=tmp_path)
        assert done.status == 0, done.text
    else:
        train(harness, size, *overrides, cwd=tmp_path)
    whole = losses(saved["undisturbed"])
    assert sorted(losses(run)) == [1, 2, 3, 4, 5, 6]
    assert losses(run) == pytest.approx(whole, abs=1e-4)


@pytest.fixture(scope="module")
def saved(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs of two ranks that have ended with step 3, and one that has gone on."""
    runs = {}
    for name, strategy, steps in (("ddp", "ddp", 3), ("fsdp2", "fsdp2", 3), ("undisturbed", "ddp", 6)):
        logdir = tmp_path_factory.mktemp(name) / "logs"
        overrides = (f"strategy={strategy}", f"trainer.max_steps={steps}", "data.batch_size=4", "data.eval=null")
        train(launcher, 2, *GPT, *overrides, f"logdir={logdir}")
        runs[name] = reading.only_run(logdir)
    return runs
