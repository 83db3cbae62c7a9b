"""A batch: what its tensors go through on their way to the device, and the seed that it is drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Batch = Any
"""Tensors, in any nesting of tuples, lists and dicts; ours are ``(inputs, targets)``."""


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


def mixed(seed: int, number: int) -> int:
    """A seed of 63 bits that differs in all of them: torch's CPU generator looks only at the lower 32."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64).item()) >> 1
