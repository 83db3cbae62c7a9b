"""Losses, times and memory of a job, brought together between two points of its curves and written as the next."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from harness.board.events.logger import Logger
from harness.console import Progress
from harness.distributed.world import World
from harness.logdir import tags
from harness.quantities import MIB
from harness.record import PublishedWindow
from harness.train.composition import Composition
from harness.train.tasks import Task

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Interval:
    """What has come together since the last log line."""

    started: float = field(default_factory=time.perf_counter)
    steps: int = 0
    amount: int = 0
    """Samples or tokens."""
    waited: float = 0.0
    """Seconds in which the loop waited for a batch."""
    paused: float = 0.0
    """Seconds between steps that are no training: evaluations, checkpoints."""
    trained: float = 0.0
    """Seconds of training before the process began, where the job was resumed in the middle of the interval."""
    losses: list[float] = field(default_factory=list)

    def seconds(self, until: float) -> float:
        """Of training, from its beginning."""
        return until - self.started - self.paused


class Meter:
    """What a loop leaves here at every step, and what becomes of it when it is logged.

    Attributes:
        interval: Of the steps since the last log line.
        unread: Losses that are still on the device.
        grad_norm: Of a step that is logged, on the device.
        made_of: What the memory was made of when that was looked at last.
        metrics: The newest value of every scalar, by tag.
        first_loss: Mean training loss of the first logged interval.
        windows: Those that were recorded, without their findings: a job for weeks has no room for them.
    """

    def __init__(
        self,
        *,
        task: Task,
        optimizer: torch.optim.Optimizer | None,
        device: torch.device,
        logger: Logger,
        progress: Progress,
        on_log: Callable[[int, dict[str, float]], None],
        world: World,
    ) -> None:
        self.interval = Interval()
        self.unread: list[Tensor] = []
        self.grad_norm: Tensor | None = None
        self.made_of: Composition | None = None
        self.metrics: dict[str, float] = {}
        self.first_loss: float | None = None
        self.windows: list[PublishedWindow] = []
        self._task = task
        self._optimizer = optimizer
        self._device = device
        self._logger = logger
        self._progress = progress
        self._on_log = on_log
        self._world = world
        self._stands_since: float | None = None
        """When the loop stopped for what is no training; None while it runs."""

    def begin(self) -> None:
        """The loop begins. What had come together when a resumed job was saved goes on; restored, it began at no time
        of this process."""
        self.interval.started = time.perf_counter() - self.interval.trained

    def stand(self) -> None:
        """From here on there is no training."""
        self._stands_since = time.perf_counter()

    @contextmanager
    def standing(self) -> Iterator[None]:
        """Around what is no training; its time counts for no step."""
        self._stands_since = since = time.perf_counter()
        try:
            yield
        finally:
            self.interval.paused += time.perf_counter() - since
            self._stands_since = None

    def read_losses(self, step: int) -> str | None:
        """Bring the losses that are still on the device here, as means of all ranks; which of them is not finite, and
        None where all are. A rank's that is not makes the mean so, and all hear of it.

        Args:
            step: How many are done.
        """
        if not self.unread:
            return None
        # One copy from a GPU in place of one for each loss; on the CPU each is at hand.
        if self._device.type == "cpu" and self._world.size == 1:
            losses = [loss.item() for loss in self.unread]
        else:
            losses = (self._world.sum(torch.stack(self.unread).float()) / self._world.size).tolist()
        first = step - len(losses)
        self.unread.clear()
        for offset, loss in enumerate(losses):
            if not math.isfinite(loss):
                return f"the loss of step {first + offset} is {loss}"
        self.interval.losses += losses
        return None

    def log(self, step: int, figures: Mapping[str, float] = MappingProxyType({})) -> None:
        """Write the interval's curves, and ``figures`` with them: each event by itself takes the loop some time."""
        interval, self.interval = self.interval, Interval()
        if not interval.steps:
            return
        seconds = interval.seconds(self.interval.started)
        metrics: dict[str, float] = {}
        if interval.losses:
            metrics[tags.LOSS] = sum(interval.losses) / len(interval.losses)
            if self.first_loss is None:
                self.first_loss = metrics[tags.LOSS]
        if self._optimizer is not None and interval.losses:
            metrics[tags.LEARNING_RATE] = float(self._optimizer.param_groups[0]["lr"])
        if self.grad_norm is not None:
            metrics[tags.GRADIENT_NORM] = self.grad_norm.item()
            self.grad_norm = None
        metrics[tags.per_second(self._task.unit)] = interval.amount * self._world.size / seconds
        metrics[tags.STEP_MS] = seconds / interval.steps * 1e3
        metrics[tags.DATA_WAIT_MS] = interval.waited / interval.steps * 1e3
        if self._device.type == "cuda":
            metrics[tags.ALLOCATED_MIB] = torch.cuda.memory_allocated(self._device) / MIB
            metrics[tags.PEAK_ALLOCATED_MIB] = torch.cuda.max_memory_allocated(self._device) / MIB
            metrics[tags.RESERVED_MIB] = torch.cuda.memory_reserved(self._device) / MIB
        if (made_of := self.composition()) is not None:
            metrics |= made_of.scalars()
        self.publish(step, metrics, figures)

    def publish(
        self, step: int, metrics: dict[str, float], figures: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Tell the curves, the run and the terminal."""
        self.metrics.update(metrics)
        self._logger.scalars({**metrics, **figures}, step)
        self._on_log(step, metrics)
        names = (tags.LOSS, tags.EVAL_ACCURACY, tags.per_second(self._task.unit))
        shown = {
            name.split("/")[1].replace("_per_second", "/s"): self.metrics[name]
            for name in names
            if name in self.metrics
        }
        self._progress.show(step, shown)

    def window_recorded(self, window: PublishedWindow) -> None:
        """Take note of a window."""
        self.windows.append(replace(window, report=None))
        self._logger.scalars({tags.WINDOW_STALL_MS: window.stall_us / 1e3}, window.first_step)
        log.info(
            "steps %d to %d recorded%s: %s/%s (the loop stood still for %.0f ms)",
            window.first_step,
            window.first_step + window.steps - 1,
            ", cut short" if window.partial else "",
            window.path.parent.name,
            window.path.name,
            window.stall_us / 1e3,
        )

    def composition(self) -> Composition | None:
        """What the memory was made of when it was logged last; with the rest of the peak on a GPU.

        The CPU's allocator counts only while a window records, so there is no peak of the whole to take it from.
        """
        if self.made_of is None or self._device.type != "cuda":
            return self.made_of
        return self.made_of.with_peak(torch.cuda.max_memory_allocated(self._device))

    def gathered(self) -> dict[str, Any]:
        """What has come together of the interval, for whoever goes on in the middle of it; times as rank 0's."""
        interval = vars(self.interval) | {"amount": self.interval.amount * self._world.size}
        interval["trained"] = self.interval.seconds(self._stands_since or time.perf_counter())
        return {name: value for name, value in interval.items() if name not in ("started", "paused")}

    def go_on(self, gathered: Mapping[str, Any]) -> None:
        """Take up the interval in the middle of which a job was saved."""
        self.interval = Interval(**{**gathered, "amount": gathered["amount"] // self._world.size})
