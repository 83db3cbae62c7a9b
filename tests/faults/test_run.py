"""A run killed at any instant was never there, or goes on without a hand and ends as one that nobody disturbed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.train.checkpoint import Checkpoints, load
from tests import reading
from tests.faults import kill_at
from tests.launch import NOISE, TINY, Ended, Launcher, environment, expect_usage_error, tree, window_every
from tests.train.test_resume import assert_same_outcome

SMALL = (
    *(text for text in TINY if not text.startswith(("trainer.max_steps", "checkpoint"))),
    "trainer.max_steps=4",
    "checkpoint.every=2",
    "data.eval=null",
    "logger.images=false",
)
EVERY_CALL = "HARNESS_TEST_EVERY_CALL" in os.environ
"""A change to what is written when deserves them all; a third of them takes long enough for every day."""
KILLED = 128 + signal.SIGKILL


@pytest.fixture(scope="module")
def undisturbed(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(launcher, tmp_path_factory.mktemp("undisturbed"), 4)


@pytest.fixture(scope="module")
def longer(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(launcher, tmp_path_factory.mktemp("longer"), 6)


def finished(launcher: Launcher, folder: Path, steps: int) -> Path:
    done = launcher.run("train", *SMALL, f"trainer.max_steps={steps}", "logdir=logs", cwd=folder)
    assert done.status == 0, done.text
    return reading.only_run(folder / "logs")


class Killer:
    """Runs commands that are killed at one call after the other."""

    def __init__(self, harness: Launcher, folder: Path) -> None:
        self._harness, self._folder = harness, folder

    def run(self, at: int, *arguments: str) -> Ended:
        calls = self._folder / f"calls-{at}"
        return self._harness.run(
            *arguments, cwd=self._folder, env=kill_at.environment(at, calls, self._folder / "logs")
        )


def runs_in(folder: Path) -> list[Path]:
    return [path.parent for path in folder.glob("*/*/run.json")]


@pytest.mark.parametrize("third", [0, 1, 2] if EVERY_CALL else [1])
def test_a_start_killed_at_any_call_never_showed_or_goes_on_exactly(
    third: int, harness: Launcher, tmp_path: Path, undisturbed: Path
) -> None:
    killer = Killer(harness, tmp_path)
    logdir = tmp_path / "logs"
    unseen = shown = 0
    for at in range(1 + third, 1000, 3):
        done = killer.run(at, "train", *SMALL, f"logdir={logdir}")
        if done.status == 0:
            break
        assert done.status == KILLED, done.text
        if not (runs := runs_in(logdir)):
            unseen += 1
            assert (
                harness.run("runs", str(logdir), cwd=tmp_path).out.startswith("There are no runs")
                or not logdir.exists()
            )
            # Whatever is in the folder is what this start has left: those before it are gone by now.
            assert len([path for path in logdir.glob("*/*") if path.is_dir()]) <= 1
            continue
        shown += 1
        (run,) = runs
        if reading.manifest(run)["status"] != "completed":
            again = harness.run("train", f"resume={run}", cwd=tmp_path)
            assert again.status == 0, f"killed at call {at}: {again.text}"
        assert_same_outcome(run, undisturbed, 4)
        assert (run / ".hydra" / "overrides.yaml").read_text()
        assert [path for path in tree(run) if path.endswith(".tmp")] == []
        assert len([path for path in logdir.glob("*/*") if path.is_dir()]) == 1, "killed starts pile up"
        shutil.rmtree(logdir)
    assert unseen >= 3
    assert shown >= 5


def test_killed_starts_of_a_job_with_windows_leave_nothing_in_the_staging(harness: Launcher, tmp_path: Path) -> None:
    recording = [*(text for text in SMALL if text != "profiler=none"), *window_every(1, 1, 1)]
    killer = Killer(harness, tmp_path)
    for at in (10, 12):
        assert killer.run(at, "train", *recording, f"logdir={tmp_path / 'logs'}").status == KILLED
        staged = list((tmp_path / ".logs.staging").glob("default/*"))
        assert len(staged) <= 1, "what the kill before has left is still there"
    done = harness.run("train", *recording, f"logdir={tmp_path / 'logs'}", cwd=tmp_path)
    assert done.status == 0, done.text
    assert not (tmp_path / ".logs.staging").exists()


def test_a_resumption_killed_at_every_call_loses_nothing_and_keeps_the_old_or_the_new_configuration(
    harness: Launcher, tmp_path: Path, undisturbed: Path, longer: Path
) -> None:
    killer = Killer(harness, tmp_path)
    run = tmp_path / "logs" / "default" / undisturbed.name
    reading.copy(undisturbed, run)
    laid_down = {path.name: path.read_bytes() for path in (run / ".hydra").iterdir()}
    before = [text for text in reading.manifest(run)["overrides"] if not text.startswith("trainer.max_steps")]
    was_new = False
    for at in range(1, 1000):
        done = killer.run(at, "train", f"resume={run}", *(() if was_new else ("trainer.max_steps=6",)))
        assert {path.name: path.read_bytes() for path in (run / ".hydra").iterdir()} == laid_down
        manifest = reading.manifest(run)
        is_new = "trainer.max_steps=6" in manifest["overrides"]
        assert manifest["max_steps"] == (6 if is_new else 4)
        others = [text for text in manifest["overrides"] if not text.startswith("trainer.max_steps")]
        assert others == before
        assert is_new or not was_new, "what was given once holds from then on"
        was_new = is_new
        if done.status != KILLED:
            break
    assert done.status == 0 or (manifest["status"], done.status) == ("completed", 2), done.text
    assert at > 10
    assert_same_outcome(run, longer, 6)


def test_a_sweep_killed_at_any_call_goes_on_exactly(harness: Launcher, tmp_path: Path, undisturbed: Path) -> None:
    killer = Killer(harness, tmp_path)
    logdir = tmp_path / "logs"
    for at in range(1, 45) if EVERY_CALL else (2, 4, 9, 14, 24, 33):
        done = killer.run(at, "train", "-m", *SMALL, "optimizer.lr=1e-3,1e-2", f"logdir={logdir}")
        assert done.status == KILLED, f"call {at}: {done.text}"
        sweeps = list(logdir.glob("*/*.sweep.json"))
        if not sweeps:
            assert not runs_in(logdir)
            continue
        sweep = sweeps[0].name.removesuffix(".sweep.json")
        again = harness.run("train", "-m", f"resume={sweep}", cwd=tmp_path)
        assert again.status == 0, f"killed at call {at}: {again.text}"
        first, second = sorted(runs_in(logdir))
        assert reading.manifest(second)["status"] == "completed"
        assert_same_outcome(first, undisturbed, 4)
        assert [path for path in tree(logdir) if path.endswith(".tmp") and ".sweep.json" not in path] == []
        shutil.rmtree(logdir)


def test_ranks_of_which_the_first_is_killed_in_its_start_are_started_again_and_go_on(
    harness: Launcher, tmp_path: Path
) -> None:
    overrides = [*SMALL, *NOISE, "trainer.devices=2", "trainer.max_restarts=1", "data.batch_size=8"]
    whole = harness.run("train", *overrides, f"logdir={tmp_path / 'whole'}", cwd=tmp_path)
    assert whole.status == 0, whole.text
    # Python imports it at its start: in rank 0's first life it arms the killer.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if os.environ.get('RANK') == '0' and os.environ.get('TORCHELASTIC_RESTART_COUNT') == '0':\n"
        "    from faults import kill_at\n"
        "    kill_at.arm()\n"
    )
    # While the configuration is laid down: the run has a place that all ranks know of, and never showed.
    logdir, calls = tmp_path / "logs", tmp_path / "calls"
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    env = kill_at.environment(5, calls, logdir) | {"PYTHONPATH": path}
    done = harness.run("train", *overrides, f"logdir={logdir}", cwd=tmp_path, env=env)
    assert done.status == 0, done.text
    assert len(calls.read_text().splitlines()) == 5, "rank 0 was not killed where it was to be"
    run = reading.only_run(logdir)
    assert_same_outcome(run, reading.only_run(tmp_path / "whole"), 4)
    assert {path.name for path in (run / ".hydra").iterdir()} == {"config.yaml", "hydra.yaml", "overrides.yaml"}


# ---- what a resumption goes by ----------------------------------------------------------------------------------


def emptied(run: Path) -> None:
    (run / ".hydra" / "overrides.yaml").write_text("")


def cut(run: Path) -> None:
    path = run / ".hydra" / "overrides.yaml"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


def exchanged(run: Path) -> None:
    (run / ".hydra" / "overrides.yaml").write_text("- model=cnn\n")


def gone(run: Path) -> None:
    (run / ".hydra" / "overrides.yaml").unlink()


def without_folder(run: Path) -> None:
    shutil.rmtree(run / ".hydra")


def a_pipe(run: Path) -> None:
    gone(run)
    os.mkfifo(run / ".hydra" / "overrides.yaml")


def edited(run: Path) -> None:
    path = run / ".hydra" / "config.yaml"
    path.write_text(path.read_text().replace("max_steps: 4", "max_steps: 400"))


def manifest_edited(run: Path) -> None:
    (run / "run.json").write_text(json.dumps(reading.manifest(run) | {"overrides": []}))


def as_of_0_1_0(run: Path) -> None:
    """A run as version 0.1.0 has left it."""
    manifest = reading.manifest(run)
    del manifest["configuration"]
    (run / "run.json").write_text(json.dumps(manifest))
    (run / ".hydra" / "overrides.yaml").write_text("".join(f"- {text}\n" for text in manifest["overrides"]))
    for path in (run / "checkpoints").glob("step_*.pt"):
        state = load(path)
        del state["interval"]
        torch.save(state, path)


def old_and_emptied(run: Path) -> None:
    as_of_0_1_0(run)
    emptied(run)


def old_and_cut(run: Path) -> None:
    as_of_0_1_0(run)
    cut(run)


@pytest.mark.parametrize("resumed_before", [False, True], ids=["", "resumed before"])
@pytest.mark.parametrize(
    "damage",
    [emptied, cut, exchanged, gone, without_folder, a_pipe, edited, manifest_edited, old_and_emptied, old_and_cut],
    ids=lambda damage: damage.__name__,
)
def test_a_configuration_that_is_not_the_runs_is_refused(
    damage: Callable[[Path], None],
    resumed_before: bool,
    harness: Launcher,
    tmp_path: Path,
    undisturbed: Path,
    twice: Path,
) -> None:
    run = tmp_path / "logs" / "default" / "run"
    reading.copy(twice if resumed_before else undisturbed, run)
    damage(run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = harness.run("train", f"resume={run}", "trainer.max_steps=9", cwd=tmp_path, timeout=60)
    expect_usage_error(done, "cannot be resumed", "Put it back as it was")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module")
def twice(launcher: Launcher, undisturbed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was resumed with another number of steps."""
    run = tmp_path_factory.mktemp("twice") / "logs" / "default" / "run"
    reading.copy(undisturbed, run)
    done = launcher.run("train", f"resume={run}", "trainer.max_steps=5", cwd=run.parents[2])
    assert done.status == 0, done.text
    return run


