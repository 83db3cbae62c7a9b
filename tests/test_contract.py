"""Every model with every data set that fits it, and every experiment, through the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import reading
from tests.launch import ROOT, TINY, Launcher, expect_usage_error, window_every
from tests.pictures import make_cifar10, make_image_folder

MODELS = {
    "cnn": ["model.widths=[4,8]", "model.strides=2"],
    "mlp": ["model.hidden=[8]"],
    "vit": ["model.width=8", "model.depth=1", "model.heads=2"],
    "resnet18": [],
    "transformer": ["model.width=8", "model.depth=1", "model.heads=2"],
    "matmul": [],
}
DATA = {
    "digits": ["data.batch_size=8"],
    "synthetic_images": ["data.batch_size=4", "data.train.shape=[3,16,16]", "data.train.num_classes=5"],
    "cifar10": ["data.batch_size=4", "data.workers=0", "data.train._target_=made.cifar10", "data.train.root=pictures"],
    "image_folder": ["data.batch_size=4", "data.workers=0", "data.train.root=pictures", "data.train.image_size=16"],
    "text": ["data.batch_size=4", "data.train.context_length=8", "trainer.eval_batches=3"],
    "synthetic_tokens": ["data.batch_size=4", "data.train.context_length=8", "data.train.vocab_size=50"],
    "synthetic_matrices": ["data.train.size=16"],
}
IMAGES = ("digits", "synthetic_images", "cifar10", "image_folder")
FITTING = [
    *((model, data) for model in ("cnn", "mlp", "vit") for data in IMAGES),
    *(("resnet18", data) for data in IMAGES if data != "digits"),  # it wants three channels
    ("transformer", "text"),
    ("transformer", "synthetic_tokens"),
    ("matmul", "synthetic_matrices"),
]
COMMON = [text for text in TINY if not text.startswith(("model", "data"))]


@pytest.fixture(scope="module")
def cwd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with pictures."""
    folder = tmp_path_factory.mktemp("contract")
    make_image_folder(folder / "pictures")
    (folder / "made.py").write_text(make_cifar10(folder / "pictures", each=4))
    return folder


def options(group: str, name: str) -> set[str]:
    return {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")} - {name}


def test_no_model_and_no_data_set_is_left_out() -> None:
    assert options("model", "custom") == set(MODELS)
    assert options("data", "custom") == set(DATA)


@pytest.mark.parametrize(("model", "data"), FITTING)
def test_a_model_trains_on_the_data_that_fits_it(
    model: str, data: str, harness: Launcher, cwd: Path, tmp_path: Path
) -> None:
    overrides = [f"model={model}", *MODELS[model], f"data={data}", *DATA[data]]
    if data == "cifar10":
        overrides.append("data.eval._target_=made.cifar10")
    if model == "matmul":
        overrides.append("optimizer=none")
    done = harness.run("train", *COMMON, *overrides, *window_every(1, 1, 2, 1), f"logdir={tmp_path}/logs", cwd=cwd)

    assert done.status == 0, done.text
    run = reading.only_run(tmp_path / "logs")
    manifest = reading.manifest(run)
    assert (manifest["status"], manifest["step"]) == ("completed", 6)
    assert manifest["choices"]["model"] == model
    assert manifest["parameters"] > 0
    assert reading.recorded(run) == {"window_00000002": [2, 3]}
    spans = reading.names(reading.trace(reading.windows(run)[0]), "user_annotation")
    if model == "matmul":
        assert spans.count("matmul_add") == 2
        assert "train/loss" not in manifest["metrics"]
    else:
        assert {"data", "forward", "loss", "backward", "optimizer"} <= set(spans)
        assert sorted(reading.scalars(run, "train/loss")) == [1, 2, 3, 4, 5, 6]
        assert all(0 < loss < 50 for loss in reading.scalars(run, "train/loss").values())
    evaluated = not data.startswith("synthetic")
    assert ("eval/loss" in manifest["metrics"]) == ("eval/accuracy" in manifest["metrics"]) == evaluated


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("cnn", "text"),
        ("mlp", "synthetic_matrices"),
        ("resnet18", "synthetic_tokens"),
        ("resnet18", "digits"),
        ("transformer", "digits"),
        ("transformer", "synthetic_matrices"),
        ("matmul", "digits"),
    ],
)
def test_what_does_not_fit_together_is_one_error_before_anything_is_written(
    model: str, data: str, harness: Launcher, cwd: Path, tmp_path: Path
) -> None:
    overrides = [f"model={model}", *MODELS[model], f"data={data}", *DATA[data]]
    done = harness.run("train", *COMMON, *overrides, f"logdir={tmp_path}/logs", cwd=cwd)
    expect_usage_error(done, logdir=tmp_path / "logs")
    assert "model" in done.err or "do not fit together" in done.err, done.err
    assert len(done.err.splitlines()) <= 3, done.err


