"""What is trained: how a batch becomes a loss, and what an evaluation measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from harness.data import Batch
from harness.errors import UsageError


class Task(Protocol):
    """One of these stands between the model and the loop; ``task._target_`` may name one of your own."""

    unit: str
    """What throughput counts: ``samples`` or ``tokens``."""

    def size(self, batch: Batch) -> int:
        """How many ``unit`` the batch holds."""

    def forward(self, model: Callable[..., Any], batch: Batch) -> Any:
        """The model's output."""

    def loss(self, output: Any, batch: Batch) -> Tensor | None:
        """The mean loss, a scalar; None trains nothing and only runs the model."""

    def metrics(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        """Further means over the batch for an evaluation, scalars by name."""


class _Supervised:
    """The model sees ``batch[0]``."""

    unit = "samples"

    def size(self, batch: Batch) -> int:
        return len(batch[0])

    def forward(self, model: Callable[..., Any], batch: Batch) -> Any:
        return model(batch[0])


class Classification(_Supervised):
    """Cross-entropy of logits [batch, classes] against labels [batch]; accuracy.

    Args:
        label_smoothing: Share of the target spread over all classes (Szegedy et al., 2015).
    """

    def __init__(self, *, label_smoothing: float = 0.0) -> None:
        self._label_smoothing = label_smoothing

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(output, batch[1], label_smoothing=self._label_smoothing)

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (output.argmax(-1) == batch[1]).float().mean()}


class LanguageModeling(_Supervised):
    """Cross-entropy of logits [batch, positions, vocabulary] against the next tokens [batch, positions]."""

    unit = "tokens"

    def size(self, batch: Batch) -> int:
        return int(batch[1].numel())

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(output.flatten(0, 1), batch[1].flatten())

    def metrics(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        return {"accuracy": (output.argmax(-1) == batch[1]).float().mean()}


class Inference(_Supervised):
    """Runs the model without gradients and trains nothing: no loss, no backward, no optimizer."""

    @torch.no_grad()
    def forward(self, model: Callable[..., Any], batch: Batch) -> Any:
        return super().forward(model, batch)

    def loss(self, output: Any, batch: Batch) -> None:
        return None

    def metrics(self, output: Any, batch: Batch) -> dict[str, Tensor]:
        return {}


def auto(*, kind: str) -> Task:
    """The task that goes with the data: images are classified, tokens predicted, matrices only multiplied.

    Raises:
        UsageError: for data of another kind.
    """
    tasks: dict[str, Callable[[], Task]] = {
        "images": Classification,
        "tokens": LanguageModeling,
        "matrices": Inference,
    }
    if kind not in tasks:
        raise UsageError(f"task=auto: no task goes with data of kind {kind!r}; name one, as task=classification")
    return tasks[kind]()