def test_a_run_of_0_1_0_goes_on(harness: Launcher, tmp_path: Path, undisturbed: Path, longer: Path) -> None:
    run = tmp_path / "logs" / "default" / "run"
    reading.copy(undisturbed, run)
    as_of_0_1_0(run)
    done = harness.run("train", f"resume={run}", "trainer.max_steps=6", cwd=tmp_path)
    assert done.status == 0, done.text
    assert_same_outcome(run, longer, 6)
    cut(run)
    expect_usage_error(harness.run("train", f"resume={run}", "trainer.max_steps=7", cwd=tmp_path), "cannot be resumed")


def test_a_job_of_a_sweep_whose_manifest_is_damaged_is_not_begun_anew(harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("train", "-m", *SMALL, "seed=0,1", "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    first, second = sorted(runs_in(tmp_path / "logs"))
    (first / "run.json").write_text('{"id": "a/b", "sta')
    exchanged(second)
    checkpoints = {path: path.read_bytes() for path in (tmp_path / "logs").rglob("*.pt")}
    sweep = reading.manifest(second)["sweep"]
    again = harness.run("train", "-m", f"resume={sweep}", cwd=tmp_path)
    assert again.status == 2, again.text
    assert {path: path.read_bytes() for path in (tmp_path / "logs").rglob("*.pt")} == checkpoints
    assert (first / "run.json").read_text() == '{"id": "a/b", "sta'
    (tmp_path / "logs" / "default" / f"{sweep}.sweep.json").write_text("")
    expect_usage_error(harness.run("train", "-m", f"resume={sweep}", cwd=tmp_path), "cannot be read")


def test_what_a_sweep_is_given_when_it_goes_on_holds_from_then_on(harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("train", "-m", *SMALL, "seed=0,1", "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    sweep = reading.manifest(runs_in(tmp_path / "logs")[0])["sweep"]
    for run in runs_in(tmp_path / "logs"):
        (run / "run.json").write_text(json.dumps(reading.manifest(run) | {"status": "interrupted"}))
    killed = Killer(harness, tmp_path).run(30, "train", "-m", f"resume={sweep}", "trainer.max_steps=6")
    assert killed.status == KILLED, killed.text
    again = harness.run("train", "-m", f"resume={sweep}", cwd=tmp_path)
    assert again.status == 0, again.text
    assert [reading.manifest(run)["step"] for run in runs_in(tmp_path / "logs")] == [6, 6]


# ---- figures of a killed run ------------------------------------------------------------------------------------


def test_the_manifest_of_a_killed_run_holds_the_loss_of_its_newest_checkpoint(
    harness: Launcher, tmp_path: Path
) -> None:
    killer = Killer(harness, tmp_path)
    logdir = tmp_path / "logs"
    counted = killer.run(0, "train", *SMALL, f"logdir={logdir}")
    assert counted.status == 0, counted.text
    calls = (tmp_path / "calls-0").read_text().splitlines()
    shutil.rmtree(logdir)
    for step in (2, 4):
        # The next call after the checkpoint took its name.
        (at,) = [place for place, line in enumerate(calls, start=2) if "replace" in line and f"step_{step:08d}" in line]
        assert killer.run(at, "train", *SMALL, f"logdir={logdir}").status == KILLED
        (run,) = runs_in(logdir)
        assert Checkpoints(run / "checkpoints").steps()[-1] == step
        manifest = reading.manifest(run)
        assert manifest["step"] == step
        assert manifest["metrics"]["train/loss"] == pytest.approx(reading.scalars(run, "train/loss")[step])
        shutil.rmtree(logdir)
