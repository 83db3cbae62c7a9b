"""Who does what: shares of the data, who records, what is a block, and what is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.data import Digits, Loader
from harness.distributed import launch
from harness.distributed.strategy import checkpoint_activations, find_blocks
from harness.distributed.world import World
from harness.errors import UsageError
from harness.models import MLP, Transformer
from tests.launch import TINY, Launcher, expect_usage_error


@pytest.mark.parametrize("start", [0, 7, 100])
def test_the_batches_of_all_ranks_together_are_those_of_one_process(start: int) -> None:
    ranks = 4
    whole = Loader(Digits(), batch_size=32, seed=3).stream(start)
    shares = [Loader(Digits(), batch_size=8, seed=3, rank=rank, ranks=ranks).stream(start) for rank in range(ranks)]
    for images, labels in itertools.islice(whole, 50):
        pieces = [next(share) for share in shares]
        assert torch.equal(torch.cat([piece[0] for piece in pieces]), images)
        assert torch.equal(torch.cat([piece[1] for piece in pieces]), labels)


@pytest.mark.parametrize("limit", [None, 5, 1])
def test_an_evaluation_is_shared_out_evenly_and_every_batch_counts_once(limit: int | None) -> None:
    dataset = Digits("eval")
    batches = (dataset.batch(torch.arange(at, min(at + 50, len(dataset)))) for at in range(0, len(dataset), 50))
    expected = list(itertools.islice(batches, limit))
    shares = [list(Loader(dataset, batch_size=50, rank=rank, ranks=3).share(limit)) for rank in range(3)]
    assert len({len(share) for share in shares}) == 1, "a sharded model needs every rank at every batch"
    counted = [share[place] for place in range(len(shares[0])) for share in shares]
    found = [batch for batch, counts in counted if counts]
    assert len(found) == len(expected)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("all", list(range(8))), (1, [0]), (2, [0, 4]), (3, [0, 2, 5]), (100, list(range(8))), ([0, 7, 9], [0, 7])],
)
def test_who_records(wanted: str | int | list[int], expected: list[int]) -> None:
    assert World(size=8).recording(wanted) == expected


def test_blocks_are_the_repeated_parts() -> None:
    gpt = Transformer(vocab_size=8, context_length=4, width=8, depth=3, heads=2)
    assert find_blocks(gpt) == list(gpt.blocks)
    assert find_blocks(MLP(in_channels=1, image_size=8, num_classes=2, hidden=[4, 4])) == []
    assert len(find_blocks(gpt, ["LayerNorm"])) == 7
    with pytest.raises(UsageError, match="Blok"):
        find_blocks(gpt, ["Blok"])


def test_recomputed_activations_change_no_gradient_and_no_name() -> None:
    models = []
    for recompute in (False, True):
        torch.manual_seed(0)
        model: nn.Module = Transformer(vocab_size=8, context_length=4, width=8, depth=2, heads=2, dropout=0.5)
        if recompute:
            checkpoint_activations(find_blocks(model))
        torch.manual_seed(1)
        model(torch.arange(4)[None]).square().sum().backward()
        models.append(dict(model.named_parameters()))
    plain, recomputed = models
    assert plain.keys() == recomputed.keys()
    assert all(torch.equal(plain[name].grad, recomputed[name].grad) for name in plain)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["trainer.devices=many"], ["trainer.devices=many", "auto"]),
        (
            [
                "strategy=fsdp2",
                "trainer.precision=fp16",
                "logger.histograms_every=5",
                "profiler=periodic",
                "profiler.wait=1",
                "profiler.ranks=[1,2]",
            ],
            ["fp16", "bf16", "logger.histograms_every", "strategy=ddp", "profiler.ranks=[1, 2]", "rank 0"],
        ),
        (["strategy.activation_checkpointing=true"], ["no repeated blocks", "strategy.blocks"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_bad_input(harness: Launcher, logdir: Path, overrides: list[str], words: list[str]) -> None:
    done = harness.run("train", *TINY, f"logdir={logdir}", *overrides)
    expect_usage_error(done, *words, logdir=logdir)


@pytest.mark.parametrize("devices", [0, -1, True, "2", 1.5])
def test_a_number_of_devices_that_cannot_be(devices: int | str) -> None:
    with pytest.raises(UsageError, match=rf"trainer.devices={devices}"):
        launch.count(devices)


def test_bad_input_of_several_ranks_is_said_once(harness: Launcher, logdir: Path) -> None:
    from tests.distributed.jobs import start

    job = start(harness, 2, *TINY, f"logdir={logdir}", "data.batch_size=1000")
    first, second = job.wait()
    expect_usage_error(first, "data.batch_size=1000 on each of 2 ranks", logdir=logdir)
    assert (second.status, second.text) == (2, "")
