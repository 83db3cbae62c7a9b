"""What only several CUDA devices can show: run with ``pytest -m gpu`` where there are two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness.logdir.manifest import read_manifest
from harness.logdir.scan import find_runs, windows
from harness.trace import WindowReport
from tests import reading
from tests.distributed.test_windows import steps_by_rank
from tests.launch import python

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are no two CUDA devices here"),
]

GPT = (
    "model=transformer",
    "model.width=256",
    "model.depth=4",
    "model.heads=4",
    "data=text",
    "data.batch_size=16",
    "trainer.devices=2",
    "trainer.precision=bf16",
    "trainer.grad_accumulation=2",
    "trainer.max_steps=60",
    "trainer.log_every=10",
    "trainer.eval_every=25",
    "trainer.eval_batches=3",
    "checkpoint.every=20",
    "profiler.wait=20",
    "profiler.max_overhead=null",
)


def train(folder: Path, *overrides: str) -> Path:
    folder.mkdir(exist_ok=True)
    done = python("-m", "harness.train", *overrides, cwd=folder)
    assert done.status == 0, done.text
    (run,) = (found.path for found in find_runs(folder / "tb_logs"))
    return run


@pytest.mark.parametrize(
    "strategy",
    [["strategy=ddp"], ["strategy=fsdp2"], ["strategy=fsdp2", "strategy.activation_checkpointing=true"]],
    ids=["ddp", "fsdp2", "fsdp2, recomputing"],
)
def test_two_gpus_train_record_and_go_on(tmp_path: Path, strategy: list[str]) -> None:
    run = train(tmp_path, *GPT, *strategy)
    manifest = read_manifest(run)
    assert (manifest.status, manifest.world_size) == ("completed", 2)
    losses = reading.scalars(run, "train/loss")
    assert losses[60] < losses[10]
    assert [window.name for window in windows(run)] == ["window_00000022", "window_00000047"]
    for window in windows(run):
        first = int(window.name.removeprefix("window_"))
        assert steps_by_rank(window) == {rank: [first, first + 1, first + 2] for rank in (0, 1)}
        report = reading.report(window, WindowReport)
        assert report.world_size == 2
        assert report.device[0].communication_us > 0
    train(tmp_path, f"resume={run}", "trainer.max_steps=70")
    assert read_manifest(run).resumed_from == [60]
    assert reading.scalars(run, "train/loss")[70] < losses[10]


def test_two_gpus_learn_as_one_with_the_same_global_batch(tmp_path: Path) -> None:
    exact = (
        "trainer.precision=fp32",
        "trainer.max_steps=10",
        "trainer.log_every=1",
        "profiler=none",
        "checkpoint=none",
    )
    one = train(tmp_path / "one", *GPT, *exact, "trainer.devices=1", "data.batch_size=32")
    expected = reading.scalars(one, "train/loss")
    for strategy in ("ddp", "fsdp2"):
        run = train(tmp_path / strategy, *GPT, *exact, f"strategy={strategy}")
        assert reading.scalars(run, "train/loss") == pytest.approx(expected, rel=1e-3)


def test_the_gpu_that_is_made_late_is_named(tmp_path: Path) -> None:
    run = train(
        tmp_path,
        "model=mlp",
        "trainer.devices=2",
        "trainer.max_steps=60",
        "data=custom",
        "data.eval=null",
        "data.train._target_=slow_digits.SlowDigits",
        "+data.train.seconds=0.03",
        "+data.train.rank=1",
        "profiler.wait=40",
        "profiler.max_overhead=null",
    )
    report = reading.report(windows(run)[-1], WindowReport)
    assert report.ranks is not None
    assert report.ranks.straggler is not None
    assert (report.ranks.straggler.rank, report.ranks.straggler.reason) == (1, "input")
