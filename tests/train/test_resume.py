"""A job that is stopped, by whom and how often it may be, ends as one that never was."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import threading
from pathlib import Path

import msgspec
import pytest
import torch

from harness.train.checkpoint import Checkpoints, load
from tests import reading
from tests.distributed import jobs
from tests.launch import NOISE, TINY, Command, Ended, Launcher, expect_usage_error, tree, wait_until, window_every
from tests.pictures import make_image_folder

COMMON = (
    *TINY,
    "trainer.max_steps=14",
    "checkpoint.enabled=true",
    "checkpoint.every=4",
    "checkpoint.keep=99",
    "scheduler=cosine",
    "scheduler.max_steps=14",
)
CNN = ("model=cnn", "model.widths=[4]", "model.strides=2", "~model.hidden")
TRANSFORMER = (
    "model=transformer",
    "model.width=16",
    "model.depth=1",
    "model.heads=2",
    "model.dropout=0.2",
    "data=text",
    "data.train.context_length=16",
    "data.batch_size=8",
    "trainer.eval_batches=3",
    "~model.hidden",
)
SLOW = ("data=custom", "data.train._target_=slow_digits.SlowDigits", "data.batch_size=16")


def job(*overrides: str) -> list[str]:
    """``COMMON`` without the MLP's own keys where another model is chosen, then ``overrides``."""
    chosen = [text for text in overrides if text != "~model.hidden"]
    common = [text for text in COMMON if not ("~model.hidden" in overrides and text.startswith("model"))]
    keys = {text.partition("=")[0] for text in chosen}
    if "scheduler" in keys:
        keys.add("scheduler.max_steps")
    return ["train", *(text for text in common if text.partition("=")[0] not in keys), *chosen]


def train(harness: Launcher, cwd: Path, *overrides: str) -> Ended:
    return harness.run(*job(*overrides), cwd=cwd)


def start(harness: Launcher, cwd: Path, *overrides: str) -> Command:
    return harness.start(*job(*overrides), cwd=cwd)


def resume(harness: Launcher, run: Path, *overrides: str) -> Ended:
    return harness.run("train", f"resume={run}", *overrides, cwd=run.parents[2])


def final_model(run: Path, step: int) -> dict[str, torch.Tensor]:
    model: dict[str, torch.Tensor] = load(run / "checkpoints" / f"step_{step:08d}.pt")["model"]
    return model


