"""A few of the kills of ``python -m benchmarks.faults``, and that what they look for would be found."""

from __future__ import annotations

import itertools
import os
import random
import shutil
from pathlib import Path

import pytest

from tests import reading
from tests.faults import outcome
from tests.faults.jobs import JOBS, Job
from tests.faults.trial import trial, undisturbed
from tests.faults.watch import Instant, Watch, digests
from tests.launch import Launcher, wait_until

SEED = os.environ.get("HARNESS_TEST_SEED", "5")
QUICK = ("evaluations, the newest checkpoint alone", "points that checkpoints do not divide", "a loop of one's own")


def named(name: str) -> Job:
    (found,) = (job for job in JOBS if job.name == name)
    return found


@pytest.fixture(scope="module")
def run(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that nobody has disturbed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    undisturbed(launcher, named(QUICK[0]), folder)
    return reading.only_run(folder)


@pytest.fixture
def damaged(run: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    copied = tmp_path / "logs" / "default" / "run"
    shutil.copytree(run, copied, symlinks=True)
    return copied


@pytest.mark.parametrize("name", QUICK)
def test_a_job_killed_at_random_loses_nothing_and_ends_as_the_undisturbed_one(
    name: str, harness: Launcher, run: Path, tmp_path: Path
) -> None:
    job = named(name)
    like = undisturbed(harness, job, tmp_path / "undisturbed")
    # Before it could be over, on a machine that is slow by turns.
    like.seconds /= 2
    made = trial(harness, 0, job, random.Random(f"{SEED}/{name}"), tmp_path / "killed", like)
    assert made.losses == [], made.kills
    assert made.kills
    assert made.windows > 0


def test_nothing_is_wrong_with_an_undisturbed_run(run: Path) -> None:
    assert list(outcome.torn_checkpoints(run, 40)) == []
    for window in reading.windows(run):
        assert list(outcome.torn_window(window, digests(window))) == []
    found = outcome.result(run)
    assert list(outcome.differences(found, found, 1, [])) == []


def test_a_checkpoint_that_is_cut_or_gone_is_found(damaged: Path) -> None:
    (newest,) = (damaged / "checkpoints").glob("step_00000040.pt")
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2])
    assert [text.partition(":")[0] for text in outcome.torn_checkpoints(damaged, 40)] == ["checkpoint"]
    newest.unlink()
    assert any("that of step 40 was there" in text for text in outcome.torn_checkpoints(damaged, 40))


def test_a_window_that_is_cut_changed_or_gone_is_found(damaged: Path) -> None:
    first, second, third, *_ = reading.windows(damaged)
    sights = {window: digests(window) for window in (first, second, third)}
    (trace,) = first.glob("*.gz")
    trace.write_bytes(trace.read_bytes()[:-20])
    assert len(list(outcome.torn_window(first, sights[first]))) == 2
    (second / "window.json").write_bytes(b"{")
    assert any("window.json is not whole" in text for text in outcome.torn_window(second, sights[second]))
    shutil.rmtree(third)
    assert list(outcome.torn_window(third, sights[third])) == [f"window: {third.name} was visible and is gone"]


def test_a_state_or_a_curve_that_differs_in_one_bit_is_found(run: Path) -> None:
    theirs, ours = outcome.result(run), outcome.result(run)
    ours.state = ours.state.replace("0", "1", 1)
    ours.curves["train/loss"][7] = (8, ours.curves["train/loss"][7][1] + 1e-7)
    del ours.curves["eval/loss"][0]
    ours.windows.pop()
    found = [text.partition(":")[0] for text in outcome.differences(ours, theirs, 1, [4])]
    assert found == ["resumption", "curve", "curve", "window not recorded"]


def test_the_first_point_after_a_resumption_within_an_interval_is_told_apart(run: Path) -> None:
    theirs, ours = outcome.result(run), outcome.result(run)
    ours.curves["train/loss"][5] = (6, 0.0)
    assert [text[:13] for text in outcome.differences(ours, theirs, 3, [4])] == ["part interval"]
    assert [text[:5] for text in outcome.differences(ours, theirs, 3, [3])] == ["curve"]


def test_what_vanishes_or_is_cut_while_it_is_watched_is_found(damaged: Path, tmp_path: Path) -> None:
    with Watch(tmp_path) as watch:
        wait_until(lambda: watch.seen.runs, 10)
        assert len(watch.seen.windows) == 5
        assert watch.seen.faults == []
        whole, half = damaged / "whole", damaged / "half"
        whole.write_bytes((damaged / "run.json").read_bytes())
        half.write_bytes(whole.read_bytes()[:20])
        half.replace(damaged / "run.json")
        wait_until(lambda: watch.seen.faults, 10)
        whole.replace(damaged / "run.json")
        window = reading.windows(damaged)[0]
        window.rename(tmp_path / "away")
        wait_until(lambda: len(watch.seen.faults) == 2, 10)
    assert [text.partition(":")[0] for text in watch.seen.faults] == ["manifest", "window"]


def test_a_shot_comes_at_its_event_or_at_the_latest_it_may(tmp_path: Path) -> None:
    shots = itertools.count()
    folder = tmp_path / "logs"
    folder.mkdir()
    with Watch(tmp_path) as watch:
        # The watch may look at both at once, and in no order.
        for number, hit in ((2, "0.0 ms after logs/"), (5, "")):
            watch.aim(Instant(60.0 if hit else 0.5, r"logs/\w$", number=number), shots.__next__)
            for name in "ab":
                (folder / name).touch()
            assert watch.shot.wait(60)
            assert watch.hit.rstrip("ab") == hit
            for name in "ab":
                (folder / name).unlink()
            watch.settle()
    assert next(shots) == 2
