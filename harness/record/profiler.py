"""The profiler that stays with a job for its whole life."""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from torch.profiler import ProfilerActivity

from harness.publish import Keep, PublishedWindow
from harness.publish.staging import window_name
from harness.record import spans
from harness.record.budget import OverheadBudget, account_of
from harness.record.clock import StepClock
from harness.record.delivery import Delivery
from harness.record.ensemble import Ensemble
from harness.record.plan import Plan
from harness.record.recording import Recording, TraceOptions
from harness.record.schedule import Schedule, Window
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.record.trigger import Demand, Trigger

log = logging.getLogger(__name__)

_RUN_NAME = re.compile(r"[A-Za-z0-9._=,-]+(/[A-Za-z0-9._=,-]+)*")

FAILURES_BEFORE_OFF = 3
"""Failures of torch's profiler in a row, a full disk not counted, after which it is left alone."""
LISTEN_STEPS = 100
"""Steps between two looks at what the publisher has finished, while something is on its way."""


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
    complete and never changes after. While the schedule waits, a step costs one comparison. At a window's end
    the loop waits for torch to stop and to export; another process reads, compresses and publishes.

    Where a process group is there, every rank has one, with the same arguments and at the same step. Rank 0 decides on
    each window, and all ranks record the same steps, into one directory: see :mod:`harness.agreement`. No rank waits
    for another to export.

    Args:
        logdir: TensorBoard's logdir. Windows are staged beside it, on the same file system, because
            TensorBoard's plugin walks hidden folders too.
        run: The run's path below ``logdir``: letters, digits, ``. _ - = ,`` and ``/``.
        schedule: When to record; None never does.
        options: What to record.
        first_step: The step at which this process begins, as of a resumed job. A job that begins in the
            middle of a window waits for the next one.
        on_window: Called with each window once it stands in the logdir, between two steps that no window holds.
        max_overhead: The share of the job's time that windows may take; the wait for the next one grows until it
            is under it. None sets no limit.
        keep: Which traces stay on disk.
        max_trace_mib: A window whose raw trace is larger is dropped; None takes any.
        drain_s: How long :meth:`close` waits for windows on their way.
        slow: Records a window where steps are slow, if the budget allows it; None does not look.
        snapshots: Writes what the device's allocator holds; None writes nothing.
        upload: An fsspec address to which published windows are copied; None copies nothing.
        ranks: Which ranks record, 0 among them; None: all.
        ranks_timeout_s: How long a window waits for the traces of other ranks; then it appears without them.
        clock: The job's time in seconds, of which ``max_overhead`` is a share; it never goes back.

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
        on_window: Callable[[PublishedWindow], None] | None = None,
        max_overhead: float | None = 0.01,
        keep: Keep | None = None,
        max_trace_mib: int | None = 1024,
        drain_s: float = 60.0,
        slow: SlowSteps | None = None,
        snapshots: MemorySnapshots | None = None,
        upload: str | None = None,
        ranks: Collection[int] | None = None,
        ranks_timeout_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not _RUN_NAME.fullmatch(run) or ".." in run.split("/"):
            raise ValueError(f"run {run!r}: only letters, digits, '.', '_', '-', '=', ',' and '/' are safe")
        self._schedule = schedule
        self._ensemble = ensemble = Ensemble(ranks, schedule=schedule is not None, wake=self._wake_up)
        self._records = ensemble.records
        self._options = options or TraceOptions()
        self._cuda = ProfilerActivity.CUDA in self._options.torch_activities()
        self.drain_s = drain_s
        logdir = Path(os.path.abspath(logdir))
        self._delivery = Delivery(
            logdir,
            run,
            ensemble,
            on_window=on_window,
            keep=keep or Keep(),
            max_trace_mib=max_trace_mib,
            upload=upload,
            ranks_timeout_s=ranks_timeout_s,
        )
        self._plan = Plan(self._delivery)

        self._step = first_step
        self._demand: Demand | None = None
        self._slow = slow if self._schedule is not None and self._ensemble.leads else None
        self._snapshots = snapshots if snapshots is not None and self._ensemble.leads else MemorySnapshots(logdir / run)
        self._snapshot_due = self._next_snapshot(first_step)
        self._trigger = Trigger(logdir / run, self._wake_up)
        self._passing = False
        self._recording: Recording | None = None
        self._reference = StepClock(cuda=self._cuda)
        self._unprofiled_us: float | None = None
        self._failures = 0
        self._budget = OverheadBudget(max_overhead, clock=clock)
        # The step from which begin_step has something to do, and whether end_step has.
        self._wake: float = math.inf
        self._attentive = False
        if self._schedule is not None:
            # Torch imports it when its profiler first starts; the 2 s are better spent before the job's first step.
            if self._records:
                import_module("torch._inductor.config")
            self._delivery.make_room()
            if first_step:
                account = account_of(self._delivery.profile, first_step)
                self._budget = OverheadBudget(max_overhead, account, clock=clock)
                self._plan.recall(self._schedule, first_step)
            self._plan_on(self._schedule)

    def __enter__(self) -> Self:
        if self._schedule is not None:
            if self._ensemble.leads:
                self._trigger.start()
            if self._records:
                self._delivery.start()
            self._ensemble.start()
            self._snapshots.start()
        self._budget.begin()
        self.begin_step()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._snapshots.failed(error, self._step)
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
        if self._slow is not None:
            self._watch_pace(self._slow)
        if self._attentive:
            with self._charged():
                self._end_step()

    def begin_step(self) -> None:
        """Say that the next step begins."""
        if self._step >= self._wake:
            with self._charged():
                self._begin_step()
        if self._slow is not None and self._recording is None:
            self._slow.begin()

    @property
    def in_window(self) -> bool:
        """Whether a window is under way, so that a job resumed from here would miss it; the same on every rank."""
        return self._passing or self._recording is not None

    @property
    def figures(self) -> dict[str, float]:
        """How the profiling goes, by the tags of its curves; empty where there is no schedule.

        ``profiler/overhead`` is the share of the job's time that it has taken, ``profiler/overhead_budget`` its limit,
        ``profiler/skipped`` counts the cycles whose window was left out for the budget, for a publisher that is
        behind or for a window that was asked for, and ``profiler/waiting`` the windows that are recorded and not
        published yet.
        """
        if self._schedule is None or not self._ensemble.leads:
            return {}
        found = {
            "profiler/overhead": self._budget.overhead,
            "profiler/skipped": float(self._plan.passed_over),
            "profiler/waiting": float(self._delivery.waiting),
        }
        if self._budget.limit is not None:
            found["profiler/overhead_budget"] = self._budget.limit
        return found

    def poll(self) -> None:
        """Hand the windows that have been published since to ``on_window``, unless one is being recorded.

        The profiler does it by itself when it wakes; a loop whose schedule waits for long may do it now and then,
        between :meth:`end_step` and :meth:`begin_step`.
        """
        if self._recording is None:
            with self._charged():
                self._delivery.show_published()

    def end_window(self) -> None:
        """End the window that is under way, if one is: it becomes ``partial`` if it holds a whole step."""
        recording, self._recording = self._recording, None
        self._passing = False
        if recording is not None:
            with self._survive():
                self._finish(recording)

    def close(self) -> None:
        """End the profiling, a window under way too, and wait until all are published, for :attr:`drain_s` at most."""
        self.end_window()
        self._sleep()
        self._give_up("the job is over")
        self._trigger.close()
        self._ensemble.close()
        self._snapshots.stop()
        self._delivery.drain(self.drain_s)
        self._trigger.leave_nothing_empty()

    def _plan_on(self, schedule: Schedule, *, after: int | None = None) -> None:
        """Find the next window."""
        self._attentive = False
        self._plan.expect_next(schedule, self._step if after is None else after)
        self._doze()

    def _sleep(self) -> None:
        self._plan.expect(None)
        self._wake, self._attentive = math.inf, False

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
        self._plan_demand(demand, self._schedule)

    def _plan_demand(self, demand: Demand, schedule: Schedule, *, again: bool = False) -> None:
        warmup = self._step + self._ensemble.lead(demand, again=again)
        window = self._plan.expect_asked(demand, schedule, warmup)
        self._demand = replace(demand, since=self._step)
        self._ensemble.announce(self._demand, window, schedule.warmups(self._step, window.end))
        if self._ensemble.alone:
            self._trigger.planned(demand, window)

    def _heed_announcement(self, schedule: Schedule) -> None:
        """Plan the window that rank 0 has announced."""
        heard = self._ensemble.hear(self._step)
        if heard is not None:
            self._demand, warmup = heard
            self._plan.expect(self._demand.schedule(schedule, warmup).next_window(warmup))

    def _watch_pace(self, steps: SlowSteps) -> None:
        slow = steps.end()
        if slow is not None and self._recording is None and self._demand is None:
            self._trigger.want(Demand(kind="slow", cause=slow.cause, unprofiled_us=slow.step_us))
            self._wake_up()

    def _give_up(self, reason: str) -> None:
        """The window that was wanted will not come."""
        demand, self._demand = self._demand, None
        if demand is not None:
            self._trigger.failed(demand, reason)

    def _doze(self) -> None:
        """Sleep until there is something to do, or somebody asks."""
        self._wake = self._next_wake()
        # Asked for between the two lines, its wake-up call has just been overwritten.
        if self._ensemble.news or (self._trigger.pending and self._demand is None):
            self._wake_up()

    def _next_wake(self) -> float:
        # Nobody would hear of a window before the next one begins.
        listen = self._step + LISTEN_STEPS if self._delivery.waiting else math.inf
        return min(self._plan.look_at, listen, self._snapshot_due)

    def _next_snapshot(self, step: int) -> float:
        every = self._snapshots.every
        return math.inf if every is None or self._schedule is None else step - step % every + every

    def _begin_step(self) -> None:
        if not self.in_window:
            if not self._attentive:
                self._delivery.show_published()
            if self._step >= self._snapshot_due:
                self._snapshots.write(self._step)
                self._snapshot_due = self._next_snapshot(self._step)
            if self._demand is None and self._trigger.pending:
                self._heed_trigger()
            if self._ensemble.news and self._schedule is not None:
                self._heed_announcement(self._schedule)
            window = self._plan.window
            if window is None or self._step < self._plan.look_at:
                self._doze()
                return
            early = self._step < window.warmup and not self._attentive
            if early and self._ensemble.leads and not self._is_wanted():
                self._plan.refuse(window)
                self._doze()
                return
            if self._step == window.warmup and not self._ensemble.agreed(window, self._demand, self._is_wanted):
                self._pass_over()
                return
            self._attentive = True
            if self._step == window.warmup:
                self._passing = not self._ensemble.alone
                with self._survive():
                    self._start(window)
        if self._recording is not None:
            with self._survive():
                self._recording.begin_step()
        elif self._attentive and not self._passing:
            self._reference.begin()

    def _is_wanted(self) -> bool:
        # Who asks for a window has weighed its cost; it counts all the same.
        asked = self._demand is not None and self._demand.kind == "request"
        allowed = asked or (self._budget.allows_a_window() and not self._plan.unwanted)
        return self._records and allowed and not self._delivery.behind

    def _pass_over(self) -> None:
        """Go on without the window that was to begin now."""
        assert self._schedule is not None
        demand = self._demand
        self._reference = StepClock(cuda=self._cuda)
        if demand is None:
            self._plan.passed_over += 1
        elif not self._ensemble.alone:
            self._count_displaced(self._schedule, demand, self._step)
            if self._ensemble.unheard:
                self._sleep()
                self._plan_demand(demand, self._schedule, again=True)
                self._doze()
                return
        self._give_up("the publisher is behind" if self._delivery.behind else "not every rank could be told of it")
        self._plan_on(self._schedule, after=self._step + 1)

    def _count_displaced(self, schedule: Schedule, demand: Demand, end: int) -> None:
        since = self._step if demand.since is None else demand.since
        self._plan.displace(schedule, since, end)

    def _start(self, window: Window) -> None:
        assert self._schedule is not None
        self._unprofiled_us = self._reference.median_us() or self._unprofiled_us
        self._reference = StepClock(cuda=self._cuda)
        demand = self._demand
        if demand is not None:
            self._unprofiled_us = demand.unprofiled_us or self._unprofiled_us
            if demand.cause is not None:
                log.warning("step %d: %s; a window is recorded", self._step, demand.cause)
            self._count_displaced(self._schedule, demand, window.end)
            if not self._ensemble.alone:
                self._trigger.planned(demand, window)
        if not self._records:
            return
        self._recording = Recording(
            window,
            schedule=self._schedule if demand is None else demand.schedule(self._schedule, window.warmup),
            options=self._options if demand is None else demand.options(self._options),
            place=self._delivery.place,
            unprofiled_us=self._unprofiled_us,
            trigger="schedule" if demand is None else demand.kind,
            cause=None if demand is None else demand.cause,
        )

    def _end_step(self) -> None:
        recording = self._recording
        if recording is not None:
            with self._survive():
                recording.end_step()
                if recording.complete:
                    self._recording = None
                    self._finish(recording)
                    self._failures = 0
        elif not self._passing:
            self._reference.end()
            return
        if self._passing:
            # All ranks leave the window at the same step, whatever has become of it on this one.
            assert self._plan.window is not None
            if self._step < self._plan.window.end:
                return
            self._passing, self._demand = False, None
        if self._recording is None and self._schedule is not None:
            self._plan_on(self._schedule)

    def _finish(self, recording: Recording) -> None:
        """Stop torch's profiler and leave the raw trace to the publisher."""
        try:
            raw = recording.stop()
        finally:
            cost = recording.cost
            self._budget.spend(cost.total_us / 1e6)
            self._budget.charge(-sum(cost.stalls_us.values()) / 1e6)  # as part of all the time here
        if raw is None:
            return
        self._delivery.send(recording, raw)
        demand, self._demand = self._demand, None
        if demand is not None:
            self._trigger.recorded(demand, recording.name)
        self._snapshots.window_over(recording.window.first)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """All time in here is the profiling's, and on its budget: also what timing a step, handing a window over and
        showing what it found take."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._budget.charge(time.perf_counter() - started)

    @contextmanager
    def _survive(self) -> Iterator[None]:
        """A profiler that fails costs its window, never the job; after a few in a row it is let be."""
        try:
            yield
        except Exception as error:
            recording, self._recording = self._recording, None
            window = self._plan.window
            if recording is not None:
                with suppress(Exception):
                    recording.stop()
            if window is not None:
                self._delivery.lose(window_name(window.first))
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
            if off and self._ensemble.alone:
                self._schedule = None
            elif off:
                # The other ranks go by the same windows.
                self._records = False
            if self._passing:
                return
            if self._schedule is None:
                self._sleep()
            else:
                # Not the same one again, whose warm-up was to begin with this very step.
                self._plan_on(self._schedule, after=max(self._step, window.warmup + 1 if window is not None else 0))
