"""Runs of 0.1.0, as it has left them on disk: a run with a window, and a sweep of which one job of two was trained.

Its modules had other names, and these runs' overrides name them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from harness.logdir.manifest import read_manifest
from tests import reading
from tests.launch import Launcher

RECORDED = Path(__file__).parents[1] / "runs_of_0_1_0" / "logs"
ONE, SWEEP = "2026-11-30_20-45-34_6fc8", "2026-11-30_20-45-43_abe5"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the command of 0.1.0 was given, with its logdir."""
    shutil.copytree(RECORDED, tmp_path / "logs")
    return tmp_path


def test_a_run_is_gone_on_with(folder: Path, harness: Launcher) -> None:
    run = folder / "logs" / "one" / ONE
    named = [text for text in read_manifest(run).overrides if "._target_=" in text]
    assert named == [
        "model._target_=models.MLP",
        "task._target_=harness.tasks.Classification",
        "scheduler._target_=harness.schedulers.warmup_cosine",
        "data.train._target_=harness.data.Digits",
    ]
    done = harness.run("train", f"resume=logs/one/{ONE}", "trainer.max_steps=6", cwd=folder)
    assert done.status == 0, done.text
    manifest = read_manifest(run)
    assert (manifest.status, manifest.step, manifest.resumed_from) == ("completed", 6, [4])
    assert list(reading.scalars(run, "train/loss")) == [1, 2, 3, 4, 5, 6]


def test_a_sweep_is_gone_on_with(folder: Path, harness: Launcher) -> None:
    done = harness.run("train", "-m", f"resume={SWEEP}", cwd=folder)
    assert done.status == 0, done.text
    assert f"many/{SWEEP}_000_seed=1 was completed before: skipped" in done.said
    second = read_manifest(folder / "logs" / "many" / f"{SWEEP}_001_seed=2")
    assert (second.status, second.step) == ("completed", 3)


def test_they_are_listed_and_reported_on(folder: Path, harness: Launcher) -> None:
    listing = harness.start("runs", "logs", "--format", "json", cwd=folder)
    report = harness.start("report", f"logs/one/{ONE}", "--format", "json", cwd=folder)
    rows = {row["id"]: row for row in json.loads(listing.wait().out)}
    assert rows[f"one/{ONE}"]["status"] == "completed"
    assert rows[f"one/{ONE}"]["windows"] == 1
    assert rows[f"many/{SWEEP}_000_seed=1"]["sweep"] == SWEEP
    written = json.loads((folder / "logs" / "one" / ONE / "profile" / "window_00000001" / "window.json").read_text())
    assert json.loads(report.wait().out)["verdict"] == written["verdict"]
