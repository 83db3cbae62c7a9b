"""Batches that are run and not trained on: an evaluation's, and the first one, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from harness.data import Batch, Loader, to_device
from harness.distributed.strategy import Strategy
from harness.distributed.world import World
from harness.errors import UsageError
from harness.logdir import tags
from harness.train.randomness import random_state, restore_random_state
from harness.train.tasks import Task


@dataclass(kw_only=True)
class Evaluation:
    """The loss and the task's metrics over a pass of the evaluation's batches, shared out among the ranks."""

    strategy: Strategy
    forward: Callable[..., Any]
    """The model, as it is called."""
    task: Task
    loader: Loader
    batches: int | None
    """Of a pass; None takes them all."""
    device: torch.device
    autocast: AbstractContextManager[Any]
    world: World

    @torch.no_grad()
    def run(self) -> dict[str, float]:
        """Means over all samples, by the tags of their curves; every rank's to call."""
        totals: dict[str, Tensor] = {}
        amount = 0
        model, task = self.strategy.model, self.task
        model.eval()
        self.strategy.synchronize_buffers()
        with closing(self.loader.share(self.batches)) as batches:
            for batch, counts in batches:
                batch = to_device(batch, self.device)
                size = task.size(batch) * counts
                with self.autocast:
                    output = task.forward(self.forward, batch)
                    loss = task.loss(output, batch)
                    values = task.metrics(output, batch)
                if loss is not None:
                    values = {"loss": loss, **values}
                for name, value in values.items():
                    totals[name] = totals.get(name, torch.zeros((), device=self.device)) + value.float() * size
                amount += size
        model.train()
        if self.world.size > 1 and totals:
            count = torch.tensor(float(amount), device=self.device)
            *sums, count = self.world.sum(torch.stack([*totals.values(), count])).unbind()
            totals, amount = dict(zip(totals, sums, strict=True)), int(count.item())
        return {f"{tags.EVAL}{name}": total.item() / amount for name, total in totals.items()}


def rehearse(
    model: nn.Module,
    task: Task,
    loader: Loader,
    *,
    start: int,
    device: torch.device,
    autocast: AbstractContextManager[Any],
) -> tuple[Batch, bool]:
    """Run the model on the batch that it begins with; that batch, on the device, and whether there is a loss.

    Args:
        start: The batch's number.

    Raises:
        UsageError: where model, task and data do not fit together.
    """
    untouched = random_state()
    try:
        batch = to_device(loader.peek(start), device)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"data.train: the first batch cannot be made: {type(error).__name__}: {error}") from error
    model.eval()
    try:
        with torch.no_grad(), autocast:
            loss = task.loss(task.forward(model, batch), batch)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        raise UsageError(
            f"{type(model).__name__}, {type(task).__name__} and {type(loader.dataset).__name__} do not fit together: "
            f"{error}"
        ) from error
    finally:
        restore_random_state(untouched)
    return batch, loss is not None
