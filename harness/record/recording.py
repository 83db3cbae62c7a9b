"""One window being recorded: torch's profiler, started, stopped and exported to staging."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.autograd import profiler as autograd_profiler
from torch.profiler import ProfilerActivity, profile, tensorboard_trace_handler

import harness
from harness.logdir.layout import TRACE_SUFFIX, window_name
from harness.publish import Cost
from harness.publish.staging import Staging
from harness.record import process, spans
from harness.record.bounds import Watchdog
from harness.record.budget import added_us
from harness.record.clock import StepClock
from harness.record.others import quiet_kineto
from harness.record.schedule import Schedule, Window

METADATA_KEY = "harness"


OTHER_THREAD = "the profiler was closed in another thread"


class TraceLost(OSError):
    """Torch exported no complete trace; the message says what stands in its place."""


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """What torch.profiler records; the names are its own arguments."""

    activities: tuple[str, ...] = ("cpu", "cuda")
    """Of ``cpu``, ``cuda``; a device that is not there is left out."""
    record_shapes: bool = False
    profile_memory: bool = False
    with_stack: bool = False
    with_flops: bool = False

    def torch_activities(self) -> list[ProfilerActivity]:
        """The activities that this machine can record.

        Raises:
            ValueError: for a name that is no activity, or where none is left.
        """
        known = {"cpu": ProfilerActivity.CPU, "cuda": ProfilerActivity.CUDA}
        unknown = [name for name in self.activities if name not in known]
        if unknown:
            raise ValueError(f"unknown activities {unknown}; choose from {sorted(known)}")
        there = [known[name] for name in self.activities if name != "cuda" or torch.cuda.is_available()]
        if not there:
            raise ValueError("activities names only cuda, and there is no CUDA device here; add cpu")
        return there


@dataclass(frozen=True, kw_only=True)
class Place:
    """Who records, and where the file goes until it is complete."""

    staging: Staging
    worker: str
    """``<host>_<rank>``, from which TensorBoard's plugin groups devices by host."""
    rank: int
    world_size: int


class _EdgeSynchronizedProfile(profile):
    """torch's profiler that lets the device finish where recording starts and where it stops.

    Otherwise kernels of earlier steps leak into the window and those of the last step are cut off.
    The wait lies outside the step spans: torch closes the one and opens the other around it. It is for work that the
    steps have asked for, and no part of what the profiler costs.
    """

    synchronize: bool = False
    describe: Any = None
    watchdog: Watchdog
    waited_us: float = 0.0
    """For the device, so far."""

    def start_trace(self) -> None:
        self._wait()
        # Stacks are recorded of the threads that are there when recording begins.
        self.watchdog.stop()
        super().start_trace()
        self.watchdog.start()
        spans.set_recording(True)

    def stop_trace(self) -> None:
        spans.set_recording(False)
        self._wait()
        # Kineto takes metadata only while it records.
        self.add_metadata_json(METADATA_KEY, json.dumps(self.describe()))
        super().stop_trace()

    def _wait(self) -> None:
        if self.synchronize:
            started = time.perf_counter()
            torch.cuda.synchronize()
            self.waited_us += (time.perf_counter() - started) * 1e6


def _cheapest_stop(with_stack: bool) -> _ExperimentalConfig | None:
    """What ends a window without building an object for every event, which nobody reads: the file is enough.

    From torch 2.14 on; stacks need those objects.
    """
    if with_stack or not hasattr(_ExperimentalConfig(), "trace_only"):
        return None
    return _ExperimentalConfig(trace_only=True)


