"""Data sets and the loader that feeds a job from them, batch by numbered batch.

A data set is one of three things:

- any map-style :class:`torch.utils.data.Dataset`; samples are collated by torch;
- one that also has ``batch(indices)`` and returns a whole batch at once;
- a maker: no samples, only ``make(number)``, which returns batch ``number``, as the synthetic sets do on
  the device, so that no loader is in the picture.

What a model has to know of its data (:func:`facts`) a set either declares as ``facts`` or shows in a sample.
"""

from __future__ import annotations

import itertools
import math
import random
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate, get_worker_info

from harness import search_path
from harness.distributed.stop import STOPPING
from harness.errors import UsageError
from harness.record import span

Batch = Any
"""Tensors, in any nesting of tuples, lists and dicts; ours are ``(inputs, targets)``."""
Split = Literal["train", "eval"]


@runtime_checkable
class Maker(Protocol):
    """A data set that makes whole batches, each from nothing but its number."""

    def make(self, number: int) -> Batch:
        """Batch ``number`` (0, 1, ...), the same at every call."""

    def __len__(self) -> int:
        """Batches in one pass of an evaluation."""


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """scikit-learn's 1,797 handwritten digits: images float [1, 8, 8] in 0..1 and labels 0..9.

    They ship with scikit-learn (from the UCI repository), so nothing is downloaded. Every fifth, in a
    fixed shuffled order, is kept for evaluation.
    """

    def __init__(self, split: Split = "train") -> None:
        from sklearn.datasets import load_digits

        images, labels = load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(labels))
        kept = order[np.arange(len(order)) % 5 == 0] if split == "eval" else order[np.arange(len(order)) % 5 != 0]
        self.images = torch.tensor(images[kept] / 16, dtype=torch.float32).view(-1, 1, 8, 8)
        self.labels = torch.tensor(labels[kept], dtype=torch.int64)
        self.facts = {"kind": "images", "in_channels": 1, "image_size": (8, 8), "num_classes": 10}

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.images[index], self.labels[index]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.images[indices], self.labels[indices]


class Text(Dataset[tuple[Tensor, Tensor]]):
    """Text in pieces of ``context_length`` tokens, each with the token that follows: int64 [context_length] both.

    Args:
        file: A text file; None takes Python's own help topics (``pydoc_data.topics``, about 700 kB).
        level: A token is a character, or a byte of the text in UTF-8.
        context_length: Tokens of a sample.
        split: The last tenth of the text is kept for evaluation.

    Raises:
        UsageError: for a file that is not there, is not UTF-8, or is shorter than two samples.
    """

    def __init__(
        self,
        split: Split = "train",
        *,
        file: str | None = None,
        level: Literal["characters", "bytes"] = "characters",
        context_length: int = 128,
    ) -> None:
        text = _read_text(file)
        if level == "bytes":
            codes, vocab_size = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int64), 256
        else:
            alphabet, codes = np.unique(np.array(list(text)), return_inverse=True)
            vocab_size = len(alphabet)
        cut = len(codes) * 9 // 10
        self.tokens = torch.tensor(codes[:cut] if split == "train" else codes[cut:], dtype=torch.int64)
        self.context_length = context_length
        if len(self) < 1:
            raise UsageError(
                f"data: {file or 'the text'} has {len(self.tokens)} tokens in its {split} part, "
                f"fewer than one sample of context_length={context_length}; give a longer file or a shorter context"
            )
        self.facts = {"kind": "tokens", "vocab_size": vocab_size, "context_length": context_length}

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.context_length)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.context_length
        piece = self.tokens[start : start + self.context_length + 1]
        return piece[:-1], piece[1:]

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        positions = indices[:, None] * self.context_length + torch.arange(self.context_length)
        return self.tokens[positions], self.tokens[positions + 1]


def _read_text(file: str | None) -> str:
    if file is None:
        return "\n".join(text for _, text in sorted(import_module("pydoc_data.topics").topics.items()))
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"data: the text file {file} cannot be read: {error}") from error


def _mix(seed: int, number: int) -> int:
    """A seed of 63 bits that differs in all of them: torch's CPU generator looks only at the lower 32."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64).item()) >> 1


class _Synthetic:
    """Batches drawn on the device from the seed and the batch's number."""

    def __init__(self, *, device: str, seed: int, eval_batches: int) -> None:
        self.device = torch.device(device)
        self._seed = seed
        self._eval_batches = eval_batches
        self._generator = torch.Generator(self.device)

    def __len__(self) -> int:
        return self._eval_batches

    def _draw(self, number: int) -> torch.Generator:
        return self._generator.manual_seed(_mix(self._seed, number))


