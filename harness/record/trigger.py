"""Windows outside the schedule: because somebody asks, or because steps are slow."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal

import msgspec

from harness.logdir import layout, request
from harness.logdir.layout import window_name
from harness.logdir.request import Answer, Request
from harness.record.entry import Claim
from harness.record.recording import TraceOptions
from harness.schedule import STEPS_AT_MOST, Schedule, Window

log = logging.getLogger(__name__)

POLL_S = 1.0
"""How often the run directory is looked at, from a thread: a file system that hangs must not hold up the loop."""


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A window outside the schedule."""

    kind: Literal["request", "slow"]
    steps: int | None = None
    """None: as many as the schedule's."""
    with_stack: bool = False
    memory: bool = False
    cause: str | None = None
    id: str | None = None
    """Of the request."""
    unprofiled_us: float | None = None
    """What steps take without the profiler, where that is known already; else it is measured first."""
    since: int | None = None
    """The step at which it was planned; windows of the schedule are left out from there on."""

    def encode(self) -> bytes:
        """For other ranks."""
        return msgspec.msgpack.encode(self)

    @staticmethod
    def decode(data: bytes) -> Demand:
        return msgspec.msgpack.decode(data, type=Demand)

    def options(self, usual: TraceOptions) -> TraceOptions:
        """What the schedule's windows record, and what this one shall have besides."""
        return replace(
            usual,
            with_stack=usual.with_stack or self.with_stack,
            profile_memory=usual.profile_memory or self.memory,
        )

    def schedule(self, usual: Schedule, warmup: int) -> Schedule:
        """The window alone, its warm-up from step ``warmup`` on, at least one step long."""
        return Schedule(
            wait=0, warmup=max(usual.warmup, 1), active=max(self.steps or usual.active, 1), repeat=1, skip_first=warmup
        )


class Trigger:
    """Hears requests in a run directory; see :mod:`harness.logdir.request`.

    Args:
        run: The run directory; made if it is not there.
        wake: Called from the thread when a request has come.
    """

    def __init__(self, run: Path, wake: Callable[[], None]) -> None:
        self._run = run
        self._wake = wake
        self._claim: Claim | None = None
        self._over = threading.Event()
        self._something_to_say = threading.Event()
        self._answers: SimpleQueue[Answer] = SimpleQueue()
        self._heard: Request | None = None
        self._wanted: Demand | None = None
        self._thread: threading.Thread | None = None

    def start(self, claim: Claim) -> None:
        """Listen in a run that is this process's until :meth:`close`; where that cannot be, the job goes on without."""
        self._claim = claim
        if claim.lock is None:
            return
        try:
            # What was asked of an earlier life of the job.
            (self._run / layout.REQUEST).unlink(missing_ok=True)
        except OSError as error:
            log.warning("harness trigger will not reach this job: %s", error)
            return
        self._thread = threading.Thread(target=self._listen, name="harness-trigger", daemon=True)
        self._thread.start()

    @property
    def pending(self) -> bool:
        """Whether a window is wanted that has not been taken."""
        return self._heard is not None or self._wanted is not None

    def want(self, demand: Demand) -> None:
        """Ask from within the loop."""
        self._wanted = demand

    def take(self) -> Demand | None:
        """The window that is wanted, for the loop to record."""
        wanted, self._wanted = self._wanted, None
        # Whoever asks sees what is slow just as well.
        heard, self._heard = self._heard, None
        if heard is None:
            return wanted
        return Demand(kind="request", steps=heard.steps, with_stack=heard.with_stack, memory=heard.memory, id=heard.id)

    def planned(self, demand: Demand, window: Window) -> None:
        self._say(
            demand,
            state="planned",
            window=window_name(window.first),
            first_step=window.first,
            steps=window.end - window.first,
        )

    def recorded(self, demand: Demand, window: str) -> None:
        self._say(demand, state="recorded", window=window)

    def failed(self, demand: Demand, reason: str) -> None:
        self._say(demand, state="failed", reason=reason)

    def close(self) -> None:
        """Say what is left to say, listen no more, and give the run back."""
        if self._claim is None or self._claim.lock is None or self._over.is_set():
            return
        self._over.set()
        self._something_to_say.set()
        if self._thread is not None:
            # It may hang in the file system; the job does not hang with it.
            self._thread.join(2 * POLL_S)
        if (unheard := self.take()) is not None:
            self.failed(unheard, "the job is over")
        with suppress(OSError):
            self._write_answers()
            (self._run / layout.LISTENER).unlink(missing_ok=True)
        self._claim.lock.close()

    def forget(self) -> None:
        """Do nothing any more, in a forked child."""
        self._over.set()

    def leave_nothing_empty(self) -> None:
        """Take away the folders that were made to listen in, once all that may come into them has come."""
        with suppress(OSError):
            for folder in self._claim.made if self._claim is not None else ():
                folder.rmdir()

    def _say(self, demand: Demand, **answer: object) -> None:
        if demand.id is not None:
            self._answers.put(Answer(id=demand.id, **answer))  # type: ignore[arg-type]
            self._something_to_say.set()

    def _listen(self) -> None:
        failing = False
        while not self._over.is_set():
            try:
                self._write_answers()
                if self._heard is None and (self._run / layout.REQUEST).exists():
                    self._hear()
                failing = False
            except OSError as error:
                if not failing:
                    log.warning("harness trigger does not reach this job for now: %s", error)
                failing = True
            self._something_to_say.wait(POLL_S)
            self._something_to_say.clear()

    def _hear(self) -> None:
        heard = request.read_request(self._run)
        (self._run / layout.REQUEST).unlink(missing_ok=True)
        if heard is not None and heard.steps is not None and not 1 <= heard.steps <= STEPS_AT_MOST:
            reason = f"{heard.steps} steps are not between 1 and {STEPS_AT_MOST:,}"
            self._answers.put(Answer(id=heard.id, state="failed", reason=reason))
            self._something_to_say.set()
            return
        if heard is not None:
            self._heard = heard
            self._wake()

    def _write_answers(self) -> None:
        with suppress(Empty):
            while True:
                request.write_answer(self._run, self._answers.get_nowait())
