"""``harness runs``: what there is below a logdir, read off the manifests."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import reading
from tests.launch import TINY, Launcher, expect_usage_error, wait_until, window_every


def rows(harness: Launcher, logdir: Path) -> list[dict[str, Any]]:
    done = harness.run("runs", str(logdir), "--format", "json")
    assert done.status == 0, done.text
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


@pytest.fixture(scope="module")
def finished(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logdir with one run that is over; not to be changed."""
    cwd = tmp_path_factory.mktemp("runs")
    overrides = [text for text in TINY if not text.startswith("profiler")]
    done = launcher.run("train", *overrides, *window_every(1, 1, 1, 2), "logdir=logs", "name=small", cwd=cwd)
    assert done.status == 0, done.text
    return cwd / "logs"


@pytest.fixture
def logs(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "logs"))


def another(run: Path, name: str, **changes: Any) -> Path:
    """A copy of a run whose manifest says something else."""
    copy = Path(shutil.copytree(run, run.parent / name))
    manifest = reading.manifest(copy) | {"id": f"{run.parent.name}/{name}"} | changes
    (copy / "run.json").write_text(json.dumps(manifest))
    return copy


def test_a_row_tells_how_a_run_went(harness: Launcher, logs: Path) -> None:
    run = reading.only_run(logs)
    (row,) = rows(harness, logs)
    metrics = reading.manifest(run)["metrics"]
    assert row["id"] == f"small/{run.name}"
    assert Path(row["path"]) == run
    assert (row["status"], row["step"], row["max_steps"], row["windows"]) == ("completed", 6, 6, 2)
    assert row["loss"] == metrics["train/loss"]
    assert row["eval_loss"] == metrics["eval/loss"]
    assert (row["per_second"], row["unit"]) == (metrics["perf/samples_per_second"], "samples")
    assert row["choices"]["model"] == "mlp"
    assert "model.hidden=[8]" in row["overrides"]
    assert row["sweep"] is None
    assert row["error"] is None


def test_the_table_shows_the_same_to_people(harness: Launcher, logs: Path) -> None:
    run = reading.only_run(logs)
    done = harness.run("runs", "logs", cwd=logs.parent)
    assert done.status == 0
    (line,) = (line for line in done.out.splitlines() if run.name in line)
    loss = reading.manifest(run)["metrics"]["train/loss"]
    for word in ("completed", "6/6", f"{loss:.4g}", "samples/s"):
        assert word in line
    assert line.split()[-2:] == ["2", reading.label(reading.windows(run)[-1])]


def test_windows_of_a_loop_of_ones_own_are_a_run_too(harness: Launcher, logs: Path) -> None:
    """Without a manifest; what the newest window's findings say is known."""
    own = Path(shutil.copytree(reading.only_run(logs), logs / "mine"))
    (own / "run.json").unlink()
    (row,) = (row for row in rows(harness, logs) if row["id"] == "mine")
    newest = json.loads((reading.windows(own)[-1] / "window.json").read_text())
    assert (row["status"], row["step"], row["max_steps"], row["windows"]) == ("ended", 6, None, 2)
    assert row["verdict"] == newest["verdict"]["label"]
    assert row["step_time_ms"] == newest["step_time"]["unprofiled_median_us"] / 1e3
    assert (row["loss"], row["device"], row["error"]) == (None, "cpu", None)
    (line,) = (line for line in harness.run("runs", "logs", cwd=logs.parent).out.splitlines() if "mine" in line)
    assert line.split() == ["mine", "ended", "6", "2", row["verdict"]]


def test_the_newest_come_first(harness: Launcher, logs: Path) -> None:
    run = reading.only_run(logs)
    another(run, "older", started="2020-01-01T00:00:00.000+00:00")
    another(run, "newer", started="2990-01-01T00:00:00.000+00:00")
    assert [row["id"] for row in rows(harness, logs)] == ["small/newer", f"small/{run.name}", "small/older"]


def test_a_run_that_was_killed_is_said_to_be_and_one_that_runs_to_run(harness: Launcher, tmp_path: Path) -> None:
    slow = ("data=custom", "data.train._target_=slow_digits.SlowDigits", "+data.train.seconds=0.05")
    overrides = [text for text in TINY if not text.startswith("trainer.max_steps")]
    command = harness.start("train", *overrides, *slow, "trainer.max_steps=1000", "logdir=logs", cwd=tmp_path)
    wait_until(lambda: "step 1/" in command.text or not command.running, 60)
    assert [row["status"] for row in rows(harness, tmp_path / "logs")] == ["running"]
    command.signal(signal.SIGKILL)
    command.wait(10)
    assert [row["status"] for row in rows(harness, tmp_path / "logs")] == ["killed"]
    assert "killed" in harness.run("runs", "logs", cwd=tmp_path).out
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["status"] == "running", "reading changes nothing"


@pytest.mark.parametrize(
    "content",
    ['{"id": "small/damaged", "status": "comp', "", "[]", '{"id": 3}', "\x00\xff"],
    ids=["truncated", "empty", "a list", "of another schema", "binary"],
)
def test_a_run_whose_manifest_is_damaged_is_shown_as_such(content: str, harness: Launcher, logs: Path) -> None:
    run = another(reading.only_run(logs), "damaged")
    (run / "run.json").write_text(content)
    found = {row["id"]: row for row in rows(harness, logs)}
    assert len(found) == 2
    damaged = found["small/damaged"]
    assert damaged["status"] == "failed"
    assert str(run / "run.json") in damaged["error"]
    assert damaged["windows"] == 2
    shown = harness.run("runs", str(logs))
    assert shown.status == 0
    assert "small/damaged" in shown.out
    assert "cannot be read" in shown.said


def test_a_manifest_of_a_newer_version_with_more_in_it_is_read(harness: Launcher, logs: Path) -> None:
    another(reading.only_run(logs), "newer", something_new={"a": 1})
    assert {row["status"] for row in rows(harness, logs)} == {"completed"}


def test_an_error_with_brackets_is_shown_as_it_is(harness: Launcher, logs: Path) -> None:
    another(reading.only_run(logs), "failed", status="failed", error="shape [bold] of [/x] is no [red]")
    assert "shape [bold] of [/x] is no [red]" in harness.run("runs", str(logs)).said


def test_a_logdir_without_runs_says_how_to_get_one(harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("runs", str(tmp_path))
    assert done.status == 0
    assert "no runs" in done.out
    assert "harness train" in done.out
    assert rows(harness, tmp_path) == []


@pytest.mark.parametrize("place", ["away", "file"])
def test_a_logdir_that_is_none_is_told_with_status_2(place: str, harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    expect_usage_error(harness.run("runs", str(tmp_path / place)), str(tmp_path / place))


def test_the_folder_that_is_a_run_itself_will_do(harness: Launcher, logs: Path) -> None:
    run = reading.only_run(logs)
    assert [row["id"] for row in rows(harness, run)] == [f"small/{run.name}"]


def test_a_closed_pipe_ends_quietly(harness: Launcher, logs: Path) -> None:
    import subprocess
    import sys

    from tests.launch import environment

    for number in range(300):
        another(reading.only_run(logs / "small") if number == 0 else logs / "small" / "copy0", f"copy{number}")
    command = f'{sys.executable} -c "from harness.cli import main; main()" runs {logs} | head -n 1'
    done = subprocess.run(["bash", "-c", command], env=environment(), capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert "Traceback" not in done.stderr, done.stderr
