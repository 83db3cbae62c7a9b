"""Checkpoints: whole or not there."""

from __future__ import annotations

import logging
import os
import random
import signal
import struct
import time
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.errors import UsageError
from harness.logdir.directory import RunDirectory
from harness.logdir.manifest import Manifest, now
from harness.train.checkpoint import Checkpoints, load, random_state, restore_random_state
from tests.launch import tree


def state(step: int, size: int = 10) -> dict[str, Any]:
    """Tensors and plain values of every kind that a job saves."""
    return {
        "state": {"step": step, "best_loss": float("inf"), "best_step": None},
        "model": {"weight": torch.arange(size, dtype=torch.float32) + step},
        "random": random_state(),
    }


def save(checkpoints: Checkpoints, *steps: int, best: int | None = None) -> None:
    for step in steps:
        assert checkpoints.save(state(step), step=step, best_step=best) is not None


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints")


def test_what_was_saved_comes_back(checkpoints: Checkpoints) -> None:
    save(checkpoints, 7)
    loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded["state"] == {"step": 7, "best_loss": float("inf"), "best_step": None}
    assert torch.equal(loaded["model"]["weight"], state(7)["model"]["weight"])


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(checkpoints: Checkpoints) -> None:
    assert checkpoints.load_newest() is None
    assert checkpoints.steps() == []


def test_the_newest_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    save(checkpoints, 5, 10, 15, 20)
    assert tree(checkpoints.directory) == ["step_00000015.pt", "step_00000020.pt"]


def test_the_best_stays_beside_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    save(checkpoints, 5)
    save(checkpoints, 10, best=10)
    save(checkpoints, 15, 20, 25, best=10)
    assert tree(checkpoints.directory) == ["best.pt", "step_00000010.pt", "step_00000020.pt", "step_00000025.pt"]
    assert load(checkpoints.directory / "best.pt")["state"]["step"] == 10

    save(checkpoints, 30, best=30)
    assert tree(checkpoints.directory) == ["best.pt", "step_00000025.pt", "step_00000030.pt"]
    assert load(checkpoints.directory / "best.pt")["state"]["step"] == 30


