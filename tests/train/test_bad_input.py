"""A user's mistake ends with status 2 and one message; a full disk ends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image

from harness.train.checkpoint import Checkpoints, load
from tests import reading
from tests.launch import TINY, Ended, Launcher, expect_usage_error, tree
from tests.pictures import make_image_folder

CUDA = torch.cuda.is_available()


def train(harness: Launcher, cwd: Path, *overrides: str) -> Ended:
    """The smallest job with ``overrides``, in a logdir ``logs`` that is not there yet."""
    chosen = {text.partition("=")[0] for text in overrides}
    groups = {key for key in chosen if "." not in key}
    tiny = [text for text in TINY if text.partition("=")[0] not in chosen and text.split(".")[0] not in groups]
    return harness.run("train", *tiny, *overrides, "logdir=logs", cwd=cwd)


MISTAKES: dict[str, tuple[list[str], list[str]]] = {
    "unknown key": (["nonsense=1"], ["nonsense"]),
    "misspelt key": (["trainer.max_step=5"], ["trainer.max_step: trainer has no such key; did you mean max_steps"]),
    "misspelt group": (["modle=mlp"], ["modle: there is no such group or key; did you mean model"]),
    "misspelt argument": (["model.hiden=[8]"], ["model.hiden: model has no such key", "did you mean hidden?"]),
    "unknown key added": (["+trainer.extra=1"], ["extra"]),
    "unknown group option": (["model=resnet19"], ["model=resnet19: there is no such option; did you mean resnet18?"]),
    "unknown experiment": (["experiment=lab6"], ["experiment=lab6: ", "lab5_cnn"]),
    "text for a number": (["trainer.max_steps=many"], ["trainer.max_steps", "many"]),
    "fraction for a count": (["data.batch_size=1.5"], ["data.batch_size", "1.5"]),
    "text for a switch": (["trainer.compile=maybe"], ["trainer.compile", "maybe"]),
    "no such choice": (["trainer.precision=fp8"], ["trainer.precision", "fp8", "bf16"]),
    "null for a count": (["trainer.max_steps=null"], ["max_steps"]),
    "list for a count": (["trainer.max_steps=[1]"], ["max_steps"]),
    "open bracket": (["model.hidden=[1"], ["[1"]),
    "no value": (["trainer.max_steps"], ["trainer.max_steps"]),
    "window after the end": (
        ["profiler=periodic", "profiler.wait=95", "trainer.max_steps=50"],
        ["profiler", "wait=95", "trainer.max_steps=50", "profiler.wait=45", "profiler=none"],
    ),
    "negative wait": (["profiler=periodic", "profiler.wait=-1"], ["profiler.wait", "-1"]),
    "no activity": (["profiler=periodic", "profiler.activities=[]"], ["profiler.activities"]),
    "missing root": (["data=image_folder"], ["data.train.root is missing", "data.train.root=..."]),
    "root that is not there": (["data=image_folder", "data.train.root=away"], ["data.train.root=away", "train"]),
    "CIFAR-10 that is not there": (
        ["data=cifar10", "data.train.root=away"],
        ["data.train.root=away", "data.train.download=true"],
    ),
    "text that is not there": (["data=text", "model=transformer", "data.train.file=away.txt"], ["away.txt"]),
    "too long a context": (
        ["data=text", "model=transformer", "data.train.context_length=9000000"],
        ["context_length=9000000"],
    ),
    "no such level": (["data=text", "model=transformer", "data.train.level=words"], ["data.train.level=words"]),
    "more a batch than there are": (["data.batch_size=5000"], ["data.batch_size=5000", "1437"]),
    "workers for a maker": (["data=synthetic_images", "data.workers=2"], ["data.workers=2", "SyntheticImages"]),
    "name with a slash": (["name=a/b"], ["name='a/b'"]),
    "name that leads elsewhere": (["name=.."], ["name='..'"]),
    "empty name": (["name=''"], ["name"]),
    "module that is not there": (["model=custom", "model._target_=away.Model"], ["model._target_=away.Model", "away"]),
    "class that is not there": (["model=custom", "model._target_=models.Away"], ["model._target_=models.Away", "Away"]),
    "target without a dot": (["model=custom", "model._target_=Model"], ["model._target_=Model"]),
    "target that nobody can call": (["model=custom", "model._target_=math.pi"], ["model._target_=math.pi"]),
    "module with a syntax error": (["model=custom", "model._target_=broken.Model"], ["model._target_=broken.Model"]),
    "module that fails": (["model=custom", "model._target_=failing.Model"], ["model._target_=failing.Model", "mine"]),
    "no target": (["model=custom"], ["model._target_"]),
    "argument that it does not take": (["+model.depth=3"], ["model.depth", "hidden"]),
    "argument of another type": (["model.hidden=[a]"], ["model.hidden"]),
    "argument that it refuses": (["model=cnn", "model.kernel_sizes=4"], ["model", "kernel_sizes must be odd"]),
    "argument that does not fit the data": (["model=vit", "model.patch_size=5"], ["model", "patch_size 5"]),
    "text for a learning rate": (["optimizer.lr=fast"], ["optimizer.lr=fast"]),
    "learning rate that torch refuses": (["optimizer.lr=-1"], ["optimizer", "-1"]),
    "schedule without an optimizer": (["optimizer=none", "scheduler=cosine"], ["scheduler", "optimizer"]),
    "loss without an optimizer": (["optimizer=none"], ["optimizer"]),
    "task that does not fit": (["task=language_modeling"], ["do not fit together"]),
    "no such device": (["trainer.device=gpu"], ["trainer.device=gpu", "cuda"]),
    "device without arithmetic": (["trainer.device=meta"], ["trainer.device=meta"]),
    "windows of a GPU alone where there is none": (
        ["profiler=periodic", "profiler.wait=1", "profiler.activities=[cuda]"],
        ["profiler", "cuda", "cpu"],
    ),
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("modules")
    (folder / "broken.py").write_text("class Model(:\n")
    (folder / "failing.py").write_text("raise RuntimeError('mine')\n")
    return folder


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_message_that_names_key_and_value(
    mistake: str, harness: Launcher, modules: Path, tmp_path: Path
) -> None:
    if CUDA and "GPU alone" in mistake:
        pytest.skip("there is a GPU")
    overrides, words = MISTAKES[mistake]
    for module in modules.iterdir():
        if module.is_file():
            (tmp_path / module.name).write_bytes(module.read_bytes())
    done = train(harness, tmp_path, *overrides)
    expect_usage_error(done, *words, logdir=tmp_path / "logs")
    assert len(done.err.splitlines()) <= 16, done.err
    assert "choose another logdir" not in done.err, done.err
    left = {path for path in tree(tmp_path) if "__pycache__" not in path}
    assert left <= {"broken.py", "failing.py", "logs"}


def test_several_mistakes_are_told_together(harness: Launcher, tmp_path: Path) -> None:
    as_given = (
        "trainer.max_steps=0",
        "trainer.log_every=0",
        "trainer.grad_clip=-1",
        "trainer.threads=0",
        "trainer.matmul_precision=low",
        "data.batch_size=0",
        "data.workers=-1",
        "seed=-1",
        "name='a b'",
    )
    others = {
        "profiler.active": "profiler.active=0",
        "profiler.activities=['cpu', 'gpu']": "profiler.activities=[cpu,gpu]",
    }
    done = train(harness, tmp_path, "profiler=periodic", *as_given, *others.values())
    expect_usage_error(done, "11 problems", *as_given, "medium", *others, logdir=tmp_path / "logs")
    # What needs torch is looked at when the rest is right.
    as_given = ("trainer.device=cuda:63", "optimizer._target_=away.Optimizer")
    done = train(harness, tmp_path, *as_given, "model.hidden=[a]")
    words = ("3 problems", *as_given, "auto", "model.hidden")
    expect_usage_error(done, *words, logdir=tmp_path / "logs")


@pytest.mark.parametrize("place", ["a file", "below a file", "no folder of one's own"])
def test_a_logdir_that_cannot_be_written_is_named(place: str, harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    logdir = {"a file": "file", "below a file": "file/logs", "no folder of one's own": "/proc/logs"}[place]
    done = harness.run("train", *TINY, f"logdir={logdir}", cwd=tmp_path)
    expect_usage_error(done, logdir, "choose another logdir")
    assert tree(tmp_path) == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_staging_folder_that_cannot_be_made_is_named(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / ".logs.staging").write_text("in the way")
    done = train(harness, tmp_path, "profiler=periodic", "profiler.wait=1", "profiler.activities=[cpu]")
    assert done.status == 2, done.text
    assert "Traceback" not in done.text
    assert ".logs.staging" in done.err
    assert tree(tmp_path / "logs") == []


def test_a_mistake_leaves_other_runs_of_the_experiment_alone(harness: Launcher, tmp_path: Path) -> None:
    assert train(harness, tmp_path).status == 0
    before = tree(tmp_path / "logs")
    done = train(harness, tmp_path, "data.batch_size=5000")
    expect_usage_error(done, "5000", logdir=tmp_path / "logs", left=before)


def test_a_picture_that_is_none_is_named(harness: Launcher, tmp_path: Path) -> None:
    make_image_folder(tmp_path / "pictures", each=1)
    for picture in (tmp_path / "pictures" / "train").rglob("*.png"):
        picture.write_bytes(b"no picture")
    done = train(
        harness,
        tmp_path,
        *("data=image_folder", "data.train.root=pictures", "data.train.image_size=8", "data.batch_size=2"),
        *("data.workers=0", "model=cnn"),
    )
    expect_usage_error(done, ".png", logdir=tmp_path / "logs")


def test_pictures_of_several_sizes_and_modes_are_no_mistake(harness: Launcher, tmp_path: Path) -> None:
    make_image_folder(tmp_path / "pictures", each=2)
    Image.new("L", (9, 30)).save(tmp_path / "pictures" / "train" / "cat" / "grey.png")
    Image.new("RGBA", (30, 9)).save(tmp_path / "pictures" / "train" / "dog" / "clear.png")
    done = train(
        harness,
        tmp_path,
        *("data=image_folder", "data.train.root=pictures", "data.train.image_size=8", "data.batch_size=3"),
        *("data.workers=0", "model=cnn"),
    )
    assert done.status == 0, done.text


def test_a_disk_that_fills_with_checkpoints_ends_nothing_but_its_last_one_is_missed(
    harness: Launcher, small_disk: Path, tmp_path: Path
) -> None:
    done = harness.run(
        "train",
        *(text for text in TINY if not text.startswith(("model.hidden", "trainer.max_steps", "checkpoint"))),
        *("model.hidden=[500]", "trainer.max_steps=20", "checkpoint.every=1", "checkpoint.keep=99"),
        f"logdir={small_disk}/logs",
        cwd=tmp_path,
    )
    assert done.status == 1, done.text
    assert "Traceback" not in done.text
    assert "step 20/20" in done.err
    assert "step 20 is done, but its state is not on disk" in done.said
    assert "No space left on device" in done.said
    assert "could not be written, training goes on" in done.said
    (directory,) = (small_disk / "logs").rglob("checkpoints")
    kept = Checkpoints(directory).steps()
    assert kept == list(range(1, len(kept) + 1))
    assert 3 < len(kept) < 20
    for step in kept:
        assert load(directory / f"step_{step:08d}.pt")["state"]["step"] == step
    assert [path for path in tree(directory) if path.endswith(".tmp")] == []


def test_a_disk_that_is_full_for_everything_ends_nothing_and_is_told(
    harness: Launcher, small_disk: Path, tmp_path: Path
) -> None:
    command = harness.start(
        "train",
        *(text for text in TINY if not text.startswith(("data", "trainer.max_steps", "profiler", "checkpoint"))),
        *("data=custom", "data.train._target_=fill_later.Digits", f"+data.train.disk={small_disk}"),
        *("trainer.max_steps=400", "profiler.wait=50", "profiler.warmup=1", "profiler.active=3"),
        *("profiler.activities=[cpu]", "checkpoint.every=50", "logger.histograms_every=2"),
        f"logdir={small_disk}/logs",
        cwd=write_fill_later(tmp_path),
    )
    done = command.wait()
    # Lost windows leave room of which the last checkpoint may be in time to make use.
    saved = 400 in Checkpoints(reading.only_run(small_disk / "logs") / "checkpoints").steps()
    assert done.status == (0 if saved else 1), done.text
    assert ("its state is not on disk" in done.said) == (not saved)
    assert "Traceback" not in done.text, done.text
    assert "step 400/400" in done.err
    for words in ("checkpoint", "a window was lost, training goes on", "event file cannot be written"):
        assert words in done.said, done.text
    run = reading.only_run(small_disk / "logs")
    reading.manifest(run)
    for window in reading.windows(run):
        assert len(reading.steps(window)) == 3
    for step in Checkpoints(run / "checkpoints").steps():
        load(run / "checkpoints" / f"step_{step:08d}.pt")
    reading.events(run)


def write_fill_later(folder: Path) -> Path:
    (folder / "fill_later.py").write_text(
        "import shutil\n"
        "from pathlib import Path\n"
        "from harness import data\n"
        "class Digits(data.Digits):\n"
        "    def __init__(self, *, disk: str):\n"
        "        super().__init__()\n"
        "        self.disk, self.count = Path(disk), 0\n"
        "    def batch(self, indices):\n"
        "        self.count += 1\n"
        "        if self.count == 120:\n"
        "            (self.disk / 'filler').write_bytes(b'x' * shutil.disk_usage(self.disk).free)\n"
        "        return super().batch(indices)\n"
    )
    return folder


def test_a_diverging_run_ends_with_status_1_and_one_message(harness: Launcher, tmp_path: Path) -> None:
    done = train(harness, tmp_path, "optimizer=sgd", "optimizer.lr=1e30", "checkpoint.enabled=true", "data.workers=2")
    assert done.status == 1
    assert "Traceback" not in done.text
    assert done.err.count("error:") == 1
    assert "the loss of step 1 is" in " ".join(done.err.split())
    run = reading.only_run(tmp_path / "logs")
    manifest = reading.manifest(run)
    assert manifest["status"] == "failed"
    assert "step 1" in manifest["error"]
    assert (run / "checkpoints" / "diverged.pt").is_file()


def test_a_bug_of_the_users_own_model_shows_its_traceback(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "class Model(torch.nn.Linear):\n"
        "    def __init__(self):\n"
        "        super().__init__(64, 10)\n"
        "    def forward(self, x):\n"
        "        if torch.is_grad_enabled():\n"
        "            raise LookupError('my own bug')\n"
        "        return super().forward(x.flatten(1))\n"
    )
    done = train(harness, tmp_path, "model=custom", "model._target_=mine.Model")
    assert done.status == 1
    assert "mine.py" in done.err
    assert "my own bug" in done.err
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["status"] == "failed"
