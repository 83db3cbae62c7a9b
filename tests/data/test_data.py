"""Data sets, and the loader whose position is one integer."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from harness.data import (
    Digits,
    Loader,
    SyntheticImages,
    SyntheticMatrices,
    SyntheticTokens,
    Text,
    cifar10,
    facts,
    image_folder,
    map_tensors,
    to_device,
)
from harness.errors import UsageError
from tests.pictures import make_cifar10, make_image_folder


class Numbers(Dataset[Tensor]):
    """0, 1, 2, ..."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor(index)


class Noisy(Numbers):
    """Samples augmented at random, by each generator that people use."""

    def __getitem__(self, index: int) -> Tensor:
        return torch.tensor([index, torch.rand(()).item(), np.random.rand(), random.random()], dtype=torch.float64)


def take(batches: Any, count: int) -> list[Any]:
    return list(itertools.islice(batches, count))


def same(ours: list[Any], theirs: list[Any]) -> bool:
    flat = [tuple(batch) if isinstance(batch, tuple | list) else (batch,) for batch in (*ours, *theirs)]
    half = len(ours)
    return len(ours) == len(theirs) and all(
        torch.equal(a, b)
        for one, other in zip(flat[:half], flat[half:], strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    ("start", "workers"), [(1, 0), (4, 0), (5, 0), (6, 0), (11, 0), (4, 2), (11, 2)], ids=lambda value: str(value)
)
def test_a_stream_from_a_position_is_the_tail_of_the_whole_one(start: int, workers: int) -> None:
    loader = Loader(Numbers(17), batch_size=3, seed=5, workers=workers)
    assert same(take(loader.stream(start), 8), take(loader.stream(), start + 8)[start:])


@pytest.mark.parametrize("start", [3, 9])
def test_random_augmentations_of_workers_follow_from_the_position_too(start: int) -> None:
    whole = take(Loader(Noisy(17), batch_size=3, seed=5, workers=2).stream(), start + 4)
    torch.manual_seed(99)
    again = take(Loader(Noisy(17), batch_size=3, seed=5, workers=1).stream(start), 4)
    assert same(again, whole[start:])
    assert len(torch.cat(whole)[:, 1].unique()) == 3 * len(whole), "batches share their noise"


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_number_of_workers_changes_no_batch(workers: int) -> None:
    loader = Loader(Digits(), batch_size=32, seed=1, workers=workers)
    assert same(take(loader.stream(), 5), take(Loader(Digits(), batch_size=32, seed=1).stream(), 5))


def test_workers_leave_the_global_random_state_alone() -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[union-attr]
    loader = Loader(Noisy(17), batch_size=3, workers=2)
    take(loader.stream(), 3)
    list(loader.share())
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])
    assert before[2] == random.getstate()


def test_each_pass_is_a_permutation_of_its_own() -> None:
    loader = Loader(Numbers(12), batch_size=4)
    passes = [torch.cat(take(loader.stream(3 * number), 3)).tolist() for number in range(4)]
    assert all(sorted(one) == list(range(12)) for one in passes)
    assert len({tuple(one) for one in passes}) == 4


def test_a_pass_leaves_out_its_last_smaller_batch() -> None:
    batches = take(Loader(Numbers(10), batch_size=4).stream(), 4)
    assert [len(batch) for batch in batches] == [4] * 4
    for one in (batches[:2], batches[2:]):
        assert len(torch.cat(one).unique()) == 8


def test_the_seed_alone_decides_the_order() -> None:
    torch.manual_seed(1)
    first = take(Loader(Numbers(50), batch_size=10, seed=3).stream(), 3)
    torch.manual_seed(2)
    assert same(first, take(Loader(Numbers(50), batch_size=10, seed=3).stream(), 3))
    assert not same(first, take(Loader(Numbers(50), batch_size=10, seed=4).stream(), 3))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_evaluation_takes_every_sample_once_in_order(workers: int) -> None:
    shared = list(Loader(Numbers(10), batch_size=4, workers=workers).share())
    assert [batch.tolist() for batch, _ in shared] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(counts for _, counts in shared)


def test_peeking_shows_the_next_batch_and_takes_nothing() -> None:
    loader = Loader(Numbers(20), batch_size=4, workers=2)
    assert torch.equal(loader.peek(3), take(loader.stream(), 4)[3])
    assert torch.equal(loader.peek(3), loader.peek(3))


def test_more_samples_a_batch_than_there_are_is_an_error_with_both_numbers() -> None:
    with pytest.raises(UsageError, match=r"data\.batch_size=8 .*\b7 samples"):
        next(iter(Loader(Numbers(7), batch_size=8).stream()))


