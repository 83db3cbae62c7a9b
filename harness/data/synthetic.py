"""Batches from nothing but their number, made on the device: a job without a loader, to measure the rest by."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.data.batch import mixed


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
        return self._generator.manual_seed(mixed(self._seed, number))


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
