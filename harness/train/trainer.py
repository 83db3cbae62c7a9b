"""The loop."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
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
from harness.files import persistently
from harness.record import Profiler, PublishedWindow, span
from harness.train import checkpoint
from harness.train.checkpoint import Checkpoints
from harness.train.composition import Composition, composition
from harness.train.tasks import Task

log = logging.getLogger(__name__)

Precision = Literal["fp32", "bf16", "fp16"]
DIVERGED = "diverged.pt"
SHOW_S = 0.5
"""How often the progress is brought up to date between two log lines."""
STOPPED_DRAIN_S = 10.0
"""How long a job that a signal has stopped waits for windows on their way."""
MIB = 1024**2


@dataclass(kw_only=True)
class State:
    """What a job has to remember beside its model: how far it is, and what was best."""

    step: int = 0
    """Optimizer steps done."""
    batches: int = 0
    """Batches consumed on each rank: the data's position."""
    best_loss: float = math.inf
    """The lowest evaluation loss."""
    best_step: int | None = None


@dataclass(kw_only=True)
class Summary:
    """How a job went, since it was started or resumed."""

    first_step: int
    """Before which it had trained already; 0 unless it was resumed."""
    step: int
    seconds: float
    first_loss: float | None
    """Mean training loss of the first logged interval."""
    last_loss: float | None
    metrics: dict[str, float]
    """The newest value of every scalar, by tag."""
    windows: list[PublishedWindow]
    stopped_by: Signals | None
    """The signal that ended the job before its time."""
    saved: bool
    """Whether the state of :attr:`step` is on disk, from which a resumption goes on."""
    unsaved: str | None
    """Why it is not, although it was to be, and what is."""


@dataclass(kw_only=True)
class _Interval:
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