class SyntheticImages(_Synthetic):
    """Normal noise [batch_size, *shape] and uniform labels, made anew for every batch on the device.

    Args:
        shape: Channels, height, width.
        num_classes: Labels are 0..num_classes-1.
        batch_size: Images a batch.
        device, seed: Where and from what they are drawn.
        eval_batches: Batches of one evaluation.
    """

    def __init__(
        self,
        *,
        shape: Sequence[int] = (3, 224, 224),
        num_classes: int = 1000,
        batch_size: int,
        device: str,
        seed: int,
        eval_batches: int = 2,
    ) -> None:
        super().__init__(device=device, seed=seed, eval_batches=eval_batches)
        channels, height, width = shape
        self._shape = (batch_size, channels, height, width)
        self._classes = num_classes
        self.facts = {
            "kind": "images",
            "in_channels": channels,
            "image_size": (height, width),
            "num_classes": num_classes,
        }

    def make(self, number: int) -> tuple[Tensor, Tensor]:
        generator = self._draw(number)
        images = torch.randn(self._shape, device=self.device, generator=generator)
        return images, torch.randint(self._classes, self._shape[:1], device=self.device, generator=generator)


class SyntheticTokens(_Synthetic):
    """Uniform tokens [batch_size, context_length] and their successors, made on the device.

    Args:
        vocab_size, context_length, batch_size: Their shape.
        device, seed, eval_batches: As for :class:`SyntheticImages`.
    """

    def __init__(
        self,
        *,
        vocab_size: int = 50257,
        context_length: int = 1024,
        batch_size: int,
        device: str,
        seed: int,
        eval_batches: int = 2,
    ) -> None:
        super().__init__(device=device, seed=seed, eval_batches=eval_batches)
        self._vocab_size = vocab_size
        self._shape = (batch_size, context_length + 1)
        self.facts = {"kind": "tokens", "vocab_size": vocab_size, "context_length": context_length}

    def make(self, number: int) -> tuple[Tensor, Tensor]:
        tokens = torch.randint(self._vocab_size, self._shape, device=self.device, generator=self._draw(number))
        return tokens[:, :-1], tokens[:, 1:]


class SyntheticMatrices(_Synthetic):
    """One normal matrix [size, size] on the device, the same for every batch, and no target.

    Args:
        size: Its side.
        device, seed, eval_batches: As for :class:`SyntheticImages`.
    """

    def __init__(self, *, size: int, device: str, seed: int, eval_batches: int = 2) -> None:
        super().__init__(device=device, seed=seed, eval_batches=eval_batches)
        self._batch = (torch.randn(size, size, device=self.device, generator=self._draw(0)),)
        self.facts = {"kind": "matrices", "size": size}

    def make(self, number: int) -> tuple[Tensor]:
        return self._batch


def image_folder(split: Split = "train", *, root: str, image_size: int = 224) -> Dataset[Any]:
    """torchvision's ``ImageFolder`` on ``<root>/<split>/<class>/*.jpg`` (``val`` will do for ``eval``).

    Training crops and flips at random; evaluation crops the centre.

    Raises:
        UsageError: where the folder or its images are not there.
    """
    from torchvision.datasets import ImageFolder

    names = ["train"] if split == "train" else ["eval", "val"]
    folder = next((Path(root) / name for name in names if (Path(root) / name).is_dir()), None)
    if folder is None:
        raise UsageError(
            f"data.{split}.root={root}: there is no folder {' or '.join(names)} in it; "
            f"image_folder reads {root}/{names[0]}/<class>/<image>"
        )
    try:
        dataset: Dataset[Any] = ImageFolder(str(folder), transform=_image_transform(split, image_size))
        return dataset
    except FileNotFoundError as error:
        raise UsageError(f"data.{split}.root={root}: {error}") from error


def cifar10(split: Split = "train", *, root: str, download: bool = False) -> Dataset[Any]:
    """CIFAR-10 through torchvision: images [3, 32, 32], ten classes.

    Raises:
        UsageError: where the files are not in ``root`` and may not, or cannot, be downloaded.
    """
    from torchvision.datasets import CIFAR10

    try:
        dataset: Dataset[Any] = CIFAR10(
            root, train=split == "train", download=download, transform=_image_transform(split, 32, padding=4)
        )
        return dataset
    except (RuntimeError, OSError) as error:
        advice = (
            "put cifar-10-batches-py there"
            if download
            else "put cifar-10-batches-py there, or allow data.train.download=true"
        )
        raise UsageError(f"data.{split}.root={root}: CIFAR-10 is not there ({error}); {advice}") from error