EXPERIMENTS = {
    "lab5_cnn": (["data.train.shape=[3,32,32]", "data.batch_size=2", "model.widths=[4,4,4]"], 2),
    "matmul_sweep": (["data.train.size=16"], 2),
    "search_throughput": (["model.hidden=[8]", "trainer.max_steps=100"], 2),
    "sweep_joblib": (["model.hidden=[8]", "trainer.max_steps=100"], 1),
    "sweep_slurm": (["model.hidden=[8]", "trainer.max_steps=100"], 1),
    "mlp_digits": (["model.hidden=[8]", "trainer.max_steps=100"], 1),
    "text_transformer": (["model.width=8", "model.depth=1", "model.heads=2", "data.batch_size=2"], 1),
    "long_job": (["model.width=8", "model.depth=1", "model.heads=2", "data.batch_size=2", "profiler.skip_first=20"], 1),
}


def test_no_experiment_is_left_out() -> None:
    assert options("experiment", "") == set(EXPERIMENTS)


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_runs_with_windows(experiment: str, harness: Launcher, cwd: Path, tmp_path: Path) -> None:
    overrides, windows = EXPERIMENTS[experiment]
    tiny = ["trainer.device=cpu", "trainer.threads=1", "trainer.eval_batches=1"]
    if "trainer.max_steps=100" not in overrides and windows == 1:
        tiny.append("trainer.max_steps=100")
    if "scheduler" in (ROOT / "conf" / "experiment" / f"{experiment}.yaml").read_text():
        tiny.append("scheduler.warmup_steps=2")
    done = harness.run("train", f"experiment={experiment}", *tiny, *overrides, f"logdir={tmp_path}/logs", cwd=cwd)
    assert done.status == 0, done.text
    run = reading.only_run(tmp_path / "logs")
    assert run.parent.name == experiment
    manifest = reading.manifest(run)
    assert manifest["status"] == "completed"
    assert manifest["choices"]["experiment"] == experiment
    assert len(reading.windows(run)) == windows


def test_an_experiment_says_what_it_runs_with_and_runs_nothing_when_asked(harness: Launcher, tmp_path: Path) -> None:
    for experiment in EXPERIMENTS:
        done = harness.run("train", f"experiment={experiment}", "--cfg", "job", cwd=tmp_path)
        assert done.status == 0, done.text
        assert f"name: {experiment}" in done.out
    assert not list(tmp_path.iterdir())


PARTS = """
import torch
from torch.utils.data import Dataset


class Points(Dataset):
    def __init__(self, count):
        self.x = torch.linspace(-1, 1, count)[:, None]

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return {"x": self.x[index], "y": 3 * self.x[index]}


class Line(torch.nn.Module):
    def __init__(self, *, bias: bool = True):
        super().__init__()
        self.linear = torch.nn.Linear(1, 1, bias=bias)

    def forward(self, x):
        return self.linear(x)


class Regression:
    unit = "points"

    def __init__(self, power: int = 2):
        self.power = power

    def size(self, batch):
        return len(batch["x"])

    def forward(self, model, batch):
        return model(batch["x"])

    def loss(self, output, batch):
        return (output - batch["y"]).abs().pow(self.power).mean()

    def metrics(self, output, batch):
        return {"worst": (output - batch["y"]).abs().max()}


class Descent(torch.optim.SGD):
    pass


def halve(optimizer, every: int):
    return torch.optim.lr_scheduler.StepLR(optimizer, every, 0.5)
"""


def test_everything_of_ones_own_comes_in_through_target(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PARTS)
    done = harness.run(
        "train",
        *COMMON,
        "trainer.max_steps=60",
        *("model=custom", "model._target_=mine.Line", "+model.bias=false"),
        *("data=custom", "data.train._target_=mine.Points", "+data.train.count=64", "data.batch_size=16"),
        "data.eval={_target_: mine.Points, count: 5}",
        *("task=custom", "task._target_=mine.Regression", "+task.power=2"),
        *("optimizer=custom", "optimizer._target_=mine.Descent", "+optimizer.lr=0.5"),
        *("scheduler=custom", "scheduler._target_=mine.halve", "+scheduler.every=40"),
        "logdir=logs",
        cwd=tmp_path,
    )
    assert done.status == 0, done.text
    metrics = reading.manifest(reading.only_run(tmp_path / "logs"))["metrics"]
    assert metrics["eval/worst"] < 0.1
    assert metrics["train/lr"] == pytest.approx(0.25)
    assert metrics["perf/points_per_second"] > 0


def test_the_schedule_of_the_readme_leaves_exactly_the_windows_that_torch_names(
    harness: Launcher, tmp_path: Path
) -> None:
    done = harness.run(
        "train",
        *("trainer.max_steps=60", "profiler.wait=10", "profiler.warmup=2", "profiler.active=3", "profiler.repeat=3"),
        *("logdir=DIR", "name=check", "trainer.threads=1"),
        cwd=tmp_path,
    )
    assert done.status == 0, done.text
    run = reading.only_run(tmp_path / "DIR")
    assert run.parent == tmp_path / "DIR" / "check"
    assert reading.recorded(run) == {
        "window_00000012": [12, 13, 14],
        "window_00000027": [27, 28, 29],
        "window_00000042": [42, 43, 44],
    }
    for words in ("training loss", "evaluation accuracy", "3, the last at step 42", "harness board DIR"):
        assert words in done.out