class Trainer:
    """Trains a model and keeps a profiler, a logger and checkpoints with it.

    A step is one update of the parameters, from ``grad_accumulation`` batches. Nothing in it waits for the
    device: losses stay there until they are logged.

    Of several ranks each builds one, with the same arguments; what is logged is the mean of all, and rank 0 writes it.

    Args:
        model: On ``device`` already; or how it is spread over the ranks.
        task: How a batch becomes a loss.
        optimizer: None for a task that trains nothing.
        scheduler: Stepped after every update.
        train: Where training batches come from.
        evaluation: Where evaluation batches come from; None evaluates nothing.
        device: Where batches go.
        max_steps: Steps in all, those before a resumption included.
        precision: ``bf16`` and ``fp16`` run the forward pass under autocast, fp16 with a loss scaler.
        compile: Run the model through :func:`torch.compile`.
        grad_clip: Largest norm of all gradients together; None clips nothing.
        log_every: Steps between two points of the curves.
        eval_every: Steps between two evaluations; None evaluates at the end only.
        eval_batches: Batches of an evaluation; None takes them all.
        logger: Writes to TensorBoard.
        checkpoints: None saves nothing.
        checkpoint_every: Steps between two checkpoints; None saves at the end only.
        histograms_every: Steps between two histograms of all parameters; None writes none.
        progress: Told of every step that is worth showing.
        on_log: Called with the step and the newest scalars.
        before_save: Called with the step before its checkpoint is written.
        world: This process among those of the job.
    """

    def __init__(
        self,
        *,
        model: nn.Module | Strategy,
        task: Task,
        optimizer: torch.optim.Optimizer | None,
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = None,
        train: Loader,
        evaluation: Loader | None = None,
        device: torch.device,
        max_steps: int,
        precision: Precision = "fp32",
        compile: bool = False,
        grad_accumulation: int = 1,
        grad_clip: float | None = None,
        log_every: int = 50,
        eval_every: int | None = None,
        eval_batches: int | None = None,
        logger: Logger,
        checkpoints: Checkpoints | None = None,
        checkpoint_every: int | None = None,
        histograms_every: int | None = None,
        progress: Progress,
        on_log: Callable[[int, dict[str, float]], None] = lambda step, metrics: None,
        before_save: Callable[[int], None] = lambda step: None,
        world: World | None = None,
    ) -> None:
        self.state = State()
        self._world = world or World()
        self._strategy = model if isinstance(model, Strategy) else Strategy(model)
        self._model = self._strategy.model
        self._forward, self._eval_forward = self._strategy.train_forward, self._strategy.eval_forward
        if compile:
            same = self._forward is self._eval_forward
            self._forward = torch.compile(self._forward)
            self._eval_forward = self._forward if same else self._eval_forward
        self._parameters = [p for p in self._model.parameters() if p.requires_grad]
        self._task = task
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._train = train
        self._evaluation = evaluation
        self._device = device
        self._max_steps = max_steps
        self._precision = precision
        self._autocast = self._make_autocast()
        self._scaler = torch.amp.GradScaler(device.type) if precision == "fp16" else None
        self._accumulation = grad_accumulation
        self._clip = grad_clip
        self._log_every = log_every
        self._eval_every = eval_every
        self._eval_batches = eval_batches
        self._logger = logger
        self._checkpoints = checkpoints
        self._checkpoint_every = checkpoint_every
        self._histograms_every = histograms_every
        self._progress = progress
        self._on_log = on_log
        self._before_save = before_save

        self._due = 0
        self._show_at = 0.0
        self._interval = _Interval()
        self._stands_since: float | None = None
        """When the loop stopped for an evaluation or a checkpoint; None while it runs."""
        self._unread: list[Tensor] = []
        self._grad_norm: Tensor | None = None
        self._composition: Composition | None = None
        self._metrics: dict[str, float] = {}
        self._first_loss: float | None = None
        self._evaluated_step = self._logged_step = self._saved_step = -1
        self._eval_due = self._save_due = False

    def restore(self, saved: dict[str, Any], *, source: Path) -> None:
        """Go on from a checkpoint's state, as if the job had never stopped.

        Args:
            source: Where it is from, for messages.

        Raises:
            UsageError: where it is another model's, or was saved with another optimizer.
        """
        folder = saved.get(checkpoint.SHARDED)
        if (folder is not None) != self._strategy.sharded:
            kind = "sharded, by strategy=fsdp2" if folder is not None else "of a whole model, not sharded"
            raise UsageError(
                f"resume: the checkpoint in {source} is {kind}; go on with the strategy that it was saved by"
            )
        try:
            self._restore(saved, folder)
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
            # Values of another kind end in whatever their reader happens to do with them.
            reason = "\n".join(str(error).splitlines()[:3])
            raise UsageError(
                f"resume: the checkpoint in {source} is of another model or optimizer than the configuration's: "
                f"{reason}"
            ) from error

    def _restore(self, saved: dict[str, Any], folder: Path | None) -> None:
        if saved["optimizer_type"] != _type_name(self._optimizer):
            raise ValueError(f"{saved['optimizer_type']}, not {_type_name(self._optimizer)}")
        if folder is not None:
            self._strategy.load(folder, self._optimizer)
        else:
            self._model.load_state_dict(saved["model"])
            if self._optimizer is not None and saved["optimizer"] is not None:
                self._optimizer.load_state_dict(saved["optimizer"])
        if self._scheduler is not None and saved["scheduler"] is not None:
            self._scheduler.load_state_dict(saved["scheduler"])
        if self._scaler is not None and saved["scaler"] is not None:
            self._scaler.load_state_dict(saved["scaler"])
        self.state = State(**saved["state"])
        # Where ranks or batches are others, as many samples are behind as were, to the nearest batch.
        self.state.batches = self.state.batches * saved["global_batch"] // self._global_batch
        random = saved["random"]
        if len(random) == self._world.size:
            checkpoint.restore_random_state(random[self._world.rank])
        else:
            torch.manual_seed(torch.initial_seed() + self.state.step)
        self._saved_step = self.state.step
        # Those of 0.1.0 know neither what was written of their step nor of the interval in which they were saved.
        if saved.get("evaluated"):
            self._evaluated_step = self.state.step
        if saved.get("logged"):
            self._logged_step = self.state.step
        if (interval := saved.get("interval")) is not None:
            amount = interval["amount"] // self._world.size
            self._interval = _Interval(**{**interval, "amount": amount})

    def rehearse(self) -> Batch:
        """Run the model on the first batch, before anything of the run is written; that batch, on the device.

        Raises:
            UsageError: where model, task and data do not fit together.
        """
        untouched = checkpoint.random_state()
        try:
            batch = to_device(self._train.peek(self.state.batches), self._device)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(f"data.train: the first batch cannot be made: {type(error).__name__}: {error}") from error
        self._model.eval()
        try:
            with torch.no_grad(), self._autocast:
                loss = self._task.loss(self._task.forward(self._model, batch), batch)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise UsageError(
                f"{type(self._model).__name__}, {type(self._task).__name__} and "
                f"{type(self._train.dataset).__name__} do not fit together: {error}"
            ) from error
        finally:
            checkpoint.restore_random_state(untouched)
        if loss is not None and self._optimizer is None:
            raise UsageError("optimizer=none, and the task has a loss to train on; choose an optimizer")
        return batch

    def fit(self, profiler: Profiler) -> Summary:
        """Train up to ``max_steps``, or until a signal wants it to stop, and leave everything saved.

        Args:
            profiler: Begins at :attr:`state`'s step.

        Raises:
            DivergedError: at a loss that is not finite; the state goes to ``checkpoints/diverged.pt``.
        """
        started, first_step = time.perf_counter(), self.state.step
        self._windows: list[PublishedWindow] = []
        world = self._world
        stop_signals = StopSignals() if world.size == 1 else AgreedStop(world.store, rank=world.rank, size=world.size)
        with stop_signals as stop, self._progress:
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
                self._logger.flush()
        return Summary(
            first_step=first_step,
            step=self.state.step,
            seconds=time.perf_counter() - started,
            first_loss=self._first_loss,
            last_loss=self._metrics.get("train/loss"),
            metrics=dict(self._metrics),
            windows=self._windows,
            stopped_by=stop.received,
            saved=self._saved_step == self.state.step,
            unsaved=unsaved,
        )

    def composition(self) -> Composition | None:
        """What the memory was made of when it was logged last; with the rest of the peak on a GPU.

        The CPU's allocator counts only while a window records, so there is no peak of the whole to take it from.
        """
        if self._composition is None or self._device.type != "cuda":
            return self._composition
        return self._composition.with_peak(torch.cuda.max_memory_allocated(self._device))

    def window_recorded(self, window: PublishedWindow) -> None:
        """Take note of a window; the profiler's ``on_window``."""
        # A job for weeks has no room for what each of them says.
        self._windows.append(replace(window, report=None))
        self._logger.scalars({"window/stall_ms": window.stall_us / 1e3}, window.first_step)
        log.info(
            "steps %d to %d recorded%s: %s/%s (the loop stood still for %.0f ms)",
            window.first_step,
            window.first_step + window.steps - 1,
            ", cut short" if window.partial else "",
            window.path.parent.name,
            window.path.name,
            window.stall_us / 1e3,
        )

    def _loop(self, profiler: Profiler, stop: StopSignals) -> None:
        self._model.train()
        # What had come together when a resumed job was saved goes on; restored, it began at no time of this process.
        self._interval.started = time.perf_counter() - self._interval.trained
        self._due = self._next_due()
        with closing(self._train.stream(self.state.batches)) as batches:
            self._steps(batches, profiler, stop)

    def _steps(self, batches: Iterator[Batch], profiler: Profiler, stop: StopSignals) -> None:
        while self.state.step < self._max_steps:
            loss = self._step(batches)
            if loss is not None:
                self._unread.append(loss)
            self.state.step += 1
            self._interval.steps += 1
            profiler.end_step()
            if self.state.step >= self._due or time.perf_counter() >= self._show_at:
                self._between_steps(profiler)
            if self.state.step >= stop.attention and stop.agreed(self.state.step):
                return
            if self.state.step < self._max_steps:
                profiler.begin_step()

    def _step(self, batches: Iterator[Batch]) -> Tensor | None:
        """One update; the mean loss of its batches, on the device, or None where nothing is trained."""
        total: Tensor | None = None
        for number in range(self._accumulation):
            if number + 1 < self._accumulation:
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
        asked = time.perf_counter()
        with span("data"):
            batch = to_device(next(batches), self._device)
        self._interval.waited += time.perf_counter() - asked
        self.state.batches += 1
        self._interval.amount += self._task.size(batch)
        with self._autocast:
            with span("forward"):
                output = self._task.forward(self._forward, batch)
            with span("loss"):
                loss = self._task.loss(output, batch)
        if loss is None:
            return None
        if self._accumulation > 1:
            loss = loss / self._accumulation
        with span("backward"):
            (loss if self._scaler is None else self._scaler.scale(loss)).backward()
        return loss.detach()

    def _update(self) -> None:
        optimizer, scaler = self._optimizer, self._scaler
        assert optimizer is not None
        if scaler is not None:
            scaler.unscale_(optimizer)
        if self._clip is not None:
            self._grad_norm = whole(nn.utils.clip_grad_norm_(self._parameters, self._clip))
        elif _is_multiple(self.state.step + 1, self._log_every):
            gradients = [p.grad for p in self._parameters if p.grad is not None]
            self._grad_norm = whole(nn.utils.get_total_norm(gradients))
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if self._scheduler is not None:
            self._scheduler.step()
        if _is_multiple(self.state.step + 1, self._log_every):
            self._composition = composition(self._model, optimizer)
        if _is_multiple(self.state.step + 1, self._histograms_every):
            self._logger.histograms(self._model, self.state.step + 1)
        optimizer.zero_grad()

    def _between_steps(self, profiler: Profiler) -> None:
        """Log; evaluate and save, once no window is under way, whose steps they would stretch.

        Nor could a job that resumed in the middle of a window record it.
        """
        step = self.state.step
        self._eval_due |= _is_multiple(step, self._eval_every)
        self._save_due |= _is_multiple(step, self._checkpoint_every)
        if _is_multiple(step, self._log_every):
            profiler.poll()
            self._log(profiler.figures)
        else:
            self._progress.show(step, {})
        self._show_at = time.perf_counter() + SHOW_S
        # What is due after the last step, the end does, in its own order.
        if (self._eval_due or self._save_due) and not profiler.in_window and step < self._max_steps:
            with self._standing():
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
        periods = (self._log_every, self._eval_every, self._checkpoint_every)
        return min(step - step % period + period for period in periods if period)

    @contextmanager
    def _standing(self) -> Iterator[None]:
        """Around what is no training; its time counts for no step."""
        self._stands_since = time.perf_counter()
        try:
            yield
        finally:
            self._interval.paused += time.perf_counter() - self._stands_since
            self._stands_since = None

    def _finish(self, stopped_by: Signals | None) -> str | None:
        """Log, evaluate and save the last step; why its state is not on disk, and what is, None where it is."""
        self._read_losses()
        interval = self._interval
        self._stands_since = time.perf_counter()
        if self._logged_step != self.state.step:
            self._log()
            self._logged_step = self.state.step
        if stopped_by is None and self._evaluated_step != self.state.step:
            self._evaluate()
        if not _is_multiple(self.state.step, self._log_every):
            # The point that was just logged is one of this life alone: who goes on logs the whole interval.
            self._interval = interval
        # Whether the newest save has failed, rank 0 knows, and all of them have to try it again together.
        self._saved_step = self._world.gather(self._saved_step)[0]
        problem = self._world.gather(self._save(last=True))[0]
        if problem is None or self._checkpoints is None:
            return None
        self._saved_step = -1
        told: str = self._world.gather(self._told(problem) if self._world.leads else None)[0]
        return told

    def _told(self, problem: str) -> str:
        """What a person has to know where the last state could not be saved."""
        assert self._checkpoints is not None
        good = self._checkpoints.newest_whole()
        there = f"the last good one is {good}" if good is not None else "there is no good one before it"
        return f"its checkpoint could not be written ({problem}); {there}"

    def _read_losses(self) -> None:
        """Bring the losses that are still on the device here, as means of all ranks, and stop at one that is not
        finite: a rank's that is not makes the mean so, and all stop."""
        if not self._unread:
            return
        # One copy from a GPU in place of one for each loss; on the CPU each is at hand.
        if self._device.type == "cpu" and self._world.size == 1:
            losses = [loss.item() for loss in self._unread]
        else:
            losses = (self._world.sum(torch.stack(self._unread).float()) / self._world.size).tolist()
        first = self.state.step - len(losses)
        self._unread.clear()
        for offset, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise DivergedError(
                    f"the loss of step {first + offset} is {loss}; training stops. {self._keep_diverged()}. A lower "
                    "learning rate, trainer.grad_clip, or bf16 in place of fp16 may help"
                )
        self._interval.losses += losses

    def _keep_diverged(self) -> str:
        """Save the state that has diverged; where it is."""
        if self._checkpoints is None:
            return "Checkpoints are off, so its state is not kept"
        if (problem := self._save_as(None, last=True)) is not None:
            return f"Its state could not be kept ({problem}); the checkpoints before it are untouched"
        name = DIVERGED.removesuffix(".pt") if self._strategy.sharded else DIVERGED
        return f"The state is kept in checkpoints/{name}; the checkpoints before it are untouched"

    def _log(self, figures: Mapping[str, float] = MappingProxyType({})) -> None:
        """Write the interval's curves, and ``figures`` with them: each event by itself takes the loop some time."""
        self._read_losses()
        interval, self._interval = self._interval, _Interval()
        if not interval.steps:
            return
        seconds = interval.seconds(self._interval.started)
        metrics: dict[str, float] = {}
        if interval.losses:
            metrics["train/loss"] = sum(interval.losses) / len(interval.losses)
            if self._first_loss is None:
                self._first_loss = metrics["train/loss"]
        if self._optimizer is not None and interval.losses:
            metrics["train/lr"] = float(self._optimizer.param_groups[0]["lr"])
        if self._grad_norm is not None:
            metrics["train/grad_norm"] = self._grad_norm.item()
            self._grad_norm = None
        metrics[f"perf/{self._task.unit}_per_second"] = interval.amount * self._world.size / seconds
        metrics["perf/step_time_ms"] = seconds / interval.steps * 1e3
        metrics["perf/data_wait_ms"] = interval.waited / interval.steps * 1e3
        if self._device.type == "cuda":
            metrics["memory/allocated_mib"] = torch.cuda.memory_allocated(self._device) / MIB
            metrics["memory/peak_allocated_mib"] = torch.cuda.max_memory_allocated(self._device) / MIB
            metrics["memory/reserved_mib"] = torch.cuda.memory_reserved(self._device) / MIB
        if (made_of := self.composition()) is not None:
            metrics |= made_of.scalars()
        self._publish(metrics, figures)

    def _publish(self, metrics: dict[str, float], figures: Mapping[str, float] = MappingProxyType({})) -> None:
        self._metrics.update(metrics)
        self._logger.scalars({**metrics, **figures}, self.state.step)
        self._on_log(self.state.step, metrics)
        names = ("train/loss", "eval/accuracy", f"perf/{self._task.unit}_per_second")
        shown = {
            name.split("/")[1].replace("_per_second", "/s"): self._metrics[name]
            for name in names
            if name in self._metrics
        }
        self._progress.show(self.state.step, shown)

    @torch.no_grad()
    def _evaluate(self) -> None:
        self._eval_due = False
        self._evaluated_step = self.state.step
        if self._evaluation is None:
            return
        self._read_losses()
        totals: dict[str, Tensor] = {}
        amount = 0
        self._model.eval()
        self._strategy.synchronize_buffers()
        with closing(self._evaluation.share(self._eval_batches)) as batches:
            for batch, counts in batches:
                batch = to_device(batch, self._device)
                size = self._task.size(batch) * counts
                with self._autocast:
                    output = self._task.forward(self._eval_forward, batch)
                    loss = self._task.loss(output, batch)
                    values = self._task.metrics(output, batch)
                if loss is not None:
                    values = {"loss": loss, **values}
                for name, value in values.items():
                    totals[name] = totals.get(name, torch.zeros((), device=self._device)) + value.float() * size
                amount += size
        self._model.train()
        if self._world.size > 1 and totals:
            count = torch.tensor(float(amount), device=self._device)
            *sums, count = self._world.sum(torch.stack([*totals.values(), count])).unbind()
            totals, amount = dict(zip(totals, sums, strict=True)), int(count.item())
        metrics = {f"eval/{name}": total.item() / amount for name, total in totals.items()}
        if metrics.get("eval/loss", math.inf) < self.state.best_loss:
            self.state.best_loss, self.state.best_step = metrics["eval/loss"], self.state.step
            self._save_due = True
        if metrics:
            self._publish(metrics)

    def _save(self, *, last: bool = False) -> str | None:
        """Write the checkpoint of this step unless it is there; why it could not be, as far as this rank knows.

        Args:
            last: Nothing comes after it, so it is tried again and again.
        """
        self._save_due = False
        if self._checkpoints is None or self._saved_step == self.state.step:
            return None
        self._read_losses()
        # What others are told of the run, its curves included, is never behind what it can go on from.
        self._before_save(self.state.step)
        self._logger.flush()
        problem = self._save_as(self.state.step, last=last)
        if problem is None:
            self._saved_step = self.state.step
        return problem

    def _save_as(self, step: int | None, *, last: bool = False) -> str | None:
        """Write the checkpoint of ``step``, or the one of a job that has diverged; every rank's to call."""
        checkpoints, state = self._checkpoints, self._snapshot()
        assert checkpoints is not None
        checkpoints.closing = last
        best = self.state.best_step

        def attempt() -> str | None:
            if self._strategy.sharded:
                checkpoints.save_sharded(
                    state,
                    lambda folder: self._strategy.save(folder, self._optimizer),
                    name=DIVERGED.removesuffix(".pt") if step is None else None,
                    step=self.state.step,
                    best_step=best,
                    world=self._world,
                )
            elif step is None:
                checkpoints.save_aside(DIVERGED, state)
            else:
                checkpoints.save(state, step=step, best_step=best)
            if checkpoints.problem is not None and last and self._world.leads:
                # Older ones than are kept may be in the way of the last.
                checkpoints.tidy(best)
            return checkpoints.problem

        if not self._strategy.sharded and not self._world.leads:
            # It holds what rank 0 does, and waits for it no earlier than at the next collective.
            return None
        return persistently(attempt) if last else attempt()

    @property
    def _global_batch(self) -> int:
        """Samples of a batch on all ranks together."""
        return self._train.batch_size * self._world.size

    def _snapshot(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "state": vars(self.state).copy(),
            "optimizer_type": _type_name(self._optimizer),
            "scheduler": None if self._scheduler is None else self._scheduler.state_dict(),
            "scaler": None if self._scaler is None else self._scaler.state_dict(),
            "global_batch": self._global_batch,
            "random": self._world.gather(checkpoint.random_state()),
            "interval": self._gathered(),
            "evaluated": self._evaluated_step == self.state.step,
            "logged": self._logged_step == self.state.step,
        }
        if not self._strategy.sharded:
            state["model"] = self._model.state_dict()
            state["optimizer"] = None if self._optimizer is None else self._optimizer.state_dict()
        return state

    def _gathered(self) -> dict[str, Any]:
        """What has come together of the interval, for whoever goes on in the middle of it; times as rank 0's."""
        interval = vars(self._interval) | {"amount": self._interval.amount * self._world.size}
        interval["trained"] = self._interval.seconds(self._stands_since or time.perf_counter())
        return {name: value for name, value in interval.items() if name not in ("started", "paused")}

    def _make_autocast(self) -> AbstractContextManager[Any]:
        if self._precision == "fp32" or self._strategy.casts:
            return nullcontext()
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[self._precision]
        return torch.autocast(self._device.type, dtype=dtype)


def _type_name(optimizer: torch.optim.Optimizer | None) -> str:
    return "no optimizer" if optimizer is None else type(optimizer).__name__


def _is_multiple(step: int, period: int | None) -> bool:
    return period is not None and step % period == 0
