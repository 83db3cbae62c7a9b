"""The profiler that stays with a job for its whole life."""

from __future__ import annotations

import logging
import math
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from torch.profiler import ProfilerActivity

from harness.files import atomic_write
from harness.logdir.layout import MANIFEST, PASSED_OVER, window_name
from harness.publish import Keep, PublishedWindow
from harness.publish.staging import Staging
from harness.record import entry, process, remarks, spans
from harness.record.budget import OverheadBudget, account_of, passed_over_before
from harness.record.clock import StepClock
from harness.record.delivery import MIB, Delivery, DeliveryOptions
from harness.record.ensemble import Ensemble
from harness.record.others import Occupied
from harness.record.plan import Plan
from harness.record.recording import Recording, TraceOptions
from harness.record.schedule import Schedule, Window
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.record.trigger import Demand, Trigger
from harness.trace.passed_over import BUDGET, OTHER, PUBLISHER, in_words

log = logging.getLogger(__name__)

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

    Without ``with``, the first :meth:`step` enters it, and the end of the process ends the window that is under way.
    Once left it can be entered again, and counts on.

    Each window becomes one directory ``<logdir>/<run>/profile/window_<step>/`` that appears when it is
    complete and never changes after. While the schedule waits, a step costs one comparison. At a window's end
    the loop waits for torch to stop and to export; another process reads, compresses and publishes.

    Where a process group is there on entry, every rank has one, with the same arguments and at the same step. Rank 0
    decides on each window, and all ranks record the same steps, into one directory: see
    :mod:`harness.distributed.meeting`. No rank waits for another to export.

    Args:
        logdir: TensorBoard's logdir. Windows are staged beside it, on the same file system, because
            TensorBoard's plugin walks hidden folders too.
        run: The run's path below ``logdir``: letters, digits, ``. _ - = ,`` and ``/``; what else is in it becomes
            ``-``. Where it holds the windows of an earlier job, or is another process's, this one's go to ``<run>_2``.
        schedule: When to record: a :class:`Schedule`, or what :func:`torch.profiler.schedule` returns; None never does.
        options: What to record.
        first_step: The step at which this process begins, as of a resumed job. A job that begins in the
            middle of a window waits for the next one; in its warm-up, it records it after what is left of that.
        resumes: Whether it goes on with the job that has recorded into ``run``; None: where ``first_step`` is not 0.
        on_window: Called with each window once it stands in the logdir, between two steps that no window holds.
        max_overhead: The share of the job's time that windows may take; the wait for the next one grows until it
            is under it. None sets no limit.
        keep: Which traces stay on disk.
        max_trace_mib: A window whose raw trace is larger is dropped, and one that takes more than half as much memory
            while it is recorded is ended; None takes any.
        drain_s: How long :meth:`close` waits for windows on their way.
        slow: Records a window where steps are slow, if the budget allows it; None does not look.
        snapshots: Writes what the device's allocator holds; None writes nothing.
        upload: An fsspec address to which published windows are copied; None copies nothing.
        ranks: Which ranks record, 0 among them; None: all.
        ranks_timeout_s: How long a window waits for the traces of other ranks; then it appears without them.
        clock: The job's time in seconds, of which ``max_overhead`` is a share; it never goes back.

    Raises:
        TypeError: for a schedule that is none.
        ValueError: for a run name, activities or ranks that cannot be.
        OSError: where the staging directory cannot be made on the logdir's file system.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        run: str,
        schedule: Schedule | Callable[[int], Any] | None,
        options: TraceOptions | None = None,
        *,
        first_step: int = 0,
        resumes: bool | None = None,
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
        self.run = entry.safe_name(run)
        """The run's name; settled on entry, see ``run`` above."""
        self._schedule = entry.schedule_of(schedule)
        self._options = options or TraceOptions()
        self._cuda = ProfilerActivity.CUDA in self._options.torch_activities()
        if ranks is not None and 0 not in ranks:
            raise ValueError(f"ranks {sorted(ranks)}: rank 0 has to be among them")
        self._ranks = ranks
        self.drain_s = drain_s
        self.explains = True
        """Whether the log says in the end why there was no window."""
        self._logdir = Path(os.path.abspath(logdir))
        self._asked_name = self.run
        self._resumes = first_step > 0 if resumes is None else resumes
        self._delivered = DeliveryOptions(
            on_window=on_window,
            keep=keep or Keep(),
            max_trace_mib=max_trace_mib,
            upload=upload,
            ranks_timeout_s=ranks_timeout_s,
        )
        self._memory_bytes = None if max_trace_mib is None else max_trace_mib * MIB // 2
        self._max_overhead, self._clock = max_overhead, clock
        self._wanted_slow, self._wanted_snapshots = slow, snapshots

        self._step = self._entered_at = first_step
        self._state: Literal["new", "entered", "left", "forgotten"] = "new"
        self._in_step = False
        self._busy = False
        self._demand: Demand | None = None
        self._slow: SlowSteps | None = None
        # Who this process is among others, and whose run it records into, is known on entry.
        self._ensemble = Ensemble(None, schedule=False, wake=_nothing)
        self._delivery: Delivery | None = None
        self._trigger = Trigger(self._logdir / self.run, _nothing)
        self._snapshots = MemorySnapshots(self._logdir / self.run)
        self._snapshot_due: float = math.inf
        self._plan = Plan(self._is_there, self._pass_by)
        self._budget = OverheadBudget(max_overhead, clock=clock)
        self._passing = False
        self._recording: Recording | None = None
        self._recorded = 0
        self._recorded_before: deque[Window] = deque()
        self._why_not, self._obstacle = BUDGET, ""
        self._said_why: str | None = None
        self._warned = False
        self._reference = StepClock(cuda=self._cuda)
        self._unprofiled_us: float | None = None
        self._failures = 0
        # The step from which begin_step has something to do, and whether end_step has. The first one enters.
        self._wake: float = -math.inf if self._schedule is not None else math.inf
        self._attentive = False
        if self._schedule is not None:
            # Torch imports it when its profiler first starts; the 2 s are better spent before the job's first step.
            import_module("torch._inductor.config")
            # Better to hear of it now; whose folder it is to be is known on entry.
            Staging(self._logdir, self.run).require_room()

    def __enter__(self) -> Self:
        """Begin: from here on steps count.

        Raises:
            RuntimeError: where it has been entered and not left.
        """
        self._enter()
        self.begin_step()
        return self

    def _enter(self) -> None:
        if self._state == "entered":
            raise RuntimeError(f"the profiler of {self._logdir / self.run} is entered already; leave it first")
        if self._state == "forgotten":
            return
        wake = _weakly(self._wake_up)
        self._ensemble = ensemble = Ensemble(self._ranks, schedule=self._schedule is not None, wake=wake)
        self._records = ensemble.records
        self._state, self._entered_at, self._in_step = "entered", self._step, False
        self._budget.begin()
        if self._schedule is None:
            return
        process.enter(self)
        if ensemble.leads and self._records:
            try:
                self._take_the_run(ensemble, wake)
            except OSError as error:
                # As on a disk that has filled up since; the job may be in its loop by now.
                log.warning("there will be no windows, training goes on: %s", error)
                self._delivery, self._records = None, False
        ensemble.start(self.run)
        if ensemble.alone and not self._records:
            self._sleep()
            return
        self._plan.begin(self._schedule, self._step)
        self._doze()

    def _take_the_run(self, ensemble: Ensemble, wake: Callable[[], None]) -> None:
        """Settle whose run it is, and go on where an earlier life of the job has left off; rank 0's to do."""
        for other in process.entered():
            if other is not self and (other._logdir, other._asked_name) == (self._logdir, self._asked_name):
                log.warning("%s: another Profiler of this process has the run and was not left; it ends", self.run)
                other.drain_s = 0.0
                other.close()
        claim = entry.claim(self._logdir, self.run, resumes=self._resumes)
        self._resumes = True  # where it is entered again
        self.run = claim.run
        self._trigger = Trigger(self._logdir / self.run, wake)
        self._trigger.start(claim)
        self._slow = self._wanted_slow
        if self._wanted_snapshots is not None:
            self._snapshots = self._wanted_snapshots
        self._snapshots.start()
        self._snapshot_due = self._next_snapshot(self._step)
        self._delivery = delivery = Delivery(self._logdir, self.run, ensemble, self._delivered)
        delivery.make_room()
        delivery.start()
        if self._step and self._schedule is not None:
            account = account_of(delivery.profile, self._step)
            self._budget = OverheadBudget(self._max_overhead, account, clock=self._clock)
            told = passed_over_before(delivery.profile, self._step)
            self._plan.recall(self._schedule, self._step, delivery.names(), told)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state == "entered":
            self._snapshots.failed(error, self._step)
        self.close()

    def span(self, name: str) -> AbstractContextManager[Any]:
        """Name a part of the step; see :func:`harness.record.span`."""
        return spans.span(name)

    def step(self) -> None:
        """Say that a step is over and the next one begins."""
        if self._in_step or self._state != "entered":
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
        self._in_step = False

    def begin_step(self) -> None:
        """Say that the next step begins; once more has no effect."""
        if self._step >= self._wake and not self._in_step:
            with self._charged():
                self._begin_step()
        self._in_step = True
        if self._slow is not None and self._recording is None:
            self._slow.begin()

    @property
    def in_window(self) -> bool:
        """Whether a window is under way, so that a job resumed from here would miss it; the same on every rank, and
        where a job that resumed comes by one that it has recorded in an earlier life."""
        there = self._recorded_before
        while there and there[0].end <= self._step:
            there.popleft()
        return self._is_in_window or bool(there and there[0].warmup < self._step)

    @property
    def _is_in_window(self) -> bool:
        return self._passing or self._recording is not None

    @property
    def steps_done(self) -> int:
        """The job's steps so far, those before this process began included."""
        return self._step

    @property
    def passed_over(self) -> dict[str, int]:
        """The schedule's cycles so far that had no window, by reason: ``budget``, ``publisher`` (too many windows wait
        to be published), ``other profiler``, ``asked for`` (a window that was asked for took its place), ``earlier``
        (an earlier life of the job knows)."""
        return dict(self._plan.passed_over)

    @property
    def figures(self) -> dict[str, float]:
        """How the profiling goes, by the tags of its curves; empty where there is no schedule.

        ``profiler/overhead`` is the share of the job's time that it has taken, ``profiler/overhead_budget`` its limit,
        ``profiler/skipped`` counts the cycles without a window (see :attr:`passed_over`), and ``profiler/waiting`` the
        windows that are recorded and not published yet.
        """
        if self._schedule is None or self._delivery is None or not self._ensemble.leads:
            return {}
        found = {
            "profiler/overhead": self._budget.overhead,
            "profiler/skipped": float(self._plan.passed_over.total()),
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
        if self._recording is None and self._delivery is not None:
            with self._charged():
                self._delivery.show_published()

    def end_window(self) -> None:
        """End the window that is under way, if one is: it becomes ``partial`` if it holds a whole step."""
        recording, self._recording = self._recording, None
        self._passing = False
        if recording is not None:
            with self._charged(), self._survive():
                self._finish(recording)

    def close(self) -> None:
        """End the profiling, a window under way too, and wait until all are published, for :attr:`drain_s` at most."""
        if self._state != "entered":
            return
        self.end_window()
        self._state = "left"
        process.leave(self)
        self._sleep()
        self._give_up("the job is over")
        self._trigger.close()
        self._ensemble.close()
        self._snapshots.stop()
        if self._delivery is not None:
            self._delivery.drain(self.drain_s)
        self._trigger.leave_nothing_empty()
        self._say_what_was_not()
        # A loop that goes on without entering again is none of ours; one that enters, counts on.
        self._slow = None

    def cut_short(self, reason: str) -> None:
        """End the window that is under way because of something else than the loop, and say so; in the thread that
        records. :mod:`harness.record.process` calls it."""
        if not self._busy:
            with self._charged():
                self._cut_short(reason)

    def forget(self) -> None:
        """Do nothing any more: this is a forked child, and all of it is its parent's."""
        self._left_to_the_parent = self._recording
        self._state, self._schedule, self._recording, self._slow = "forgotten", None, None, None
        self._wake, self._attentive, self._passing = math.inf, False, False
        self._trigger.forget()
        if self._delivery is not None:
            self._delivery.forget()

    def _cut_short(self, reason: str) -> None:
        recording, self._recording = self._recording, None
        if recording is None:
            return
        recording.cut_short = reason
        whole = "no whole step" if not recording.steps else f"{recording.steps} of its steps, as partial"
        log.warning("step %d: %s ends early, with %s: %s", self._step, recording.name, whole, reason)
        with self._survive():
            self._finish(recording)
        if self._passing and not recording.steps:
            # The other ranks have a window, which would wait for this one.
            self._deliver().lose(recording.name)
        self._give_up(reason)
        if not self._passing and self._schedule is not None:
            self._plan_on(self._schedule, after=self._step + 1)

    def _say_what_was_not(self) -> None:
        """What the loop will be missed for: windows that it should have had and has not."""
        if self._schedule is None or not self._ensemble.leads or not self._records:
            return
        steps = self._step - self._entered_at
        if self._plan.passed_over:
            log.info("%s", in_words(self._plan.passed_over))
            run = self._logdir / self.run
            if run.is_dir() and not (run / MANIFEST).exists():
                with suppress(OSError), atomic_write(run / PASSED_OVER) as file:
                    file.write(msgspec.json.encode(dict(self._plan.passed_over)))
        elif not self._recorded and self.explains:
            remark = remarks.no_window(self._schedule, self._entered_at, steps)
            if remark is not None:
                log.warning("%s", remark)

    def _is_there(self, name: str) -> bool:
        if self._delivery is not None and self._ensemble.leads:
            return self._delivery.has(name)
        staging = Staging(self._logdir, self.run)
        return self._resumes and (staging.has(name) or (staging.profile / name).exists())

    def _pass_by(self, window: Window) -> None:
        self._recorded_before.append(window)
        # A rank that does not see it there asks.
        self._ensemble.decline(window)

    def _deliver(self) -> Delivery:
        """Where this rank's windows go: other ranks than 0 hear the run's name from it."""
        if self._delivery is None:
            self._delivery = Delivery(self._logdir, self._ensemble.run(self.run), self._ensemble, self._delivered)
            self._delivery.start()
        return self._delivery

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
        waiting = self._delivery is not None and self._delivery.waiting
        listen = self._step + LISTEN_STEPS if waiting else math.inf
        return min(self._plan.look_at, listen, self._snapshot_due)

    def _next_snapshot(self, step: int) -> float:
        every = self._snapshots.every
        return math.inf if every is None or self._schedule is None else step - step % every + every

    def _begin_step(self) -> None:
        if self._state == "new":
            log.warning(
                "step() before the profiler was entered: it begins now; `with Profiler(...) as profiler:` ends it too"
            )
            self._enter()
        if not self._is_in_window:
            if not self._attentive and self._delivery is not None:
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
        if not self._records or self._delivery is None or (self._plan.unwanted and not asked):
            return False
        if not asked and not self._budget.allows_a_window():
            self._why_not = BUDGET
        elif self._delivery.behind:
            self._why_not = PUBLISHER
        elif self._plan.window is not None and self._step >= self._plan.window.warmup:
            obstacle = process.in_the_way(self)
            self._why_not, self._obstacle = OTHER, obstacle or ""
            return obstacle is None
        else:
            return True
        return False

    def _pass_over(self) -> None:
        """Go on without the window that was to begin now."""
        assert self._schedule is not None
        demand = self._demand
        self._reference = StepClock(cuda=self._cuda)
        if demand is None:
            self._count_passed_over()
        elif not self._ensemble.alone:
            self._count_displaced(self._schedule, demand, self._step)
            if self._ensemble.unheard:
                self._sleep()
                self._plan_demand(demand, self._schedule, again=True)
                self._doze()
                return
        self._give_up(self._reason() if self._ensemble.leads else "not every rank could be told of it")
        self._plan_on(self._schedule, after=self._step + 1)

    def _count_passed_over(self) -> None:
        """One more cycle has no window; the log says why, once until it is for another reason or one is recorded."""
        self._plan.passed_over[self._why_not] += 1
        if self._ensemble.leads and self._said_why != self._why_not:
            self._said_why = self._why_not
            # What is in the way may be so at every other cycle of a job for weeks.
            level = logging.WARNING if self._why_not == OTHER and not self._warned else logging.INFO
            self._warned |= self._why_not == OTHER
            log.log(level, "step %d: no window: %s", self._step, self._reason())

    def _reason(self) -> str:
        """Why a window that was due is not recorded."""
        if self._why_not == BUDGET:
            return remarks.over_budget(self._budget.limit, self._budget.wait_s)
        return "the publisher is behind" if self._why_not == PUBLISHER else self._obstacle

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
            place=self._deliver().place,
            unprofiled_us=self._unprofiled_us,
            trigger="schedule" if demand is None else demand.kind,
            cause=None if demand is None else demand.cause,
            recorder=self,
            memory_bytes=self._memory_bytes,
            passed_over=self._plan.passed_over,
        )

    def _end_step(self) -> None:
        recording = self._recording
        if recording is not None:
            with self._survive():
                if not self._in_step:
                    # A step whose beginning nobody has told is as short as nothing.
                    recording.begin_step()
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
        self._deliver().send(recording, raw)
        self._recorded += 1
        self._said_why = None
        demand, self._demand = self._demand, None
        if demand is not None:
            self._trigger.recorded(demand, recording.name)
        self._snapshots.window_over(recording.window.first)

    @contextmanager
    def _charged(self) -> Iterator[None]:
        """All time in here is the profiling's, and on its budget: also what timing a step, handing a window over and
        showing what it found take. A window that has to end meanwhile does so afterwards."""
        started, before, self._busy = time.perf_counter(), self._busy, True
        try:
            yield
        finally:
            self._busy = before
            self._budget.charge(time.perf_counter() - started)
        recording = self._recording
        if not before and recording is not None and recording.due is not None:
            self.cut_short(recording.due)

    @contextmanager
    def _survive(self) -> Iterator[None]:
        """A profiler that fails costs its window, never the job; after a few in a row it is let be."""
        try:
            yield
        except Occupied as error:
            # Another profiler has begun in the meantime, or on this rank alone; that is no failure.
            window = self._plan.window
            if window is not None:
                self._deliver().lose(window_name(window.first))
            self._why_not, self._obstacle = OTHER, str(error)
            self._count_passed_over()
            self._give_up(str(error))
            if not self._passing and self._schedule is not None:
                self._plan_on(self._schedule, after=self._step + 1)
        except Exception as error:
            recording, self._recording = self._recording, None
            window = self._plan.window
            if recording is not None:
                with suppress(Exception):
                    recording.stop()
            if window is not None:
                self._deliver().lose(window_name(window.first))
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


def _nothing() -> None:
    return None


def _weakly(wake: Callable[[], None]) -> Callable[[], None]:
    """The same, without keeping alive whose method it is: a profiler that nobody has any more goes."""
    method = weakref.WeakMethod(wake)

    def call() -> None:
        if (found := method()) is not None:
            found()

    return call
