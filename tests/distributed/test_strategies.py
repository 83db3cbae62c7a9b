"""The same job on one process and on several, replicated and sharded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import reading
from tests.distributed.jobs import GPT, train
from tests.launch import Launcher


def losses(run: Path) -> list[float]:
    return [value for _, value in sorted(reading.scalars(run, "train/loss").items())]


@pytest.fixture(scope="module")
def alone(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One process, with the global batch of the jobs below."""
    logdir = tmp_path_factory.mktemp("alone") / "logs"
    done = launcher.run("train", *GPT, f"logdir={logdir}", "data.batch_size=16")
    assert done.status == 0, done.text
    return reading.only_run(logdir)


@pytest.mark.parametrize(
    ("size", "overrides"),
    [
        (2, ["strategy=ddp", "data.batch_size=8"]),
        (4, ["strategy=ddp", "data.batch_size=2", "trainer.grad_accumulation=2"]),
        (
            2,
            [
                "strategy=fsdp2",
                "data.batch_size=4",
                "trainer.grad_accumulation=2",
                "strategy.activation_checkpointing=true",
            ],
        ),
    ],
    ids=["ddp", "ddp on 4, accumulating", "fsdp2, accumulating, recomputing"],
)
def test_a_job_on_several_ranks_learns_as_one_process_with_the_same_global_batch(
    harness: Launcher, alone: Path, logdir: Path, size: int, overrides: list[str]
) -> None:
    train(harness, size, *GPT, f"logdir={logdir}", "data.eval_batch_size=16", *overrides)
    run = reading.only_run(logdir)
    assert losses(run) == pytest.approx(losses(alone), abs=2e-5)
    for tag in ("eval/loss", "eval/accuracy", "train/grad_norm"):
        expected = reading.scalars(alone, tag)
        assert reading.scalars(run, tag) == pytest.approx(expected, abs=1e-4), tag
    assert reading.manifest(run)["world_size"] == size
    assert len(list(run.glob("events.out.*"))) == 1, "only rank 0 writes"
