"""The profiler that stays with a job for its whole life."""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch.profiler import ProfilerActivity

from harness.record import spans
from harness.record.clock import StepClock
from harness.record.recording import Place, Recording, TraceOptions, window_name
from harness.record.schedule import Schedule, Window
from harness.record.trigger import Demand, Trigger

log = logging.getLogger(__name__)

_RUN_NAME = re.compile(r"[A-Za-z0-9._=,-]+(/[A-Za-z0-9._=,-]+)*")

REFERENCE_STEPS = 10
"""Unprofiled steps timed just before each window, against which the window's own are compared."""
FAILURES_BEFORE_OFF = 3
"""Failures of torch's profiler in a row, a full disk not counted, after which it is left alone."""


@dataclass(frozen=True, kw_only=True)
class RecordedWindow:
    """A window that stands in the logdir, complete. Times are microseconds."""

    path: Path
    first_step: int
    steps: int
    partial: bool
    unprofiled_step_us: float | None
    profiled_steps_us: list[float]
    stalls_us: dict[str, float]
    """How long the loop stood still: ``start_us``, ``begin_us``, ``stop_us`` (stop and export)."""


class Profiler:
    """Records windows of steps by schedule, for as long as the job lasts, into a TensorBoard logdir.

    ::

        with Profiler("tb_logs", "my_job", Schedule(wait=1000, warmup=2, active=3)) as profiler:
            for batch in loader:
                with profiler.span("forward"):
                    loss = model(batch)
                ...
                profiler.step()

    Each window becomes one directory ``<logdir>/<run>/profile/window_<step>/`` that appears when it is
    complete and never changes after. While the schedule waits, a step costs one comparison.

    Args:
        logdir: TensorBoard's logdir. Windows are staged beside it, on the same file system, because
            TensorBoard's plugin walks hidden folders too.
        run: The run's path below ``logdir``: letters, digits, ``. _ - = ,`` and ``/``.
        schedule: When to record; None never does.
        options: What to record.
        first_step: The step at which this process begins, as of a resumed job. A job that begins in the
            middle of a window waits for the next one.
        on_window: Called with each window once it stands in the logdir.

    Raises:
        ValueError: for a run name or activities that cannot be.
        OSError: where the staging directory cannot be made on the logdir's file system.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        run: str,
        schedule: Schedule | None,
        options: TraceOptions | None = None,
        *,
        first_step: int = 0,
        on_window: Callable[[RecordedWindow], None] | None = None,
    ) -> None:
        if not _RUN_NAME.fullmatch(run) or ".." in run.split("/"):
            raise ValueError(f"run {run!r}: only letters, digits, '.', '_', '-', '=', ',' and '/' are safe")
        rank, world_size = _rank_and_world_size()
        self._schedule = schedule if rank == 0 else None
        self._options = options or TraceOptions()
        self._on_window = on_window
        self._cuda = ProfilerActivity.CUDA in self._options.torch_activities()
        self._profile_dir = Path(logdir) / run / "profile"
        self._staging_root = staging_root(Path(logdir))
        self._place = Place(
            staging=self._staging_root / run,
            worker=f"{re.sub('[^A-Za-z0-9-]', '-', socket.gethostname())}_{rank}",
            rank=rank,
            world_size=world_size,
        )

        self._step = first_step
        self._window: Window | None = None
        self._demand: Demand | None = None
        self._trigger = Trigger(Path(logdir) / run, self._wake_up)
        self._recording: Recording | None = None
        self._reference = StepClock(cuda=self._cuda)
        self._unprofiled_us: float | None = None
        self._failures = 0
        # The step from which begin_step has something to do, and whether end_step has.
        self._wake: float = math.inf
        self._attentive = False
        if self._schedule is not None:
            # Torch imports it when its profiler first starts; the 2 s are better spent before the job's first step.
            import_module("torch._inductor.config")
            shutil.rmtree(self._place.staging, ignore_errors=True)
            self._place.staging.mkdir(parents=True)
            self._plan(self._schedule)

    def __enter__(self) -> Self:
        if self._schedule is not None:
            self._trigger.start()
        self.begin_step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Name a part of the step; see :func:`harness.record.span`."""
        return spans.span(name)

    def step(self) -> None:
        """Say that a step is over and the next one begins."""
        self.end_step()
        self.begin_step()

    def end_step(self) -> None:
        """Say that a step is over. What stands between this and :meth:`begin_step` is no part of a step."""
        self._step += 1
        if self._attentive:
            self._end_step()

    def begin_step(self) -> None:
        """Say that the next step begins."""
        if self._step >= self._wake:
            self._begin_step()

    @property
    def in_window(self) -> bool:
        """Whether a window is under way, so that a job resumed from here would miss it."""
        return self._recording is not None

    def close(self) -> None:
        """End the profiling; a window under way is published as ``partial`` if it holds a whole step."""
        recording, self._recording = self._recording, None
        if recording is not None:
            with self._survive():
                self._finish(recording)
        self._give_up("the job is over")
        self._trigger.close()
        self._sleep()
        folder = self._place.staging
        with suppress(OSError):
            while folder != self._staging_root.parent:
                folder.rmdir()
                folder = folder.parent

    def _plan(self, schedule: Schedule) -> None:
        """Find the next window, and wake in time to measure unprofiled steps before it."""
        window = schedule.next_window(self._step)
        while window and (self._profile_dir / window_name(window.first)).exists():
            # A job resumed from an older checkpoint comes past windows that it has recorded already.
            window = schedule.next_window(window.end)
        self._sleep()
        if window is not None:
            self._window = window
            self._wake = window.warmup - REFERENCE_STEPS
        if self._trigger.pending:
            self._wake_up()

    def _sleep(self) -> None:
        self._window, self._wake, self._attentive = None, math.inf, False

    def _wake_up(self) -> None:
        """Look at the next step, whatever the schedule says; called from the trigger's thread too."""
        self._wake = -math.inf

    def _heed_trigger(self) -> None:
        """Plan the window that is wanted: after as many unprofiled steps as are timed before any other.

        Windows of the schedule that it would overlap are skipped, none is moved.
        """
        demand = self._trigger.take()
        if demand is None:
            return
        if self._schedule is None:
            self._trigger.failed(demand, "the profiler is off after repeated failures; see the job's log")
            return
        warmup = self._step + REFERENCE_STEPS
        window = demand.schedule(self._schedule, warmup).next_window(warmup)
        while window is not None and (self._profile_dir / window_name(window.first)).exists():
            warmup += 1
            window = demand.schedule(self._schedule, warmup).next_window(warmup)
        self._demand, self._window = demand, window
        if window is not None:
            self._trigger.planned(demand, window)

    def _give_up(self, reason: str) -> None:
        """The window that was wanted will not come."""
        demand, self._demand = self._demand, None
        if demand is not None:
            self._trigger.failed(demand, reason)

    def _begin_step(self) -> None:
        if self._recording is None and self._demand is None and self._trigger.pending:
            self._heed_trigger()
        window = self._window
        if window is None or self._step < window.warmup - REFERENCE_STEPS:
            self._wake = math.inf if window is None else window.warmup - REFERENCE_STEPS
            if self._trigger.pending:
                self._wake_up()
            return
        self._attentive = True
        if self._recording is None and self._step == window.warmup:
            with self._survive():
                self._start(window)
        if self._recording is not None:
            with self._survive():
                self._recording.begin_step()
        elif self._attentive:
            self._reference.begin()

    def _start(self, window: Window) -> None:
        assert self._schedule is not None
        self._unprofiled_us = self._reference.median_us() or self._unprofiled_us
        self._reference = StepClock(cuda=self._cuda)
        demand = self._demand
        self._recording = Recording(
            window,
            schedule=self._schedule if demand is None else demand.schedule(self._schedule, window.warmup),
            options=self._options if demand is None else demand.options(self._options),
            place=self._place,
            unprofiled_us=self._unprofiled_us,
            trigger="schedule" if demand is None else demand.kind,
            cause=None if demand is None else demand.cause,
        )

    def _end_step(self) -> None:
        recording = self._recording
        if recording is None:
            self._reference.end()
            return
        with self._survive():
            recording.end_step()
            if recording.complete:
                self._recording = None
                self._finish(recording)
                self._failures = 0
        if self._recording is None and self._schedule is not None:
            self._plan(self._schedule)

    def _finish(self, recording: Recording) -> None:
        """Stop torch's profiler and let the finished window appear in the logdir."""
        staged = recording.stop()
        if staged is None:
            return
        path = self._profile_dir / staged.name
        try:
            self._profile_dir.mkdir(parents=True, exist_ok=True)
            staged.rename(path)
        finally:
            shutil.rmtree(staged, ignore_errors=True)
        demand, self._demand = self._demand, None
        if demand is not None:
            self._trigger.recorded(demand, path.name)
        if self._on_window is not None:
            self._on_window(
                RecordedWindow(
                    path=path,
                    first_step=recording.window.first,
                    steps=recording.steps,
                    partial=not recording.complete,
                    unprofiled_step_us=recording.unprofiled_us,
                    profiled_steps_us=recording.active_us(),
                    stalls_us=recording.stalls_us,
                )
            )

    @contextmanager
    def _survive(self) -> Iterator[None]:
        """A profiler that fails costs its window, never the job; after a few in a row it is let be."""
        try:
            yield
        except Exception as error:
            recording, self._recording = self._recording, None
            if recording is not None:
                with suppress(Exception):
                    recording.stop()
            self._give_up(str(error))
            # A full disk may have room again; what torch cannot do it seldom learns.
            self._failures += not isinstance(error, OSError)
            off = self._failures >= FAILURES_BEFORE_OFF
            log.warning(
                "step %d: a window was lost, training goes on: %s%s",
                self._step,
                error,
                f" ({self._failures} failures in a row: no more windows in this job)" if off else "",
            )
            if off:
                self._schedule = None
            if self._schedule is None:
                self._sleep()
            else:
                self._plan(self._schedule)


def staging_root(logdir: Path) -> Path:
    """Where windows of runs below ``logdir`` are kept until they are complete: a hidden folder beside it."""
    logdir = Path(os.path.abspath(logdir))
    return logdir.parent / f".{logdir.name}.staging"


def _rank_and_world_size() -> tuple[int, int]:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1