def _image_transform(split: Split, size: int, *, padding: int = 0) -> Any:
    from torchvision.transforms import v2

    if padding:
        geometry = [v2.RandomCrop(size, padding=padding), v2.RandomHorizontalFlip()] if split == "train" else []
    elif split == "train":
        geometry = [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()]
    else:
        geometry = [v2.Resize(size * 8 // 7), v2.CenterCrop(size)]
    return v2.Compose([v2.ToImage(), *geometry, v2.ToDtype(torch.float32, scale=True)])


def facts(dataset: Any) -> dict[str, Any]:
    """What a model or a task can ask of its data, by the name of the argument that takes it.

    ``kind`` (images, tokens, ...), and for images ``in_channels``, ``image_size`` (height, width) and
    ``num_classes``, for tokens ``vocab_size`` and ``context_length``. A set without ``facts`` of its own is
    judged by its first sample and its ``classes``; what cannot be told is left out.
    """
    declared = getattr(dataset, "facts", None)
    if declared is not None:
        return dict(declared)
    found: dict[str, Any] = {}
    sample = dataset[0]
    inputs = sample[0] if isinstance(sample, tuple | list) else sample
    if isinstance(inputs, Tensor) and inputs.ndim == 3 and inputs.is_floating_point():
        channels, height, width = inputs.shape
        found = {"kind": "images", "in_channels": channels, "image_size": (height, width)}
    elif isinstance(inputs, Tensor) and inputs.ndim == 1 and not inputs.is_floating_point():
        found = {"kind": "tokens", "context_length": len(inputs)}
    for name, attribute in (("num_classes", "classes"), ("vocab_size", "vocab_size")):
        value = getattr(dataset, attribute, None)
        if value is not None:
            found[name] = value if isinstance(value, int) else len(value)
    return found


class Loader:
    """Numbered batches of one data set: endless for training, or one pass for evaluation.

    Which samples batch ``number`` holds, and the random state that a worker draws its augmentations from,
    follow from ``seed`` and ``number`` alone. So a position is one integer, whatever the workers.

    The ranks of a job share the samples: batch ``number`` of all ranks together holds what that of a single process
    would with ``batch_size * ranks``.

    Args:
        dataset: See the module.
        batch_size: Samples a batch, on each rank; a maker has its own.
        seed: Of the order and the workers.
        workers: Processes that load ahead; 0 loads in the training process.
        pin_memory: Copy batches to page-locked memory, from which a device copies without the host waiting.
        prefetch: Batches that each worker keeps ready.
        rank, ranks: Which share of the batches is loaded here, of how many.

    Raises:
        UsageError: where the set has fewer samples than one batch of all ranks, or a maker is given workers.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        seed: int = 0,
        workers: int = 0,
        pin_memory: bool = False,
        prefetch: int = 2,
        rank: int = 0,
        ranks: int = 1,
    ) -> None:
        self.dataset = dataset
        self._rank, self._ranks = rank, ranks
        self._seed = seed
        self.batch_size = batch_size
        self._workers = workers
        self._pin_memory = pin_memory
        self._prefetch = prefetch
        if isinstance(dataset, Maker) and workers:
            raise UsageError(
                f"data.workers={workers}: {type(dataset).__name__} makes its batches on the device; use workers=0"
            )

    def stream(self, start: int = 0) -> Generator[Batch]:
        """Shuffled batches without end, from batch ``start``; a pass's last, smaller batch is left out.

        To close it, as what the other methods give, ends its workers.
        """
        if isinstance(self.dataset, Maker):
            numbers = itertools.count(start * self._ranks + self._rank, self._ranks)
            return (self.dataset.make(number) for number in numbers)
        return self._load(self._shuffled(start))

    def peek(self, start: int = 0) -> Batch:
        """The first batch of :meth:`stream`, loaded here without starting a worker."""
        if isinstance(self.dataset, Maker):
            return self.dataset.make(start * self._ranks + self._rank)
        return next(self._load_here(self._shuffled(start), _Fetch(self.dataset, self._seed)))

    def once(self) -> Generator[Batch]:
        """One pass in order, the last batch as small as it is."""
        return self._in_order(range(self._batches))

    def share(self, limit: int | None = None) -> Generator[tuple[Batch, bool]]:
        """This rank's batches of one pass, and whether each counts.

        Every rank gets as many, since running a sharded model is a collective; where they do not come out even, some
        get one that another rank has too, which does not count.

        Args:
            limit: Batches of all ranks together at most.
        """
        total = self._batches if limit is None else min(limit, self._batches)
        numbers = [start + self._rank for start in range(0, total, self._ranks)]
        batches = self._in_order([number % total for number in numbers])
        with closing(batches):
            for number, batch in zip(numbers, batches, strict=True):
                yield batch, number < total

    @property
    def _batches(self) -> int:
        """Of one pass."""
        size = len(self.dataset)
        return size if isinstance(self.dataset, Maker) else math.ceil(size / self.batch_size)

    def _in_order(self, numbers: Sequence[int]) -> Generator[Batch]:
        if isinstance(self.dataset, Maker):
            return (self.dataset.make(number) for number in numbers)
        return self._load(_InOrder(len(self.dataset), self.batch_size, numbers))

    def _shuffled(self, start: int) -> _Shuffled:
        samples = len(self.dataset)
        if samples < self.batch_size * self._ranks:
            each = f" on each of {self._ranks} ranks" if self._ranks > 1 else ""
            raise UsageError(
                f"data.batch_size={self.batch_size}{each} is more than the {samples} samples there are to train on"
            )
        return _Shuffled(samples, self.batch_size, self._seed, start, self._rank, self._ranks)

    def _load(self, order: Sampler[_Numbered]) -> Generator[Batch]:
        fetch = _Fetch(self.dataset, self._seed)
        if not self._workers:
            return self._load_here(order, fetch)
        return self._load_apart(order, fetch)

    def _load_apart(self, order: Sampler[_Numbered], fetch: _Fetch) -> Generator[Batch]:
        loader = DataLoader(
            fetch,
            sampler=order,
            batch_size=None,
            num_workers=self._workers,
            pin_memory=self._pin_memory,
            prefetch_factor=self._prefetch,
            worker_init_fn=_leave_signals_to_the_job,
            # Its own, lest every iterator draw from the global one, and a resumed job differ.
            generator=torch.Generator(),
        )
        with search_path.Sheltered():
            loading: Any = iter(loader)
        try:
            yield from loading
        finally:
            # An error's traceback may hold on to them, and Python would wait at its end for workers that ignore the
            # signal by which it ends them.
            loading._shutdown_workers()

    def _load_here(self, order: Sampler[_Numbered], fetch: _Fetch) -> Generator[Batch]:
        for numbered in order:
            # The name under which torch's own loader appears, and TensorBoard's plugin looks for it.
            with span("enumerate(DataLoader)#harness.data.Loader"):
                batch = fetch[numbered]
            yield map_tensors(batch, Tensor.pin_memory) if self._pin_memory else batch


def _leave_signals_to_the_job(worker: int) -> None:
    """Ctrl-C, and a batch system's SIGTERM, reach the workers too, and the job still wants its step's batch.

    Workers end when the job tells them to, or is gone.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    search_path.leave_the_shelter()


_Numbered = tuple[int, Tensor]
"""A batch's number and its samples' indices [batch_size]."""


class _Shuffled(Sampler[_Numbered]):
    def __init__(self, samples: int, batch_size: int, seed: int, start: int, rank: int, ranks: int) -> None:
        self._samples, self._batch_size, self._seed, self._start = samples, batch_size, seed, start
        self._rank, self._ranks = rank, ranks

    def __iter__(self) -> Iterator[_Numbered]:
        a_pass = self._samples // (self._batch_size * self._ranks)
        first = self._start % a_pass
        for epoch in itertools.count(self._start // a_pass):
            generator = torch.Generator().manual_seed(_mix(self._seed, epoch))
            order = torch.randperm(self._samples, generator=generator)
            for place in range(first, a_pass):
                cut = (place * self._ranks + self._rank) * self._batch_size
                number = (epoch * a_pass + place) * self._ranks + self._rank
                yield number, order[cut : cut + self._batch_size]
            first = 0


class _InOrder(Sampler[_Numbered]):
    def __init__(self, samples: int, batch_size: int, numbers: Sequence[int]) -> None:
        self._samples, self._batch_size, self._numbers = samples, batch_size, numbers

    def __iter__(self) -> Iterator[_Numbered]:
        for number in self._numbers:
            first = number * self._batch_size
            yield number, torch.arange(first, min(first + self._batch_size, self._samples))

    def __len__(self) -> int:
        return len(self._numbers)


class _Fetch(Dataset[Batch]):
    """A data set whose items are whole batches."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset = dataset
        self._seed = seed
        self._batch = getattr(dataset, "batch", None) or self._collate

    def __getitem__(self, numbered: _Numbered) -> Batch:
        number, indices = numbered
        if get_worker_info() is not None:
            seed = _mix(self._seed, number)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
        return self._batch(indices)

    def _collate(self, indices: Tensor) -> Batch:
        return default_collate([self._dataset[index] for index in indices.tolist()])


def map_tensors(batch: Batch, function: Callable[[Tensor], Tensor]) -> Batch:
    """``batch`` with ``function`` applied to each of its tensors."""
    if isinstance(batch, Tensor):
        return function(batch)
    if isinstance(batch, dict):
        return {key: map_tensors(value, function) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, function) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)([map_tensors(value, function) for value in batch])
    return batch


def to_device(batch: Batch, device: torch.device) -> Batch:
    """``batch`` on ``device``, copied without waiting where it is pinned."""
    if device.type == "cpu":
        return batch
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
