"""What a job's memory is made of, as far as its model and optimizer tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.logdir import tags
from harness.quantities import MIB


@dataclass(frozen=True, kw_only=True)
class Composition:
    """Bytes on the model's devices. Sharded tensors count with what this rank holds of them."""

    parameters: int
    """And buffers."""
    gradients: int
    """Those that were there when it was measured: all, between the backward pass and ``zero_grad``."""
    optimizer_state: int
    activations_and_rest: int | None = None
    """The rest of the peak: what the forward pass keeps for the backward one, workspaces, batches, everything else.

    The three above count whole, so where the peak lies in the middle of the backward pass, with part of the gradients
    there, it is a little too small. None where the peak is not known.
    """

    def with_peak(self, peak: int | None) -> Composition:
        """The same, of a peak of so many allocated bytes."""
        if peak is None:
            return self
        known = self.parameters + self.gradients + self.optimizer_state
        return Composition(
            parameters=self.parameters,
            gradients=self.gradients,
            optimizer_state=self.optimizer_state,
            activations_and_rest=max(peak - known, 0),
        )

    def parts(self) -> list[tuple[str, int]]:
        """What is known, by the names that people use."""
        parts = [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
        ]
        if self.activations_and_rest is not None:
            parts.append(("activations and rest", self.activations_and_rest))
        return parts

    def scalars(self) -> dict[str, float]:
        """``memory/parameters_mib`` and the others."""
        return {tags.memory_of(name): count / MIB for name, count in self.parts()}


def composition(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Composition:
    """Measure; takes about a microsecond for each tensor.

    Call it between the backward pass and ``zero_grad``, while the gradients are there.
    """
    parameters = list(model.parameters())
    gradients = (parameter.grad for parameter in parameters if parameter.grad is not None)
    return Composition(
        parameters=_bytes([*parameters, *model.buffers()]),
        gradients=_bytes(gradients),
        optimizer_state=_bytes(_state(optimizer, parameters)),
    )


def _state(optimizer: torch.optim.Optimizer | None, parameters: Iterable[nn.Parameter]) -> Iterator[Tensor]:
    """Tensors of the optimizer's state beside the parameters; its counters, which stay on the host, are not among
    them where the parameters are on a device."""
    devices = {parameter.device for parameter in parameters}
    states: Iterable[Mapping[Any, Any]] = optimizer.state.values() if optimizer is not None else ()
    for state in states:
        if isinstance(state, Mapping):
            yield from (value for value in state.values() if isinstance(value, Tensor) and value.device in devices)


def _bytes(tensors: Iterable[Tensor]) -> int:
    """Of every storage once: tied weights and views share theirs."""
    storages: dict[tuple[torch.device, int], int] = {}
    for tensor in tensors:
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        if local.is_sparse:
            local = local._values()
        storage = local.untyped_storage()
        storages[local.device, storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())
