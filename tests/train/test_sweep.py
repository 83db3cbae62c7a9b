"""Sweeps: going on with one, what it found, what a sweeper is told; joblib, submitit and Optuna run the same jobs."""

from __future__ import annotations

import io
import json
import shutil
import signal
import xml.etree.ElementTree as xml
from pathlib import Path
from typing import Any

import msgspec
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from harness.errors import UsageError
from harness.logdir.rows import Row, pareto, sweep_rows
from harness.report.figure.sweep import draw
from harness.train.sweep import WORST, objective, resumed
from tests import reading
from tests.launch import NOISE, TINY, Launcher, expect_usage_error, wait_until, window_every

SLOW = ("data=custom", "data.train._target_=slow_digits.SlowDigits", "+data.train.seconds=0.05")


def runs_of(logs: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(logs.glob("*/*/run.json"))]


def test_an_interrupted_sweep_goes_on_where_it_stopped(harness: Launcher, tmp_path: Path) -> None:
    tiny = [text for text in TINY if not text.startswith(("trainer.max_steps", "checkpoint"))]
    arguments = [*tiny, *SLOW, "trainer.max_steps=20", "checkpoint.every=1", "optimizer.lr=1e-2,1e-3,1e-4"]
    command = harness.start("train", "-m", *arguments, "logdir=logs", cwd=tmp_path)
    logs = tmp_path / "logs"
    second = "*/*_001_*/checkpoints/*.pt"
    wait_until(lambda: len(list(logs.glob(second))) > 1 or not command.running, 60)
    command.signal(signal.SIGTERM)
    stopped = command.wait(30)
    assert stopped.status == 143, stopped.text
    first = runs_of(logs)
    assert [run["status"] for run in first] == ["completed", "interrupted"]
    sweep = first[0]["sweep"]
    assert f"harness train -m resume={sweep}" in stopped.out

    done = harness.run("train", "-m", f"resume={sweep}", "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    runs = runs_of(logs)
    assert [run["status"] for run in runs] == ["completed"] * 3
    assert {run["sweep"] for run in runs} == {sweep}
    assert runs[0] == first[0], "a finished job is left as it is"
    assert "was completed before: skipped" in done.said
    assert runs[1]["started"] == first[1]["started"]
    assert runs[1]["resumed_from"] == [first[1]["step"]]
    assert "3 of 3 runs completed" in done.out


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A sweep's file, as a command leaves it."""
    folder = tmp_path / "logs" / "job"
    folder.mkdir(parents=True)
    saved = {"id": "2026-11-29_10-00-00_abcd", "arguments": ["-m", "seed=0,1", "logdir=elsewhere", "name=job"]}
    (folder / "2026-11-29_10-00-00_abcd.sweep.json").write_text(json.dumps(saved))
    return tmp_path / "logs"


def test_a_sweep_is_found_by_its_id_and_by_its_path(logs: Path) -> None:
    sweep = "2026-11-29_10-00-00_abcd"
    expected = (["-m", "seed=0,1", "name=job", f"logdir={logs}", "trainer.max_steps=9"], sweep)
    more = "trainer.max_steps=9"
    assert resumed(["-m", f"resume={sweep}", f"logdir={logs}", more]) == expected
    assert resumed(["-m", f"resume={logs}/job/{sweep}", more]) == expected
    assert resumed(["-m", "seed=3"]) == (["-m", "seed=3"], None)


def test_a_sweep_that_is_not_there_is_said_so(logs: Path) -> None:
    with pytest.raises(UsageError, match=r"no such sweep in .*logs; there are .*_abcd"):
        resumed(["-m", "resume=gone", f"logdir={logs}"])


# ---- what it found ----------------------------------------------------------------------------------------------


def row(name: str, per_second: float | None, loss: float | None, status: str = "completed", **more: Any) -> Row:
    fields = {field.name: None for field in msgspec.structs.fields(Row) if field.required}
    given = {"id": name, "path": name, "status": status, "per_second": per_second, "loss": loss, "overrides": []}
    return Row(**(fields | given | {"windows": 0} | more))


def test_the_front_holds_what_no_other_run_beats() -> None:
    rows = [
        row("slow and good", 10, 0.1),
        row("fast and bad", 100, 0.9),
        row("between", 50, 0.5),
        row("beaten", 40, 0.6),
        row("beaten in loss alone", 50, 0.7),
        row("not over", 1000, 0.0, "interrupted"),
        row("no loss", 1000, None),
        row("judged by evaluation", 5, 0.0, eval_loss=2.0),
    ]
    assert [one.id for one in pareto(rows)] == ["fast and bad", "between", "slow and good"]


def test_a_sweep_is_a_table_with_the_figures_of_its_windows(harness: Launcher, tmp_path: Path) -> None:
    tiny = [text for text in TINY if not text.startswith(("profiler", "trainer.max_steps"))]
    done = harness.run(
        "train",
        "-m",
        *tiny,
        *window_every(1, 1, 2, 1),
        "profiler.profile_memory=true",
        "trainer.max_steps=6",
        "data.batch_size=8,16",
        "logdir=logs",
        cwd=tmp_path,
    )
    assert done.status == 0, done.text
    logs = tmp_path / "logs"
    shown = harness.run("runs", "logs", "--sweep", cwd=tmp_path)
    assert shown.status == 0, shown.text
    found = json.loads(harness.run("runs", "logs", "--sweep", "--format", "json", cwd=tmp_path).out)
    labels = [reading.label(reading.windows(tmp_path / one["path"])[-1]) for one in found]
    assert [one["verdict"] for one in found] == labels
    for word in ("●", *labels, "MiB", "samples/s", "2 of 2 runs completed"):
        assert word in shown.out
    assert all(one["peak_mib"] > 0 for one in found)
    assert any(one["pareto"] for one in found)
    rows = sweep_rows(logs, found[0]["sweep"][:19])
    assert [one.id for one in rows] == [one["id"] for one in found]
    with pytest.raises(UsageError, match="no sweep that begins with 1999"):
        sweep_rows(logs, "1999")

    drawn = harness.run("runs", "logs", "--sweep", "--figure", "sweep.svg", cwd=tmp_path)
    assert drawn.status == 0, drawn.text
    texts = [element.text for element in xml.fromstring((tmp_path / "sweep.svg").read_text()).iter()]
    assert {"8", "16", "data.batch_size"} <= set(texts)

    own = EventAccumulator(str(logs / "default" / str(rows[0].sweep)), size_guidance={"images": 0}).Reload()
    (image,) = own.Images("sweep/step time against data.batch_size")
    with Image.open(io.BytesIO(image.encoded_image_string)) as picture:
        assert (image.width, image.height) == picture.size
        colours = {colour for _, colour in picture.getcolors(1 << 16) or []}
    assert {(0x47, 0x55, 0x69), (0xC2, 0x41, 0x0C)} <= colours, "the step's line and the host's"

    events = EventAccumulator(rows[0].path).Reload()
    plugin = events.SummaryMetadata("_hparams_/experiment").plugin_data
    metrics = HParamsPluginData.FromString(plugin.content).experiment.metric_infos
    tags = {info.name.tag for info in metrics}
    assert {"train/loss", "perf/samples_per_second", "perf/step_time_ms", "window/verdict"} <= tags
    assert {"perf/samples_per_second", "window/verdict", "window/peak_allocated_mib"} <= set(events.Tags()["scalars"])
    (verdict,) = (info for info in metrics if info.name.tag == "window/verdict")
    assert "8: cpu-bound" in verdict.description


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([["model=mlp"], ["model=cnn"]], "model is none"),
        ([["seed=0", "a=1"], ["seed=1", "a=2"]], "varies seed, a"),
        ([["seed=0"], ["seed=1"]], "seed goes down to 0"),
        ([["seed=1"], ["seed=2"]], "0 runs of the sweep have windows"),
    ],
)
def test_what_cannot_be_drawn_is_said_so(overrides: list[list[str]], told: str, tmp_path: Path) -> None:
    rows = [row(str(number), 1, 1, overrides=texts) for number, texts in enumerate(overrides)]
    with pytest.raises(UsageError, match=told):
        draw(rows, tmp_path / "x.svg")
    assert not (tmp_path / "x.svg").exists()


