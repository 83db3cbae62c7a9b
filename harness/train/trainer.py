"""The loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from harness.board.events.logger import Logger
from harness.console import Progress
from harness.data import Batch, Loader, to_device
from harness.distributed.meeting import AgreedStop
from harness.distributed.stop import StopSignals
from harness.distributed.strategy import Strategy, whole
from harness.distributed.world import World
from harness.errors import DivergedError, UsageError
from harness.logdir import tags
from harness.record import Profiler, PublishedWindow, span
from harness.train.checkpoint import Checkpoints
from harness.train.composition import Composition, composition
from harness.train.evaluation import Evaluation, rehearse
from harness.train.meter import Meter
from harness.train.state import Keeper
from harness.train.summary import Summary
from harness.train.tasks import Task

Precision = Literal["fp32", "bf16", "fp16"]
SHOW_S = 0.5
"""How often the progress is brought up to date between two log lines."""
STOPPED_DRAIN_S = 10.0
"""How long a job that a signal has stopped waits for windows on their way."""


@dataclass(kw_only=True, eq=False, repr=False)
class Trainer:
    """Trains a model and keeps a profiler, a logger and checkpoints with it.

    A step is one update of the parameters, from ``grad_accumulation`` batches. Nothing in it waits for the
    device: losses stay there until they are logged.

    Of several ranks each builds one, with the same arguments; what is logged is the mean of all, and rank 0 writes it.
    """

    model: nn.Module | Strategy
    """On ``device`` already; or how it is spread over the ranks."""
    task: Task
    """How a batch becomes a loss."""
    optimizer: torch.optim.Optimizer | None
    """None for a task that trains nothing."""
    scheduler: torch.optim.lr_scheduler.LRScheduler | None = None
    """Stepped after every update."""
    train: Loader
    """Where training batches come from."""
    evaluation: Loader | None = None
    """Where evaluation batches come from; None evaluates nothing."""
    device: torch.device
    """Where batches go."""
    max_steps: int
    """Steps in all, those before a resumption included."""
    precision: Precision = "fp32"
    """``bf16`` and ``fp16`` run the forward pass under autocast, fp16 with a loss scaler."""
    compile: bool = False
    """Run the model through :func:`torch.compile`."""
    grad_accumulation: int = 1
    """Batches a step."""
    grad_clip: float | None = None
    """Largest norm of all gradients together; None clips nothing."""
    log_every: int = 50
    """Steps between two points of the curves."""
    eval_every: int | None = None
    """Steps between two evaluations; None evaluates at the end only."""
    eval_batches: int | None = None
    """Batches of an evaluation; None takes them all."""
    logger: Logger
    """Writes to TensorBoard."""
    checkpoints: Checkpoints | None = None
    """None saves nothing."""
    checkpoint_every: int | None = None
    """Steps between two checkpoints; None saves at the end only."""
    histograms_every: int | None = None
    """Steps between two histograms of all parameters; None writes none."""
    progress: Progress
    """Told of every step that is worth showing."""
    on_log: Callable[[int, dict[str, float]], None] = lambda step, metrics: None
    """Called with the step and the newest scalars."""
    before_save: Callable[[int], None] = lambda step: None
    """Called with the step before its checkpoint is written."""
    world: World = field(default_factory=World)
    """This process among those of the job."""

    def __post_init__(self) -> None:
        self._strategy = strategy = self.model if isinstance(self.model, Strategy) else Strategy(self.model)
        self._model = strategy.model
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]
        self._forward, eval_forward = strategy.train_forward, strategy.eval_forward
        if self.compile:
            same = self._forward is eval_forward
            self._forward = torch.compile(self._forward)
            eval_forward = self._forward if same else eval_forward
        self._autocast: AbstractContextManager[Any] = nullcontext()
        if self.precision != "fp32" and not strategy.casts:
            dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[self.precision]
            self._autocast = torch.autocast(self.device.type, dtype=dtype)
        self._scaler = torch.amp.GradScaler(self.device.type) if self.precision == "fp16" else None
        self._meter = Meter(
            task=self.task,
            optimizer=self.optimizer,
            device=self.device,
            logger=self.logger,
            progress=self.progress,
            on_log=self.on_log,
            world=self.world,
        )
        self._evaluation = (
            None
            if self.evaluation is None
            else Evaluation(
                strategy=strategy,
                forward=eval_forward,
                task=self.task,
                loader=self.evaluation,
                batches=self.eval_batches,
                device=self.device,
                autocast=self._autocast,
                world=self.world,
            )
        )
        self.keeper = Keeper(
            strategy=strategy,
            optimizer=self.optimizer,
            scheduler=self.scheduler,
            scaler=self._scaler,
            train=self.train,
            meter=self._meter,
            checkpoints=self.checkpoints,
            world=self.world,
        )
        self.state, self._newest = self.keeper.state, self.keeper.newest
        self._due = 0
        self._show_at = 0.0
        self._eval_due = self._save_due = False

    def restore(self, saved: dict[str, Any], *, source: Path) -> None:
        """Go on from a checkpoint: see :meth:`Keeper.restore`."""
        self.keeper.restore(saved, source=source)

    def rehearse(self) -> Batch:
        """Run the model on the first batch, before anything of the run is written; that batch, on the device.

        Raises:
            UsageError: where model, task and data do not fit together.
        """
        batch, has_loss = rehearse(
            self._model, self.task, self.train, start=self.state.batches, device=self.device, autocast=self._autocast
        )
        if has_loss and self.optimizer is None:
            raise UsageError("optimizer=none, and the task has a loss to train on; choose an optimizer")
        return batch

    def composition(self) -> Composition | None:
        """What the memory was made of: see :meth:`Meter.composition`."""
        return self._meter.composition()

    def window_recorded(self, window: PublishedWindow) -> None:
        """Take note of a window; the profiler's ``on_window``."""
        self._meter.window_recorded(window)

    def fit(self, profiler: Profiler) -> Summary:
        """Train up to ``max_steps``, or until a signal wants it to stop, and leave everything saved.

        Args:
            profiler: Begins at :attr:`state`'s step.

        Raises:
            DivergedError: at a loss that is not finite; the state goes to ``checkpoints/diverged.pt``.
        """
        started, first_step = time.perf_counter(), self.state.step
        world, meter = self.world, self._meter
        meter.windows = []
        stop_signals = StopSignals() if world.size == 1 else AgreedStop(world.store, rank=world.rank, size=world.size)
        with stop_signals as stop, self.progress:
            try:
                with profiler:
                    self._loop(profiler, stop)
                    profiler.explains = stop.received is None and self.state.step > first_step
                    profiler.end_window()
                    unsaved = self._finish(stop.received)
                    if stop.received is not None:
                        # Whoever sent it may not wait for long; what is late, the publisher does by itself.
                        profiler.drain_s = min(profiler.drain_s, STOPPED_DRAIN_S)
            finally:
                self.logger.flush()
        return Summary(
            first_step=first_step,
            step=self.state.step,
            seconds=time.perf_counter() - started,
            first_loss=meter.first_loss,
            last_loss=meter.metrics.get(tags.LOSS),
            metrics=dict(meter.metrics),
            windows=meter.windows,
            stopped_by=stop.received,
            saved=self._newest.saved == self.state.step,
            unsaved=unsaved,
        )

    def _loop(self, profiler: Profiler, stop: StopSignals) -> None:
        self._model.train()
        self._meter.begin()
        self._due = self._next_due()
        with closing(self.train.stream(self.state.batches)) as batches:
            self._steps(batches, profiler, stop)

    def _steps(self, batches: Iterator[Batch], profiler: Profiler, stop: StopSignals) -> None:
        state, meter = self.state, self._meter
        while state.step < self.max_steps:
            loss = self._step(batches)
            if loss is not None:
                meter.unread.append(loss)
            state.step += 1
            meter.interval.steps += 1
            profiler.end_step()
            if state.step >= self._due or time.perf_counter() >= self._show_at:
                self._between_steps(profiler)
            if state.step >= stop.attention and stop.agreed(state.step):
                return
            if state.step < self.max_steps:
                profiler.begin_step()

    def _step(self, batches: Iterator[Batch]) -> Tensor | None:
        """One update; the mean loss of its batches, on the device, or None where nothing is trained."""
        total: Tensor | None = None
        for number in range(self.grad_accumulation):
            if number + 1 < self.grad_accumulation:
                with self._strategy.without_sync():
                    loss = self._accumulate(batches)
            else:
                loss = self._accumulate(batches)
            if loss is not None:
                total = loss if total is None else total + loss
        if total is not None:
            with span("optimizer"):
                self._update()
        return total

    def _accumulate(self, batches: Iterator[Batch]) -> Tensor | None:
        """Add one batch's gradients; its share of the step's loss, on the device."""
        task, interval = self.task, self._meter.interval
        asked = time.perf_counter()
        with span("data"):
            batch = to_device(next(batches), self.device)
        interval.waited += time.perf_counter() - asked
        interval.amount += task.size(batch)
        self.state.batches += 1
        with self._autocast:
            with span("forward"):
                output = task.forward(self._forward, batch)
            with span("loss"):
                loss = task.loss(output, batch)
        if loss is None:
            return None
        if self.grad_accumulation > 1:
            loss = loss / self.grad_accumulation
        with span("backward"):
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        return loss.detach()

    def _update(self) -> None:
        optimizer, scaler = self.optimizer, self._scaler
        assert optimizer is not None
        done = self.state.step + 1
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self.grad_clip is not None:
            self._meter.grad_norm = whole(nn.utils.clip_grad_norm_(self._parameters, self.grad_clip))
        elif _is_multiple(done, self.log_every):
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            self._meter.grad_norm = whole(nn.utils.get_total_norm(gradients))
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if self.scheduler is not None:
            self.scheduler.step()
        if _is_multiple(done, self.log_every):
            self._meter.made_of = composition(self._model, optimizer)
        if _is_multiple(done, self.histograms_every):
            self.logger.histograms(self._model, done)
        optimizer.zero_grad()

    def _between_steps(self, profiler: Profiler) -> None:
        """Log; evaluate and save, once no window is under way, whose steps they would stretch.

        Nor could a job that resumed in the middle of a window record it.
        """
        step = self.state.step
        self._eval_due |= _is_multiple(step, self.eval_every)
        self._save_due |= _is_multiple(step, self.checkpoint_every)
        if _is_multiple(step, self.log_every):
            profiler.poll()
            self._log(profiler.figures)
        else:
            self.progress.show(step, {})
        self._show_at = time.perf_counter() + SHOW_S
        # What is due after the last step, the end does, in its own order.
        if (self._eval_due or self._save_due) and not profiler.in_window and step < self.max_steps:
            with self._meter.standing():
                if self._eval_due:
                    self._evaluate()
                if self._save_due:
                    self._save()
        self._due = self._next_due()

    def _next_due(self) -> int:
        """The next step after which there is something to do."""
        step = self.state.step
        if self._eval_due or self._save_due:
            return step + 1
        periods = (self.log_every, self.eval_every, self.checkpoint_every)
        return min(step - step % period + period for period in periods if period)

    def _finish(self, stopped_by: Signals | None) -> str | None:
        """Log, evaluate and save the last step; why its state is not on disk, and what is, None where it is."""
        newest, step = self._newest, self.state.step
        self._read_losses()
        interval = self._meter.interval
        self._meter.stand()
        if newest.logged != step:
            self._log()
            newest.logged = step
        if stopped_by is None and newest.evaluated != step:
            self._evaluate()
        if not _is_multiple(step, self.log_every):
            # The point that was just logged is one of this life alone: who goes on logs the whole interval.
            self._meter.interval = interval
        # Whether the newest save has failed, rank 0 knows, and all of them have to try it again together.
        newest.saved = self.world.gather(newest.saved)[0]
        problem = self.world.gather(self._save(last=True))[0]
        if problem is None or self.checkpoints is None:
            return None
        newest.saved = -1
        told: str = self.world.gather(self.keeper.told(problem) if self.world.leads else None)[0]
        return told

    def _read_losses(self) -> None:
        """Stop, on all ranks, at a loss that is not finite."""
        if (problem := self._meter.read_losses(self.state.step)) is not None:
            raise DivergedError(
                f"{problem}; training stops. {self.keeper.keep_diverged()}. A lower learning rate, trainer.grad_clip, "
                "or bf16 in place of fp16 may help"
            )

    def _log(self, figures: Mapping[str, float] = MappingProxyType({})) -> None:
        self._read_losses()
        self._meter.log(self.state.step, figures)

    def _evaluate(self) -> None:
        self._eval_due = False
        self._newest.evaluated = self.state.step
        if self._evaluation is None:
            return
        self._read_losses()
        metrics = self._evaluation.run()
        if metrics.get(tags.EVAL_LOSS, math.inf) < self.state.best_loss:
            self.state.best_loss, self.state.best_step = metrics[tags.EVAL_LOSS], self.state.step
            self._save_due = True
        if metrics:
            self._meter.publish(self.state.step, metrics)

    def _save(self, *, last: bool = False) -> str | None:
        """Write the checkpoint of this step unless it is there; see :meth:`Keeper.save`."""
        self._save_due = False
        if self.checkpoints is None or self._newest.saved == self.state.step:
            return None
        self._read_losses()
        # What others are told of the run, its curves included, is never behind what it can go on from.
        self.before_save(self.state.step)
        self.logger.flush()
        return self.keeper.save(last=last)


def _is_multiple(step: int, period: int | None) -> bool:
    return period is not None and step % period == 0
