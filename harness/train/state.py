"""What a job has to remember: taken down, written as a checkpoint, and put back where it goes on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from harness.data import Loader
from harness.distributed.strategy import Strategy
from harness.distributed.world import World
from harness.errors import UsageError
from harness.files import persistently
from harness.logdir.layout import DIVERGED
from harness.train.checkpoint import SHARDED, Checkpoints
from harness.train.meter import Meter
from harness.train.randomness import random_state, restore_random_state


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
class Newest:
    """The newest step that was logged, evaluated and saved; -1 before any was."""

    logged: int = -1
    evaluated: int = -1
    saved: int = -1


@dataclass(kw_only=True)
class Keeper:
    """Keeps all that a job goes on from."""

    strategy: Strategy
    optimizer: torch.optim.Optimizer | None
    scheduler: torch.optim.lr_scheduler.LRScheduler | None
    scaler: torch.amp.GradScaler | None
    train: Loader
    meter: Meter
    checkpoints: Checkpoints | None
    world: World
    state: State = field(default_factory=State)
    newest: Newest = field(default_factory=Newest)

    def restore(self, saved: dict[str, Any], *, source: Path) -> None:
        """Go on from a checkpoint's state, as if the job had never stopped.

        Args:
            source: Where it is from, for messages.

        Raises:
            UsageError: where it is another model's, or was saved with another optimizer.
        """
        folder = saved.get(SHARDED)
        if (folder is not None) != self.strategy.sharded:
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
        if saved["optimizer_type"] != self._optimizer_type:
            raise ValueError(f"{saved['optimizer_type']}, not {self._optimizer_type}")
        if folder is not None:
            self.strategy.load(folder, self.optimizer)
        else:
            self.strategy.model.load_state_dict(saved["model"])
            if self.optimizer is not None and saved["optimizer"] is not None:
                self.optimizer.load_state_dict(saved["optimizer"])
        if self.scheduler is not None and saved["scheduler"] is not None:
            self.scheduler.load_state_dict(saved["scheduler"])
        if self.scaler is not None and saved["scaler"] is not None:
            self.scaler.load_state_dict(saved["scaler"])
        # The loop has the same one.
        state = self.state
        vars(state).update(vars(State(**saved["state"])))
        # Where ranks or batches are others, as many samples are behind as were, to the nearest batch.
        state.batches = state.batches * saved["global_batch"] // self._global_batch
        random = saved["random"]
        if len(random) == self.world.size:
            restore_random_state(random[self.world.rank])
        else:
            torch.manual_seed(torch.initial_seed() + state.step)
        self.newest.saved = state.step
        # Those of 0.1.0 know neither what was written of their step nor of the interval in which they were saved.
        if saved.get("evaluated"):
            self.newest.evaluated = state.step
        if saved.get("logged"):
            self.newest.logged = state.step
        if (interval := saved.get("interval")) is not None:
            self.meter.go_on(interval)

    def save(self, *, last: bool = False) -> str | None:
        """Write the checkpoint of this step; why it could not be, as far as this rank knows.

        Args:
            last: Nothing comes after it, so it is tried again and again.
        """
        problem = self._write(self.state.step, last=last)
        if problem is None:
            self.newest.saved = self.state.step
        return problem

    def keep_diverged(self) -> str:
        """Save the state that has diverged; where it is."""
        if self.checkpoints is None:
            return "Checkpoints are off, so its state is not kept"
        if (problem := self._write(None, last=True)) is not None:
            return f"Its state could not be kept ({problem}); the checkpoints before it are untouched"
        name = DIVERGED.removesuffix(".pt") if self.strategy.sharded else DIVERGED
        return f"The state is kept in checkpoints/{name}; the checkpoints before it are untouched"

    def told(self, problem: str) -> str:
        """What a person has to know where the last state could not be saved."""
        assert self.checkpoints is not None
        good = self.checkpoints.newest_whole()
        there = f"the last good one is {good}" if good is not None else "there is no good one before it"
        return f"its checkpoint could not be written ({problem}); {there}"

    def _write(self, step: int | None, *, last: bool) -> str | None:
        """Write the checkpoint of ``step``, or the one of a job that has diverged; every rank's to call."""
        checkpoints, snapshot = self.checkpoints, self.snapshot()
        assert checkpoints is not None
        checkpoints.closing = last
        best = self.state.best_step

        def attempt() -> str | None:
            if self.strategy.sharded:
                checkpoints.save_sharded(
                    snapshot,
                    lambda folder: self.strategy.save(folder, self.optimizer),
                    name=DIVERGED.removesuffix(".pt") if step is None else None,
                    step=self.state.step,
                    best_step=best,
                    world=self.world,
                )
            elif step is None:
                checkpoints.save_aside(DIVERGED, snapshot)
            else:
                checkpoints.save(snapshot, step=step, best_step=best)
            if checkpoints.problem is not None and last and self.world.leads:
                # Older ones than are kept may be in the way of the last.
                checkpoints.tidy(best)
            return checkpoints.problem

        if not self.strategy.sharded and not self.world.leads:
            # It holds what rank 0 does, and waits for it no earlier than at the next collective.
            return None
        return persistently(attempt) if last else attempt()

    def snapshot(self) -> dict[str, Any]:
        """All of it, as it is saved; of a sharded job without what each rank writes by itself."""
        snapshot: dict[str, Any] = {
            "state": vars(self.state).copy(),
            "optimizer_type": self._optimizer_type,
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "global_batch": self._global_batch,
            "random": self.world.gather(random_state()),
            "interval": self.meter.gathered(),
            "evaluated": self.newest.evaluated == self.state.step,
            "logged": self.newest.logged == self.state.step,
        }
        if not self.strategy.sharded:
            snapshot["model"] = self.strategy.model.state_dict()
            snapshot["optimizer"] = None if self.optimizer is None else self.optimizer.state_dict()
        return snapshot

    @property
    def _global_batch(self) -> int:
        """Samples of a batch on all ranks together."""
        return self.train.batch_size * self.world.size

    @property
    def _optimizer_type(self) -> str:
        return "no optimizer" if self.optimizer is None else type(self.optimizer).__name__