def assert_same_outcome(run: Path, undisturbed: Path, steps: int) -> None:
    """The same curve, point for point, and bit by bit the same parameters."""
    curve = [(event.step, event.value) for event in reading.events(run).Scalars("train/loss")]
    expected = [(event.step, event.value) for event in reading.events(undisturbed).Scalars("train/loss")]
    assert [step for step, _ in expected] == list(range(1, steps + 1))
    assert curve == expected
    ours, theirs = final_model(run, steps), final_model(undisturbed, steps)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    "overrides",
    [
        (*TRANSFORMER,),
        (*TRANSFORMER, "data.workers=2"),
        (*CNN, "data=image_folder", "data.workers=0"),
        (*CNN, "data=image_folder", "data.workers=2"),
        ("trainer.precision=fp16", "trainer.grad_accumulation=3", "trainer.grad_clip=0.5", "model.dropout=0.3"),
        ("optimizer=sgd", "scheduler=one_cycle", "scheduler.total_steps=14", "trainer.eval_every=3"),
    ],
    ids=[
        "transformer with dropout",
        "transformer with dropout, workers",
        "cnn on random crops",
        "cnn on random crops, workers",
        "fp16, accumulation, clipping, dropout",
        "momentum, one cycle, evaluations",
    ],
)
def test_a_run_stopped_at_any_step_goes_on_bit_for_bit(
    overrides: tuple[str, ...], harness: Launcher, tmp_path: Path
) -> None:
    if "data=image_folder" in overrides:
        root = make_image_folder(tmp_path / "pictures", each=16)
        overrides = (*overrides, f"data.train.root={root}", "data.train.image_size=16", "data.batch_size=8")
    if "scheduler=one_cycle" in overrides:
        overrides = (*overrides, "scheduler.max_lr=0.1")
    undisturbed, stopped = tmp_path / "whole", tmp_path / "parts"
    assert train(harness, tmp_path, *overrides, f"logdir={undisturbed}").status == 0
    assert train(harness, tmp_path, *overrides, f"logdir={stopped}", "trainer.max_steps=5").status == 0
    run = reading.only_run(stopped)
    # A life of one step and then another; it is enough to see it once.
    stops = (6, 14) if overrides == TRANSFORMER else (14,)
    for step in stops:
        done = resume(harness, run, f"trainer.max_steps={step}")
        assert done.status == 0, done.text
    assert_same_outcome(run, reading.only_run(undisturbed), 14)
    assert reading.manifest(run)["resumed_from"] == [5, *stops[:-1]]


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("stop", [6, 8, 10])
def test_the_curve_of_a_run_that_was_stopped_between_two_points_has_the_same_points(
    stop: int, ranks: int, harness: Launcher, tmp_path: Path
) -> None:
    # The checkpoint falls into an interval of five steps, and the point is the mean of all five.
    overrides = [*NOISE, "trainer.log_every=5", "trainer.grad_accumulation=2", "checkpoint.every=3", "data.eval=null"]

    def run(*arguments: str) -> None:
        if ranks > 1:
            jobs.train(harness, ranks, *arguments, cwd=tmp_path)
        else:
            done = harness.run("train", *arguments, cwd=tmp_path)
            assert done.status == 0, done.text

    run(*job(*overrides, "trainer.max_steps=15")[1:], "logdir=whole")
    run(*job(*overrides, f"trainer.max_steps={stop}")[1:], "logdir=parts")
    parts = reading.only_run(tmp_path / "parts")
    run(f"resume={parts}", "trainer.max_steps=15")
    undisturbed = reading.only_run(tmp_path / "whole")
    for tag in ("train/loss", "train/lr", "train/grad_norm"):
        curve, expected = reading.scalars(parts, tag), reading.scalars(undisturbed, tag)
        assert sorted(expected) == [5, 10, 15]
        assert {step: curve[step] for step in expected} == expected, tag
        assert set(curve) - set(expected) <= {stop}, "the point of the first life's end alone is more"
    # Samples and seconds of the first life count for the interval too.
    for step in (5, 10, 15):
        batch, milliseconds = 16 * 2 * ranks, reading.scalars(parts, "perf/step_time_ms")[step]
        rate = reading.scalars(parts, "perf/samples_per_second")[step]
        assert rate * milliseconds / 1e3 == pytest.approx(batch, rel=1e-3)


class Watch:
    """Sees every window directory of a logdir as often as it can, from a thread."""

    def __init__(self, logdir: Path) -> None:
        self._logdir = logdir
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: dict[str, set[tuple[tuple[str, int], ...]]] = {}

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            for window in self._logdir.glob("*/*/profile/*"):
                files = tuple(sorted((path.name, path.stat().st_size) for path in window.iterdir()))
                self.seen.setdefault(window.name, set()).add(files)


def test_a_run_killed_many_times_at_random_ends_as_an_undisturbed_one(harness: Launcher, tmp_path: Path) -> None:
    draw = random.Random(os.environ.get("HARNESS_TEST_SEED", "7"))
    steps = 60
    overrides = [*SLOW, "+data.train.seconds=0.01", f"trainer.max_steps={steps}", "scheduler.max_steps=60"]
    overrides += [*window_every(5, 1, 2), "checkpoint.keep=2", "model.dropout=0.2"]
    whole = train(harness, tmp_path, *overrides, f"logdir={tmp_path / 'whole'}")
    assert whole.status == 0, whole.text
    undisturbed = reading.only_run(tmp_path / "whole")

    logdir = tmp_path / "killed"
    run: Path | None = None
    kills = 0
    with Watch(logdir) as watch:
        for _ in range(60):
            if run is None:
                command = start(harness, tmp_path, *overrides, f"logdir={logdir}")
            else:
                command = harness.start("train", f"resume={run}", cwd=tmp_path)
            if draw.random() < 0.9:
                wait_until_it_trains(command)
            threading.Event().wait(draw.uniform(0, 0.4))
            command.signal(signal.SIGKILL)
            done = command.wait()
            if done.status == 0:
                break
            assert done.status == 128 + signal.SIGKILL, done.text
            kills += 1
            if run is None and list(logdir.rglob("run.json")):
                run = reading.only_run(logdir)
            if run is not None:
                assert_readable(run)
                if reading.manifest(run)["status"] == "completed":
                    # The kill came after its last word.
                    break
        else:
            pytest.fail("it never came to its end")

    assert run is not None
    assert kills >= 5
    assert len(reading.manifest(run)["resumed_from"]) >= 3
    assert_same_outcome(run, undisturbed, steps)
    assert reading.recorded(run) == reading.recorded(undisturbed)
    assert len(reading.recorded(run)) == 7
    assert {name for name, sights in watch.seen.items() if len(sights) != 1} == set()
    assert reading.manifest(run)["status"] == "completed"
    assert not (tmp_path / ".killed.staging").exists()
    assert [path for path in tree(run) if path.endswith(".tmp")] == []


