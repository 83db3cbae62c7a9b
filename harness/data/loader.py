"""The loader, which feeds a job from a data set, batch by numbered batch.

A data set is one of three things:

- any map-style :class:`torch.utils.data.Dataset`; samples are collated by torch;
- one that also has ``batch(indices)`` and returns a whole batch at once;
- a maker: no samples, only ``make(number)``, which returns batch ``number``, as the synthetic sets do on
  the device, so that no loader is in the picture.
"""

from __future__ import annotations

import itertools
import math
import random
import signal
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate, get_worker_info

from harness import search_path
from harness.data.batch import Batch, map_tensors, mixed
from harness.distributed.stop import STOPPING
from harness.errors import UsageError
from harness.record import span


@runtime_checkable
class Maker(Protocol):
    """A data set that makes whole batches, each from nothing but its number."""

    def make(self, number: int) -> Batch:
        """Batch ``number`` (0, 1, ...), the same at every call."""

    def __len__(self) -> int:
        """Batches in one pass of an evaluation."""


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
            generator = torch.Generator().manual_seed(mixed(self._seed, epoch))
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
            seed = mixed(self._seed, number)
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
        return self._batch(indices)

    def _collate(self, indices: Tensor) -> Batch:
        return default_collate([self._dataset[index] for index in indices.tolist()])