MAKERS: dict[str, Any] = {
    "images": lambda seed: SyntheticImages(shape=[3, 8, 6], num_classes=5, batch_size=4, device="cpu", seed=seed),
    "tokens": lambda seed: SyntheticTokens(vocab_size=11, context_length=7, batch_size=4, device="cpu", seed=seed),
    "matrices": lambda seed: SyntheticMatrices(size=6, device="cpu", seed=seed),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_a_maker_makes_each_batch_from_its_number_alone(kind: str) -> None:
    loader, other = (Loader(MAKERS[kind](0), batch_size=4) for _ in range(2))
    whole = take(loader.stream(), 6)
    assert same(take(other.stream(4), 2), whole[4:])
    assert same([loader.peek(2)], whole[2:3])
    assert not same(whole[:1], take(Loader(MAKERS[kind](1), batch_size=4).stream(), 1))
    assert len(list(loader.share())) == 2


def test_made_images_have_the_shape_and_labels_asked_for() -> None:
    images, labels = MAKERS["images"](0).make(0)
    assert images.shape == (4, 3, 8, 6)
    assert images.dtype == torch.float32
    assert labels.shape == (4,)
    assert set(labels.tolist()) <= set(range(5))
    assert not torch.equal(images, MAKERS["images"](0).make(1)[0])


def test_made_tokens_come_with_their_successors() -> None:
    tokens, successors = MAKERS["tokens"](0).make(0)
    assert tokens.shape == successors.shape == (4, 7)
    assert torch.equal(tokens[:, 1:], successors[:, :-1])
    assert int(tokens.max()) < 11


def test_a_maker_takes_no_workers() -> None:
    with pytest.raises(UsageError, match=r"data\.workers=2.*SyntheticTokens.*workers=0"):
        Loader(MAKERS["tokens"](0), batch_size=4, workers=2)


def test_digits_are_split_without_overlap() -> None:
    train, evaluation = Digits("train"), Digits("eval")
    assert (len(train), len(evaluation)) == (1437, 360)
    assert train.images.shape[1:] == (1, 8, 8)
    assert (float(train.images.min()), float(train.images.max())) == (0.0, 1.0)
    assert train.labels.unique().tolist() == evaluation.labels.unique().tolist() == list(range(10))
    kept = {image.numpy().tobytes() for image in evaluation.images}
    assert not kept & {image.numpy().tobytes() for image in train.images}


@pytest.mark.parametrize("dataset", [Digits(), Text(context_length=16)], ids=["digits", "text"])
def test_a_batch_at_once_is_what_its_samples_make(dataset: Any) -> None:
    indices = torch.tensor([5, 0, 9])
    inputs, targets = dataset.batch(indices)
    for place, index in enumerate(indices.tolist()):
        assert torch.equal(inputs[place], dataset[index][0])
        assert torch.equal(targets[place], torch.as_tensor(dataset[index][1]))
    last = len(dataset) - 1
    assert dataset.batch(torch.tensor([last]))[0].shape[1:] == dataset[0][0].shape


def test_text_of_a_file_is_pieces_with_the_tokens_that_follow(tmp_path: Path) -> None:
    text = "".join(chr(97 + number % 26) for number in range(100)) + "äß"
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    train = Text("train", file=str(tmp_path / "text.txt"), context_length=10)
    evaluation = Text("eval", file=str(tmp_path / "text.txt"), context_length=10)
    alphabet = sorted(set(text))

    assert facts(train) == {"kind": "tokens", "vocab_size": 28, "context_length": 10} == facts(evaluation)
    assert "".join(alphabet[code] for code in train.tokens) == text[:91]
    assert "".join(alphabet[code] for code in evaluation.tokens) == text[91:]
    inputs, targets = train[2]
    assert "".join(alphabet[code] for code in inputs) == text[20:30]
    assert "".join(alphabet[code] for code in targets) == text[21:31]


def test_text_as_bytes(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("äb" * 50, encoding="utf-8")
    dataset = Text("train", file=str(tmp_path / "text.txt"), level="bytes", context_length=6)
    assert facts(dataset)["vocab_size"] == 256
    assert bytes(dataset[0][0].tolist()).decode() == "äbäb"


def test_pythons_own_help_topics_are_the_default_text() -> None:
    train = Text(context_length=128)
    assert len(train.tokens) > 300_000
    assert 60 < facts(train)["vocab_size"] < 300


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ["text.txt", "cannot be read"]),
        (b"\xff\xfe\x00abc", ["text.txt", "cannot be read"]),
        (b"short", ["text.txt", "context_length=64", "fewer"]),
        (b"", ["text.txt", "context_length=64", "fewer"]),
    ],
    ids=["missing", "not UTF-8", "short", "empty"],
)
def test_a_text_file_that_will_not_do_is_named(content: bytes | None, words: list[str], tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    with pytest.raises(UsageError) as told:
        Text(file=str(tmp_path / "text.txt"), context_length=64)
    assert all(word in str(told.value) for word in words), told.value


def test_a_folder_of_pictures_says_what_a_model_has_to_know(tmp_path: Path) -> None:
    root = str(make_image_folder(tmp_path, each=3))
    train, evaluation = image_folder("train", root=root, image_size=16), image_folder("eval", root=root, image_size=16)
    for dataset in (train, evaluation):
        assert facts(dataset) == {"kind": "images", "in_channels": 3, "image_size": (16, 16), "num_classes": 2}
        image, label = dataset[0]
        assert image.dtype == torch.float32
        assert 0 <= float(image.min()) <= float(image.max()) <= 1
        assert label == 0
    assert torch.equal(evaluation[1][0], evaluation[1][0]), "an evaluation is not random"
    assert not torch.equal(train[1][0], train[1][0]), "training crops at random"


def test_val_will_do_for_eval(tmp_path: Path) -> None:
    root = str(make_image_folder(tmp_path, splits=("train", "val")))
    assert len(image_folder("eval", root=root, image_size=8)) == 8  # type: ignore[arg-type]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_a_folder_that_is_not_there_is_named_with_what_is_expected(split: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"data\.{split}\.root={tmp_path}.*{split}"):
        image_folder(split, root=str(tmp_path))


def test_a_folder_without_pictures_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "train" / "cat").mkdir(parents=True)
    with pytest.raises(UsageError, match=rf"data\.train\.root={tmp_path}.*cat"):
        image_folder("train", root=str(tmp_path))
    (tmp_path / "eval").mkdir()
    with pytest.raises(UsageError, match=rf"data\.eval\.root={tmp_path}"):
        image_folder("eval", root=str(tmp_path))