def wait_until_it_trains(command: Command) -> None:
    """Wait until the job has said of a step that it is done."""
    wait_until(
        lambda: re.search(r"step \d+/", command.text) or not command.running, 60, lambda: f"a step:\n{command.text}"
    )


def assert_readable(run: Path) -> None:
    """All that others may look at while the run is down is whole."""
    msgspec.json.decode((run / "run.json").read_bytes())
    for window in reading.windows(run):
        first = int(window.name.removeprefix("window_"))
        assert reading.steps(window) == [first, first + 1]
    checkpoints = Checkpoints(run / "checkpoints")
    for step in checkpoints.steps():
        assert load(run / "checkpoints" / f"step_{step:08d}.pt")["state"]["step"] == step
    reading.events(run)


def training(command: Command, logdir: Path) -> Path:
    """The run of a job, once it has taken a step."""
    wait_until_it_trains(command)
    assert command.running, command.text
    return reading.only_run(logdir)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_signal_stops_the_job_after_its_step_with_everything_saved(
    workers: int, number: signal.Signals, status: int, harness: Launcher, tmp_path: Path
) -> None:
    logdir = tmp_path / "logs"
    overrides = [*SLOW, "+data.train.seconds=0.05", "trainer.max_steps=100", f"data.workers={workers}"]
    command = start(harness, tmp_path, *overrides, f"logdir={logdir}", "checkpoint.every=null")
    run = training(command, logdir)
    command.signal(number)
    done = command.wait(30)

    assert done.status == status, done.text
    assert "Traceback" not in done.text
    manifest = reading.manifest(run)
    assert manifest["status"] == "interrupted"
    assert 0 < manifest["step"] < 100
    assert Checkpoints(run / "checkpoints").steps() == [manifest["step"]]
    assert max(reading.scalars(run, "train/loss")) == manifest["step"]
    assert f"resume={os.path.relpath(run, tmp_path)}" in done.err, "it says how to go on"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_to_the_whole_group_reaches_loader_workers_and_changes_nothing(
    number: signal.Signals, status: int, harness: Launcher, tmp_path: Path
) -> None:
    # Ctrl-C in a terminal, and the end of a batch job or a container, reach every process at once.
    logdir = tmp_path / "logs"
    overrides = [*SLOW, "+data.train.seconds=0.05", "trainer.max_steps=100", "data.workers=2"]
    command = start(harness, tmp_path, *overrides, f"logdir={logdir}", "checkpoint.every=null")
    run = training(command, logdir)
    os.killpg(command.pid, number)
    done = command.wait(30)

    assert done.status == status, done.text
    assert "Traceback" not in done.text, done.text
    assert reading.manifest(run)["status"] == "interrupted"
    assert Checkpoints(run / "checkpoints").steps() == [reading.manifest(run)["step"]]


def test_an_interrupted_run_goes_on_bit_for_bit(harness: Launcher, tmp_path: Path) -> None:
    overrides = [*SLOW, "+data.train.seconds=0.05", "trainer.max_steps=30", "model.dropout=0.3"]
    train(harness, tmp_path, *overrides, f"logdir={tmp_path / 'whole'}")
    command = start(harness, tmp_path, *overrides, f"logdir={tmp_path / 'parts'}")
    run = training(command, tmp_path / "parts")
    command.signal(signal.SIGTERM)
    assert command.wait(30).status == 143
    done = harness.run("train", f"resume={run}", cwd=tmp_path)
    assert done.status == 0, done.text
    assert_same_outcome(run, reading.only_run(tmp_path / "whole"), 30)