class Recording:
    """One window on its way from warm-up to a raw trace file in staging.

    Built at the first warm-up step; :meth:`end_step` after each step; :meth:`stop` once, early or not, in the thread
    that built it.

    Args:
        recorder: Told where it has to end before its time.
        memory_bytes: By how much the process may grow for it; None: as it likes.
        passed_over: The cycles that had no window so far, by reason.

    Raises:
        Occupied: where another profiler is in the way.
    """

    def __init__(
        self,
        window: Window,
        *,
        schedule: Schedule,
        options: TraceOptions,
        place: Place,
        unprofiled_us: float | None,
        trigger: str = "schedule",
        cause: str | None = None,
        recorder: process.Recorder,
        memory_bytes: int | None,
        passed_over: Mapping[str, int],
    ) -> None:
        self.window = window
        self.cut_short: str | None = None
        """Why it has ended before its time, where something else than the loop has ended it."""
        self._passed_over = dict(passed_over)
        self._why = {"trigger": trigger, "cause": cause}
        self.unprofiled_us = unprofiled_us
        self._schedule = schedule
        self._place = place
        self._step = window.warmup
        self.name = window_name(window.first)
        self._staged = place.staging.raw(self.name)
        activities = options.torch_activities()
        cuda = ProfilerActivity.CUDA in activities
        self._warmup_clock, self._active_clock = StepClock(cuda=cuda), StepClock(cuda=cuda)
        self._stalls_us: dict[str, float] = {}
        self._metadata: dict[str, Any] = {}

        self._tenancy = process.occupy(recorder, cuda=cuda)
        # Whether there is a window is the caller's to say: one that stands in for a cycle passed over is not counted.
        action = replace(schedule, repeat=0).to_torch()
        started = time.perf_counter()
        try:
            with nullcontext() if cuda else quiet_kineto():
                self._profile = _EdgeSynchronizedProfile(
                    activities=activities,
                    # torch asks for step 0 when it is built, whatever step is next.
                    schedule=lambda step: action(max(step, window.warmup)),
                    on_trace_ready=self._export,
                    record_shapes=options.record_shapes,
                    profile_memory=options.profile_memory,
                    with_stack=options.with_stack,
                    with_flops=options.with_flops,
                    experimental_config=_cheapest_stop(options.with_stack),
                )
                self._profile.synchronize = cuda
                self._profile.describe = self._describe
                self._profile.watchdog = self._watchdog = Watchdog(
                    self._tenancy.end_soon, expected_s=self._expected_s, memory_bytes=memory_bytes
                )
                self._profile.step_num = window.warmup
                self._profile.start()
        except BaseException:
            self._leave()
            raise
        self._tenancy.watch()
        if self._step < self.window.first:
            self._watchdog.start()
        self._stalls_us["start_us"] = (time.perf_counter() - started) * 1e6

    @property
    def steps(self) -> int:
        """Complete steps recorded so far."""
        return max(0, self._step - self.window.first)

    def begin_step(self) -> None:
        """Say that a step begins; only then does torch hear of it, lest a window end with a step that never was."""
        if self._step > self.window.warmup:
            started, waited_us = time.perf_counter(), self._profile.waited_us
            self._profile.step()
            if self._step == self.window.first:
                took_us = (time.perf_counter() - started) * 1e6
                self._stalls_us["begin_us"] = took_us - (self._profile.waited_us - waited_us)
        self._clock.begin()

    def end_step(self) -> None:
        self._clock.end()
        self._step += 1

    @property
    def complete(self) -> bool:
        return self._step >= self.window.end

    @property
    def due(self) -> str | None:
        """Why it has to end now; None where it has not to."""
        return self._tenancy.due

    def stop(self) -> Path | None:
        """Stop torch's profiler; the raw trace in staging, or None where no step was recorded.

        Raises:
            TraceLost: where torch left no complete file, as on a full disk, and where another thread recorded.
        """
        if not self._tenancy.is_mine:
            if not self._tenancy.is_left_behind and self._tenancy.end(OTHER_THREAD):
                return None
            spans.set_recording(False)
            if self._tenancy.is_left_behind and self._profile.profiler is not None:
                # Torch finds nothing to export then, and would end the process over it.
                with suppress(RuntimeError):  # torch 2.11 finds nothing to stop either
                    self._profile.profiler.__exit__(None, None, None)
                autograd_profiler._run_on_profiler_stop()
            self._leave()
            raise TraceLost("another thread recorded, and torch leaves a recording to no other")
        try:
            started, waited_us = time.perf_counter(), self._profile.waited_us
            self._profile.stop()
            took_us = (time.perf_counter() - started) * 1e6 - (self._profile.waited_us - waited_us)
            self._stalls_us["stop_us"] = took_us - self._stalls_us.get("export_us", 0.0)
        finally:
            spans.set_recording(False)
            self._leave()
        if not self.steps:
            return None
        traces = list(self._staged.glob(f"*{TRACE_SUFFIX}"))
        if len(traces) != 1 or not _is_whole(traces[0]):
            self.discard()
            raise TraceLost(f"torch left no complete trace in {self._staged}; is the disk full?")
        return traces[0]

    def discard(self) -> None:
        """Remove what torch has exported."""
        shutil.rmtree(self._staged, ignore_errors=True)

    @property
    def cost(self) -> Cost:
        """What the window has taken from the job so far."""
        return Cost(
            warmup_extra_us=self._extra_us(self._warmup_clock.durations_us()),
            active_extra_us=self._extra_us(self._active_clock.durations_us()),
            **self._stalls_us,
        )

    def active_us(self) -> list[float]:
        """Duration of each recorded step in microseconds."""
        return self._active_clock.durations_us()

    def _leave(self) -> None:
        watchdog = getattr(self, "_watchdog", None)
        if watchdog is not None:
            watchdog.stop()
        self._tenancy.leave()

    def _expected_s(self) -> float | None:
        """What all of its steps should take."""
        seconds = self._active_clock.seconds or self._warmup_clock.seconds
        step_s = (self.unprofiled_us or 0.0) / 1e6 or max(seconds, default=0.0)
        return step_s * (self.window.end - self.window.warmup) if step_s else None

    @property
    def _clock(self) -> StepClock:
        return self._active_clock if self._step >= self.window.first else self._warmup_clock

    def _export(self, prof: profile) -> None:
        if self.steps:
            started = time.perf_counter()
            self.discard()
            tensorboard_trace_handler(str(self._staged), worker_name=self._place.worker)(prof)
            self._stalls_us["export_us"] = (time.perf_counter() - started) * 1e6

    def _describe(self) -> dict[str, Any]:
        """The harness's own facts, for the trace's metadata."""
        return {
            "version": 1,
            "harness_version": harness.__version__,
            "first_step": self.window.first,
            "steps": self.steps,
            "partial": not self.complete,
            "cut_short": self.cut_short,
            "passed_over": self._passed_over,
            "unprofiled_step_us": self.unprofiled_us,
            "schedule": asdict(self._schedule),
            **self._why,
            "rank": self._place.rank,
            "world_size": self._place.world_size,
            "cost": {
                "warmup_extra_us": self._extra_us(self._warmup_clock.durations_us()),
                "active_extra_us": self._extra_us(self._active_clock.durations_us()),
                **self._stalls_us,
            },
        }

    def _extra_us(self, durations: Sequence[float]) -> float | None:
        return None if self.unprofiled_us is None else added_us(self.unprofiled_us, durations)


def _is_whole(trace: Path) -> bool:
    """Whether the file ends as a trace does; Kineto itself does not tell of a failed write."""
    with trace.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 64))
        return file.read().rstrip().endswith(b"}")