def damage(path: Path) -> None:
    """A byte in the middle, where the data are."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def foreign(path: Path) -> None:
    torch.save({"model": {}}, path)


def copied(path: Path) -> None:
    """Of an earlier step, under a later name."""
    torch.save({"format": 2, **state(3)}, path)


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("how", [damage, foreign, copied, lambda path: path.write_bytes(b""), Path.unlink])
def test_what_cannot_be_gone_on_from_pushes_out_nothing_that_can(
    how: Callable[[Path], object], keep: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = Checkpoints(tmp_path / "checkpoints", keep=9)
    save(before, 200, 202, 250)
    how(before.directory / "step_00000250.pt")
    there = [step for step in (250,) if (before.directory / "step_00000250.pt").exists()]

    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=keep)
    resumed = checkpoints.load_newest()
    assert resumed is not None
    assert resumed["state"]["step"] == 202
    expected = [200, 202]
    with caplog.at_level(logging.WARNING, "harness"):
        for step in (204, 206, 208):
            save(checkpoints, step)
            expected = [*expected, step][-keep:]
            assert checkpoints.steps() == [*expected, *there]
            after = Checkpoints(tmp_path / "checkpoints").load_newest()
            assert after is not None
            assert after["state"]["step"] == step
    told = [message for message in caplog.messages if "step_00000250.pt" in message]
    assert len(told) == 4 * len(there), "each of the four that have read it says so once"

    # The job comes to the step of the damaged one, and replaces it.
    save(checkpoints, 250)
    assert checkpoints.steps() == [*expected, 250][-keep:]


def test_one_that_was_damaged_since_it_was_written_counts_for_nothing(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    save(checkpoints, 1, 2, 3)
    damage(checkpoints.directory / "step_00000003.pt")
    save(checkpoints, 4)
    assert checkpoints.steps() == [2, 3, 4]
    save(checkpoints, 5)
    assert checkpoints.steps() == [3, 4, 5]


def test_what_was_read_back_once_is_not_read_again(checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    whole = zipfile.ZipFile.testzip
    monkeypatch.setattr(
        zipfile.ZipFile, "testzip", lambda archive: read.append(str(archive.filename)) or whole(archive)
    )
    save(checkpoints, 1, 2, 3, 4, 5, 6)
    assert len(read) == 6


def test_the_best_link_never_leads_to_a_damaged_one_nor_to_none(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=1)
    save(checkpoints, 1, best=1)
    # The best is better now, and its own checkpoint could not be written: the link keeps the one before.
    save(checkpoints, 3, 4, best=2)
    assert load(checkpoints.directory / "best.pt")["state"]["step"] == 1
    assert checkpoints.steps() == [1, 4]
    save(checkpoints, 5, best=5)
    damage(checkpoints.directory / "step_00000005.pt")
    save(checkpoints, 6, best=5)
    assert tree(checkpoints.directory) == ["step_00000005.pt", "step_00000006.pt"]


def test_a_write_that_ends_well_and_is_not_whole_is_no_checkpoint(
    checkpoints: Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(checkpoints, 1)
    synced = os.fsync

    def lose(handle: int) -> None:
        synced(handle)
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        if path.is_file():
            damage(path)

    monkeypatch.setattr(os, "fsync", lose)
    assert checkpoints.save(state(2, size=1000), step=2) is None
    assert checkpoints.problem is not None
    assert "not written whole" in checkpoints.problem
    assert tree(checkpoints.directory) == ["step_00000001.pt"]


def test_steps_past_eight_digits_stay_in_order(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    save(checkpoints, 99_999_999, 100_000_000, 100_000_001)
    assert checkpoints.steps() == [100_000_000, 100_000_001]


def test_a_run_folder_that_was_moved_keeps_its_best(checkpoints: Checkpoints, tmp_path: Path) -> None:
    save(checkpoints, 3, best=3)
    checkpoints.directory.rename(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere" / "best.pt")["state"]["step"] == 3


@pytest.mark.parametrize("left", [0, 1, 100, 0.5, 0.9, -1], ids=str)
def test_a_truncated_checkpoint_is_reported_and_the_one_before_it_used(
    left: float, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    save(checkpoints, 1, 2)
    newest = checkpoints.directory / "step_00000002.pt"
    content = newest.read_bytes()
    newest.write_bytes(content[: int(left * len(content)) if isinstance(left, float) else left])

    with caplog.at_level(logging.WARNING, "harness"):
        loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded["state"]["step"] == 1
    (message,) = caplog.messages
    assert str(newest) in message
    assert "damaged" in message


def test_any_flipped_bit_is_noticed_or_harmless(checkpoints: Checkpoints) -> None:
    save(checkpoints, 4)
    path = checkpoints.directory / "step_00000004.pt"
    content = path.read_bytes()
    whole = load(path)
    draw = random.Random(0)
    noticed = 0
    # Where the archive's own bookkeeping lies every byte matters; the data in between is sampled.
    places = {*range(512), *range(len(content) - 2048, len(content)), *draw.sample(range(len(content)), 1000)}
    for place in sorted(places):
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            loaded = load(path)
        except UsageError:
            noticed += 1
        else:
            assert loaded["state"] == whole["state"], place
            assert torch.equal(loaded["model"]["weight"], whole["model"]["weight"]), place
            assert torch.equal(loaded["random"]["torch"], whole["random"]["torch"]), place
    assert noticed > len(places) / 2


def test_a_record_that_claims_to_be_a_folder_is_noticed(checkpoints: Checkpoints) -> None:
    # torch's reader takes such an entry for empty, and hands out memory that nobody has written to.
    save(checkpoints, 4)
    path = checkpoints.directory / "step_00000004.pt"
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\x01\x02")
    while content[place : place + 4] == b"PK\x01\x02":
        name, extra, comment = struct.unpack("<HHH", content[place + 28 : place + 34])
        if b"/data/" in content[place + 46 : place + 46 + name]:
            break
        place += 46 + name + extra + comment
    content[place + 38] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(UsageError, match="damaged"):
        load(path)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04" + b"\0" * 200, b"\x80\x02}q\0."], ids=repr)
def test_what_is_no_checkpoint_is_passed_over(content: bytes, checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    (checkpoints.directory / "step_00000002.pt").write_bytes(content)
    loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded["state"]["step"] == 1


def test_a_folder_in_a_checkpoints_place_is_passed_over(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    (checkpoints.directory / "step_00000002.pt").mkdir()
    loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded["state"]["step"] == 1


def test_a_file_saved_by_torch_that_is_none_of_ours_is_passed_over(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    for number, foreign in enumerate(([1, 2, 3], torch.ones(2), {"model": {}}), start=2):
        torch.save(foreign, checkpoints.directory / f"step_{number:08d}.pt")
        loaded = checkpoints.load_newest()
        assert loaded is not None
        assert loaded["state"]["step"] == 1


def test_where_no_checkpoint_is_whole_it_is_an_error(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1, 2)
    for path in checkpoints.directory.glob("step_*.pt"):
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(UsageError, match="none of the 2 checkpoints can be read"):
        checkpoints.load_newest()


class Harmful:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("harmed",)


def test_loading_runs_no_code(checkpoints: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "step_00000001.pt"
    torch.save({"format": 1, "state": Harmful()}, path)
    with pytest.raises(UsageError, match=str(path)):
        load(path)
    assert not (tmp_path / "harmed").exists()


def test_another_format_is_refused(tmp_path: Path) -> None:
    torch.save({"format": 99}, tmp_path / "step_00000001.pt")
    with pytest.raises(UsageError, match="format"):
        load(tmp_path / "step_00000001.pt")


def test_every_random_generator_goes_on_where_it_was(checkpoints: Checkpoints) -> None:
    def draw() -> list[float]:
        return [
            torch.rand(()).item(),
            np.random.rand(),
            np.random.standard_normal(),
            random.random(),
            random.gauss(0, 1),
            torch.randn(()).item(),
        ]

    draw()  # leaves the second of a pair of normal draws behind in numpy's and Python's generators
    checkpoints.save({"random": random_state()}, step=1)
    expected = [draw(), draw()]
    loaded = checkpoints.load_newest()
    assert loaded is not None
    restore_random_state(loaded["random"])
    assert [draw(), draw()] == expected


def save_for_ever(directory: Path, first: int) -> None:
    checkpoints = Checkpoints(directory, keep=3)
    step = first
    while True:
        step += 1
        checkpoints.save(state(step, size=200_000), step=step, best_step=step - step % 4)


def killed_while_saving(directory: Path, first: int, after_s: float) -> None:
    """Save in another process until SIGKILL."""
    pid = os.fork()
    if pid == 0:
        try:
            save_for_ever(directory, first)
        finally:
            os._exit(1)
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_a_kill_in_the_middle_of_a_save_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    draw = random.Random(1)
    newest = 0
    cut_short = 0
    for _ in range(25):
        killed_while_saving(checkpoints.directory, newest, draw.uniform(0.02, 0.12))
        cut_short += any(path.suffix == ".tmp" for path in checkpoints.directory.glob(".*"))
        for step in checkpoints.steps():
            assert load(checkpoints.directory / f"step_{step:08d}.pt")["state"]["step"] == step
        if (checkpoints.directory / "best.pt").is_symlink():
            load(checkpoints.directory / "best.pt")
        assert max(checkpoints.steps(), default=0) >= newest
        newest = max(checkpoints.steps(), default=0)
    assert newest > 10
    assert cut_short, "no kill came in the middle of a save"


def test_what_a_kill_left_half_written_is_cleared_by_the_runs_next_life(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "a" / "b" / "checkpoints"
    for attempt in range(100):
        killed_while_saving(directory, 10 * attempt, 0.03)
        if list(directory.glob(".step_*")):
            break
    assert list(directory.glob(".step_*"))
    whole = Checkpoints(directory).steps()

    with RunDirectory(directory.parent, a_manifest(), logdir=tmp_path / "logs") as run:
        run.start()
        assert not list(directory.glob(".step_*")), "half a checkpoint stays for ever"
    assert Checkpoints(directory).steps() == whole


def a_manifest() -> Manifest:
    return Manifest(
        id="a/b",
        status="running",
        step=0,
        max_steps=1,
        started=now(),
        updated=now(),
        command="",
        overrides=[],
        choices={},
    )


def test_a_full_disk_costs_the_new_checkpoint_only(small_disk: Path, caplog: pytest.LogCaptureFixture) -> None:
    checkpoints = Checkpoints(small_disk / "checkpoints")
    save(checkpoints, 1, best=1)
    with caplog.at_level(logging.WARNING, "harness"):
        assert checkpoints.save(state(2, size=4_000_000), step=2, best_step=2) is None
    assert tree(checkpoints.directory) == ["best.pt", "step_00000001.pt"]
    assert load(checkpoints.directory / "best.pt")["state"]["step"] == 1
    (message,) = caplog.messages
    assert "step_00000002.pt" in message
    assert "training goes on" in message

    save(checkpoints, 3)
    assert checkpoints.steps() == [1, 3]


def test_a_file_that_may_not_grow_costs_the_new_checkpoint_only(
    checkpoints: Checkpoints, file_size_limit: Callable[[int], AbstractContextManager[None]]
) -> None:
    save(checkpoints, 1)
    with file_size_limit(4096):
        assert checkpoints.save(state(2, size=100_000), step=2) is None
    assert tree(checkpoints.directory) == ["step_00000001.pt"]


def test_a_folder_that_cannot_be_made_costs_checkpoints_never_the_job(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("in the way")
    assert Checkpoints(tmp_path / "checkpoints").save(state(1), step=1) is None


def test_a_checkpoint_saved_again_replaces_the_first(checkpoints: Checkpoints) -> None:
    save(checkpoints, 1)
    checkpoints.save({**state(1), "again": True}, step=1)
    loaded = checkpoints.load_newest()
    assert loaded is not None
    assert loaded["again"] is True
    assert checkpoints.steps() == [1]
