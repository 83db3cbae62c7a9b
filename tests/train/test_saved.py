"""What a job says of its end is true: saved is what is on disk, and the exit status says so too."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from harness.files import persistently
from harness.files import whole as files
from harness.train.checkpoint import Checkpoints, load
from tests import reading
from tests.distributed import jobs
from tests.launch import TINY, Launcher, expect_usage_error, tree, wait_until

BIG_ENOUGH = 30_000
"""For every file of a run but its checkpoints and its curves."""
TOO_SMALL = 6_000
"""For a manifest with :data:`PAD` in it; what a job prints is a file too."""
PAD = 4_000 * "x"
JOB = (
    *(text for text in TINY if not text.startswith(("trainer.max_steps", "checkpoint", "model.hidden"))),
    "model.hidden=[128]",
    "trainer.max_steps=12",
    "checkpoint.every=4",
    "data.eval=null",
    "data=custom",
    "data.train._target_=small_files.Limited",
)


def limited(at: int, size: int, **more: object) -> list[str]:
    return [*JOB, *(f"+data.train.{key}={value}" for key, value in {"at": at, "size": size, **more}.items())]


def test_a_job_whose_last_checkpoint_is_not_on_disk_fails_and_says_what_there_is(
    harness: Launcher, tmp_path: Path
) -> None:
    done = harness.run("train", *limited(7, BIG_ENOUGH), "logdir=logs", cwd=tmp_path)
    assert done.status == 1, done.text
    assert "Traceback" not in done.text
    assert "all saved" not in done.text
    run = reading.only_run(tmp_path / "logs")
    assert done.err.count("error:") == 1
    for words in ("step 12 is done, but its state is not on disk", "File too large", f"the last good one is {run}"):
        assert words.replace(f"{tmp_path}/", "") in done.said.replace(f"{tmp_path}/", ""), done.text
    assert Checkpoints(run / "checkpoints").steps() == [4]
    manifest = reading.manifest(run)
    assert manifest["status"] == "failed"
    assert "its state is not on disk" in manifest["error"]

    # And the command that it printed goes on from there, once there is room.
    assert f"harness train resume={run.relative_to(tmp_path)}" in done.said
    again = harness.run("train", f"resume={run}", "+data.train.size=10000000", cwd=tmp_path)
    assert again.status == 0, again.text
    assert (reading.manifest(run)["status"], reading.manifest(run)["resumed_from"]) == ("completed", [4])
    assert reading.manifest(run)["error"] is None


def test_a_signal_that_stops_a_job_whose_state_cannot_be_saved_is_no_good_end(
    harness: Launcher, tmp_path: Path
) -> None:
    slow = [text for text in limited(7, BIG_ENOUGH) if not text.startswith("trainer.max_steps")]
    command = harness.start(
        "train", *slow, "trainer.max_steps=1000000", "checkpoint.every=100000", "logdir=logs", cwd=tmp_path
    )
    wait_until(lambda: "step 1/" in command.text or not command.running, 60, lambda: command.text)
    wait_until(lambda: "cannot be written" in command.text or not command.running, 60, lambda: command.text)
    command.signal(signal.SIGTERM)
    done = command.wait(60)
    assert done.status == 1, done.text
    assert re.search(r"SIGTERM: stopped after step \d+, but its state is not on disk", done.said), done.text
    assert "there is no good one before it" in done.said
    assert "all saved" not in done.text
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["status"] == "failed"


@pytest.mark.parametrize("end", ["completed", "stopped"])
def test_a_last_word_that_cannot_be_written_is_told_and_the_run_counts_as_killed(
    end: str, harness: Launcher, tmp_path: Path
) -> None:
    overrides = [*limited(7, TOO_SMALL, pad=PAD), "checkpoint.enabled=false", "logdir=logs"]
    if end == "stopped":
        command = harness.start("train", *overrides, "trainer.max_steps=1000000", cwd=tmp_path)
        wait_until(lambda: "could not be written" in command.text or not command.running, 60, lambda: command.text)
        command.signal(signal.SIGINT)
        done = command.wait(60)
    else:
        done = harness.run("train", *overrides, cwd=tmp_path)
    assert done.status == 1, done.text
    assert "Traceback" not in done.text
    assert "nothing of it is saved, since checkpoints are off" in done.said
    assert "run.json could not be written" in done.said
    (row,) = json.loads(harness.run("runs", "logs", "--format", "json", cwd=tmp_path).out)
    assert row["status"] == "killed"


def test_a_job_without_checkpoints_does_not_say_that_all_is_saved(harness: Launcher, tmp_path: Path) -> None:
    command = harness.start("train", *TINY, "trainer.max_steps=1000000", "data.eval=null", "logdir=logs", cwd=tmp_path)
    wait_until(lambda: "step 1/" in command.text or not command.running, 60, lambda: command.text)
    command.signal(signal.SIGTERM)
    done = command.wait(60)
    assert done.status == 143, done.text
    assert "nothing saved, since checkpoints are off" in done.said


def test_a_run_that_cannot_be_begun_on_a_full_disk_leaves_nothing(harness: Launcher, tmp_path: Path) -> None:
    logdir = tmp_path / "logs"
    done = harness.run("train", *limited(0, TOO_SMALL, pad=PAD), f"logdir={logdir}", cwd=tmp_path)
    expect_usage_error(done, "cannot be written", "File too large", logdir=logdir)
    done = harness.run("train", "-m", *limited(0, TOO_SMALL, pad=PAD), "seed=0,1", f"logdir={logdir}", cwd=tmp_path)
    assert done.status == 2, done.text
    assert [path for path in tree(logdir) if path.endswith(".tmp")] == []


def test_a_state_that_diverged_and_could_not_be_kept_is_not_said_to_be(harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("train", *limited(7, BIG_ENOUGH, nan=True), "logdir=logs", cwd=tmp_path)
    assert done.status == 1, done.text
    assert re.search(r"the loss of step \d is nan", done.said), done.text
    assert "Its state could not be kept" in done.said
    assert not (reading.only_run(tmp_path / "logs") / "checkpoints" / "diverged.pt").exists()

    off = harness.run("train", *limited(7, 10**9, nan=True), "checkpoint.enabled=false", "logdir=off", cwd=tmp_path)
    assert off.status == 1
    assert "Checkpoints are off, so its state is not kept" in off.said


@pytest.mark.parametrize(("strategy", "rank"), [("ddp", 0), ("fsdp2", 0), ("fsdp2", 1)])
def test_ranks_one_of_which_cannot_write_fail_together(
    strategy: str, rank: int, harness: Launcher, tmp_path: Path
) -> None:
    overrides = [*limited(7, BIG_ENOUGH, rank=rank), f"strategy={strategy}", "model.hidden=[256]", "logdir=logs"]
    ranks = jobs.start(harness, 2, *overrides, cwd=tmp_path)
    assert [ended.status for ended in ranks.wait(120)] == [1, 1], ranks.text
    assert ranks.text.count("error:") == 1, ranks.text
    run = reading.only_run(tmp_path / "logs")
    assert "its state is not on disk" in reading.manifest(run)["error"]
    assert Checkpoints(run / "checkpoints").steps() == [4]
    assert [path for path in tree(run) if path.endswith(".tmp")] == []
    ended = harness.run("train", *overrides, "trainer.devices=2", "logdir=launched", cwd=tmp_path)
    assert ended.status == 1, ended.text


def test_a_sharded_part_with_a_flipped_bit_is_passed_over_and_pushes_nothing_out(
    harness: Launcher, tmp_path: Path
) -> None:
    overrides = [*(text for text in JOB if "small_files" not in text and text != "data=custom"), "strategy=fsdp2"]
    overrides += ["checkpoint.keep=1", "data.batch_size=8"]
    jobs.train(harness, 2, *overrides, "checkpoint.keep=9", "logdir=logs", cwd=tmp_path)
    run = reading.only_run(tmp_path / "logs")
    part = run / "checkpoints" / "step_00000012" / "__1_0.distcp"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 4
    part.write_bytes(content)
    resume = [f"resume={run}", "checkpoint.keep=1", "trainer.max_steps=10"]
    ranks = jobs.start(harness, 2, *resume, cwd=tmp_path)
    assert [ended.status for ended in ranks.wait(120)] == [0, 0], ranks.text
    assert "__1_0.distcp" in ranks.text
    assert reading.manifest(run)["resumed_from"] == [8]
    assert Checkpoints(run / "checkpoints").steps() == [10, 12]
    assert load(run / "checkpoints" / "step_00000010")["state"]["step"] == 10


def test_a_last_write_is_tried_again_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(files.time, "sleep", pauses.append)
    answers = iter(["full", "still full", None, "not asked"])
    assert persistently(lambda: next(answers)) is None
    assert len(pauses) == 2
    assert persistently(lambda: "full for ever") == "full for ever"
    assert len(pauses) == 2 + len(files.PAUSES_S)