def test_a_figure_needs_a_sweep(harness: Launcher, tmp_path: Path) -> None:
    expect_usage_error(harness.run("runs", ".", "--figure", "x.svg", cwd=tmp_path), "give --sweep")


# ---- what a sweeper is told --------------------------------------------------------------------------------------


def test_a_sweeper_is_told_the_loss_or_what_was_asked_for() -> None:
    metrics = {"train/loss": 2.0, "eval/loss": 3.0, "perf/samples_per_second": 50.0, "memory/peak_allocated_mib": 300.0}
    assert objective(metrics, None, maximize=False, max_memory_mib=None) == 3.0
    assert objective({"train/loss": 2.0}, None, maximize=False, max_memory_mib=None) == 2.0
    speed = "perf/samples_per_second"
    assert objective(metrics, speed, maximize=True, max_memory_mib=300) == 50.0
    assert objective(metrics, speed, maximize=True, max_memory_mib=150) == -2 * WORST
    assert objective(metrics, speed, maximize=False, max_memory_mib=100) == 3 * WORST
    with pytest.raises(UsageError, match=r"objective.metric=speed.*perf/samples_per_second"):
        objective(metrics, "speed", maximize=True, max_memory_mib=None)
    with pytest.raises(UsageError, match="peak memory is not known"):
        objective({"train/loss": 1.0}, None, maximize=True, max_memory_mib=100)