def test_a_signal_inside_a_window_leaves_its_whole_steps_as_a_partial_window(harness: Launcher, tmp_path: Path) -> None:
    logdir, batches = tmp_path / "logs", tmp_path / "batches"
    overrides = [*SLOW, "+data.train.seconds=0.05", f"+data.train.count={batches}", "trainer.max_steps=100"]
    command = start(harness, tmp_path, *overrides, *window_every(2, 1, 90), f"logdir={logdir}")
    run = training(command, logdir)
    wait_until(lambda: batches.stat().st_size > 8, 60, "the window's first steps")
    command.signal(signal.SIGTERM)
    done = command.wait(30)
    assert done.status == 143, done.text
    step = reading.manifest(run)["step"]
    assert reading.recorded(run) == {"window_00000003": list(range(3, step))}
    assert "cut short" in done.err


def test_a_second_signal_stops_at_once(harness: Launcher, tmp_path: Path) -> None:
    logdir, hold = tmp_path / "logs", tmp_path / "hold"
    overrides = [*SLOW, "+data.train.seconds=0.02", f"+data.train.hold={hold}", "trainer.max_steps=1000"]
    command = start(harness, tmp_path, *overrides, f"logdir={logdir}")
    run = training(command, logdir)
    hold.write_text("")
    wait_until((tmp_path / "hold.waits").exists, 60, "the step that is held")
    command.signal(signal.SIGTERM)
    threading.Event().wait(0.5)
    assert command.running, "the first signal waits for the step's end"
    command.signal(signal.SIGTERM)
    assert command.wait(5).status == 143
    assert reading.manifest(run)["status"] == "running", "nothing more was written"
    assert '"killed"' in harness.run("runs", str(logdir), "--format", "json").out


def test_two_processes_never_train_in_one_run(harness: Launcher, tmp_path: Path) -> None:
    logdir, hold = tmp_path / "logs", tmp_path / "hold"
    overrides = [*SLOW, f"+data.train.hold={hold}", "trainer.max_steps=30", "+data.train.seconds=0.02"]
    command = start(harness, tmp_path, *overrides, f"logdir={logdir}")
    run = training(command, logdir)
    hold.write_text("")
    second = harness.run("train", f"resume={run}", cwd=tmp_path)
    expect_usage_error(second, str(run), "another process")
    hold.unlink()
    first = command.wait(60)
    assert first.status == 0, first.text
    assert reading.manifest(run)["status"] == "completed"


@pytest.fixture(scope="module")
def finished(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that is over; not to be changed."""
    cwd = tmp_path_factory.mktemp("finished")
    done = launcher.run(*job("trainer.max_steps=3", "checkpoint.every=1"), "logdir=logs", cwd=cwd)
    assert done.status == 0, done.text
    return reading.only_run(cwd / "logs")


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run; the log may say what was refused, the lock is no content."""
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in ("train.log", ".lock"))
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ([], ["step 3 of 3", "trainer.max_steps"]),
        (["trainer.max_steps=2"], ["step 3 of 2", "trainer.max_steps"]),
        (["trainer.max_steps=9", "model.hidden=[9]"], ["resume", "another model", "layers.0.weight"]),
        (["trainer.max_steps=9", "model=cnn"], ["model"]),
        (["trainer.max_steps=9", "optimizer=sgd"], ["resume", "optimizer"]),
        (["trainer.max_steps=9", "data=text"], ["MLP"]),
        (["trainer.max_steps=-9"], ["trainer.max_steps=-9"]),
        (["trainer.bogus=1"], ["trainer.bogus"]),
        (["-m", "seed=1,2"], ["resume", "-m"]),
    ],
)
def test_a_resumption_that_cannot_be_is_refused_and_leaves_the_run_as_it_was(
    overrides: list[str], words: list[str], finished: Path, harness: Launcher
) -> None:
    before = content(finished)
    done = resume(harness, finished, *overrides)
    expect_usage_error(done, *words)
    assert content(finished) == before


@pytest.mark.parametrize("what", ["missing", "a file", "no run", "damaged"])
def test_resume_of_what_is_no_run_is_refused(what: str, harness: Launcher, tmp_path: Path) -> None:
    run = tmp_path / "logs" / "a" / "b"
    match what:
        case "a file":
            run.parent.mkdir(parents=True)
            run.write_text("")
        case "no run":
            run.mkdir(parents=True)
        case "damaged":
            run.mkdir(parents=True)
            (run / "run.json").write_text('{"id": "a/b", "sta')
    before = tree(tmp_path)
    done = harness.run("train", f"resume={run}", cwd=tmp_path)
    expect_usage_error(done, str(run))
    assert tree(tmp_path) == before