def test_cifar10_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import CIFAR10

    for name in ("train_list", "test_list", "meta"):
        monkeypatch.setattr(CIFAR10, name, getattr(CIFAR10, name))
    exec(make_cifar10(tmp_path, each=20), {})
    train, evaluation = cifar10("train", root=str(tmp_path)), cifar10("eval", root=str(tmp_path))

    assert (len(train), len(evaluation)) == (100, 20)  # type: ignore[arg-type]
    assert facts(train) == {"kind": "images", "in_channels": 3, "image_size": (32, 32), "num_classes": 10}
    images, labels = next(iter(Loader(train, batch_size=8, workers=2).stream()))
    assert images.shape == (8, 3, 32, 32)
    assert labels.shape == (8,)
    assert 0 <= float(images.min()) <= float(images.max()) <= 1


def test_cifar10_that_is_not_there_is_named_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"data\.train\.root={tmp_path}.*data\.train\.download=true"):
        cifar10("train", root=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_damaged_cifar10_files_are_no_cifar10(tmp_path: Path) -> None:
    make_cifar10(tmp_path)  # with checksums that are not the real ones
    with pytest.raises(UsageError, match=rf"data\.eval\.root={tmp_path}"):
        cifar10("eval", root=str(tmp_path))


def test_facts_of_a_set_that_declares_none_are_read_off_a_sample() -> None:
    class Pictures(Dataset[Any]):
        classes = ("a", "b", "c")

        def __len__(self) -> int:
            return 1

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.zeros(2, 5, 7), 0

    class Words(Dataset[Any]):
        vocab_size = 9

        def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
            return torch.zeros(6, dtype=torch.int64), torch.zeros(6, dtype=torch.int64)

    assert facts(Pictures()) == {"kind": "images", "in_channels": 2, "image_size": (5, 7), "num_classes": 3}
    assert facts(Words()) == {"kind": "tokens", "context_length": 6, "vocab_size": 9}
    assert facts(Numbers(3)) == {}


def test_batches_of_any_nesting_reach_the_device() -> None:
    batch = {"a": [torch.ones(1), (torch.zeros(2), "text")], "b": 3}
    moved = to_device(batch, torch.device("meta"))
    assert moved["a"][0].device.type == moved["a"][1][0].device.type == "meta"
    assert (moved["a"][1][1], moved["b"]) == ("text", 3)
    assert isinstance(moved["a"][1], tuple)
    assert map_tensors(batch, len)["a"][0] == 1


def test_a_batch_may_be_a_named_tuple() -> None:
    from typing import NamedTuple

    class Pair(NamedTuple):
        inputs: Tensor
        targets: Tensor

    moved = to_device(Pair(torch.ones(1), torch.zeros(1)), torch.device("meta"))
    assert isinstance(moved, Pair)
    assert moved.targets.device.type == "meta"