# ---- engines ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("srun") is not None, reason="there is Slurm")
def test_a_launcher_that_cannot_start_a_job_says_why(harness: Launcher, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    done = harness.run("train", "-m", *TINY, "hydra/launcher=submitit_slurm", "seed=0,1", "logdir=logs", cwd=tmp_path)
    expect_usage_error(done, "no job of the sweep could be started", "srun", logdir=tmp_path / "logs")


def test_submitit_runs_the_jobs_as_slurm_would(harness: Launcher, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    tiny = [text for text in TINY if not text.startswith("model")]
    local = ("hydra/launcher=submitit_local", "hydra.launcher.gpus_per_node=null")
    done = harness.run(
        "train", "-m", "experiment=sweep_slurm", *local, *tiny, *NOISE, "optimizer.lr=1e-2", "logdir=logs", cwd=tmp_path
    )
    assert done.status == 0, done.text
    runs = runs_of(tmp_path / "logs")
    assert [run["status"] for run in runs] == ["completed"]
    assert list((tmp_path / ".submitit").rglob("*_result.pkl"))
    assert {path.name for path in tmp_path.iterdir()} == {"logs", ".submitit"}


def test_optuna_looks_for_speed_within_the_memory(harness: Launcher, tmp_path: Path) -> None:
    """Without a limit that any run keeps to, the one that is least over it is the best."""
    pytest.importorskip("hydra_plugins.hydra_optuna_sweeper")
    tiny = [text for text in TINY if not text.startswith(("model", "profiler", "trainer.max_steps", "data"))]
    done = harness.run(
        "train",
        "-m",
        "experiment=search_throughput",
        *tiny,
        *window_every(1, 1, 2, 1),
        "profiler.profile_memory=true",
        "trainer.max_steps=5",
        "objective.max_memory_mib=0.001",
        "hydra.sweeper.n_trials=3",
        "logdir=logs",
        cwd=tmp_path,
    )
    assert done.status == 0, done.text
    runs = runs_of(tmp_path / "logs")
    assert [run["status"] for run in runs] == ["completed"] * 3
    (results,) = (tmp_path / "logs" / "search_throughput").glob("optimization_results.yaml")
    best = float(next(line for line in results.read_text().splitlines() if "best_value" in line).split()[-1])
    peaks = [run["metrics"]["window/peak_allocated_mib"] for run in runs]
    assert best == pytest.approx(-WORST * min(peaks) / 0.001, rel=1e-6)
    names = [Path(run["id"]).name for run in runs]
    again = harness.run("train", "-m", f"resume={runs[0]['sweep']}", "logdir=logs", cwd=tmp_path)
    assert again.status == 0, again.text
    assert [Path(run["id"]).name for run in runs_of(tmp_path / "logs")] == names, "the seed asks the same again"
    assert again.said.count("was completed before: skipped") == 3