def test_a_finished_run_goes_on_from_anywhere_when_it_is_given_more_steps(
    harness: Launcher, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "moved" / "experiment" / "run"
    shutil.copytree(finished, run)
    relative = os.path.relpath(run, tmp_path / "moved")
    done = harness.run("train", f"resume={relative}/", "trainer.max_steps=5", cwd=tmp_path / "moved")
    assert done.status == 0, done.text
    assert re.search(r"steps +2 in .* s, from 3 to 5 *\n", done.out), "the steps of this life, not of the run's"
    assert sorted(reading.scalars(run, "train/loss")) == [1, 2, 3, 4, 5]
    manifest = reading.manifest(run)
    assert (manifest["status"], manifest["step"], manifest["max_steps"]) == ("completed", 5, 5)
    assert manifest["resumed_from"] == [3]
    assert manifest["started"] == reading.manifest(finished)["started"]
    assert tree(tmp_path / "moved")[0] == "experiment", "nothing went to the old logdir"


def test_a_run_killed_between_its_last_checkpoint_and_its_last_word_is_completed_by_resuming(
    harness: Launcher, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "logs" / "experiment" / "run"
    shutil.copytree(finished, run)
    (run / "run.json").write_text(json.dumps(reading.manifest(run) | {"status": "running"}))
    done = resume(harness, run)
    assert done.status == 0, done.text
    assert (reading.manifest(run)["status"], reading.manifest(run)["step"]) == ("completed", 3)
    assert sorted(reading.scalars(run, "train/loss")) == [1, 2, 3]


def test_a_damaged_newest_checkpoint_costs_the_steps_since_the_one_before(
    harness: Launcher, finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "logs" / "experiment" / "run"
    shutil.copytree(finished, run)
    newest = run / "checkpoints" / "step_00000003.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    done = resume(harness, run, "trainer.max_steps=5")
    assert done.status == 0, done.text
    assert "step_00000003.pt is damaged" in done.err
    assert reading.manifest(run)["resumed_from"] == [2]
    assert sorted(reading.scalars(run, "train/loss")) == [1, 2, 3, 4, 5]
    assert load(newest)["state"]["step"] == 3


def test_a_run_killed_after_its_last_checkpoint_evaluates_its_end_once(harness: Launcher, tmp_path: Path) -> None:
    """Between that checkpoint and the last word in `run.json` a kill leaves a run that has nothing left to train."""
    # A last step at which a checkpoint is due and no point of a curve.
    assert train(harness, tmp_path, "trainer.eval_every=7", "trainer.log_every=3", "checkpoint.every=7").status == 0
    run = reading.only_run(tmp_path / "tb_logs")
    tags = ("train/loss", "eval/loss")

    def curves() -> list[list[tuple[int, float]]]:
        return [[(event.step, event.value) for event in reading.events(run).Scalars(tag)] for tag in tags]

    before = curves()
    manifest = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**manifest, "status": "running"}))

    assert resume(harness, run).status == 0
    assert curves() == before
    assert [[step for step, _ in curve] for curve in before] == [[3, 6, 9, 12, 14], [7, 14]]
    assert json.loads((run / "run.json").read_text())["status"] == "completed"


@pytest.mark.parametrize("value", [None, "text", {"step": "x"}], ids=str)
@pytest.mark.parametrize("key", ["state", "random", "optimizer", "global_batch", "interval", "scheduler"])
def test_a_checkpoint_whose_values_are_none_of_ours_is_refused_by_name(
    key: str, value: object, harness: Launcher, tmp_path: Path, whole_run: Path
) -> None:
    run = tmp_path / "tb_logs" / "default" / whole_run.name
    shutil.copytree(whole_run, run)
    newest = max((run / "checkpoints").glob("step_*.pt"))
    state = torch.load(newest, weights_only=True)
    for path in (run / "checkpoints").glob("step_*.pt"):
        torch.save({**state, key: value}, path)
    done = resume(harness, run, "trainer.max_steps=20")
    assert "Traceback" not in done.text, done.text
    assert done.status in (0, 2), done.text
    if done.status == 2:
        assert "checkpoints" in done.err


@pytest.fixture(scope="module")
def whole_run(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    assert launcher.run(*job("trainer.max_steps=6"), cwd=folder).status == 0
    return reading.only_run(folder / "tb_logs")
