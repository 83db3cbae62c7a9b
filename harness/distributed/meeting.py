"""How the ranks of a running job agree on a step without a collective.

Rank 0 calls an appointment, a step some way ahead, through the store at which the ranks met. A thread of every other
rank looks for it there; the loop promises to come if it is not past that step yet. At the step rank 0 counts the
promises and decides, once; the others read the decision. Where a promise is missing, the next appointment lies twice
as far ahead. So all ranks do the same at the same step, or none does, however far apart they run; and a step on
which nothing happens costs one comparison.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from signal import Signals
from types import FrameType, TracebackType
from typing import Any, Self

import msgspec

from harness.distributed.stop import StopSignals

log = logging.getLogger(__name__)

POLL_S = 0.2
"""Between two looks at the store, from a thread of its own."""
DECISION_S = 120.0
"""How long a rank waits for rank 0's decision at the step itself. Rank 0 may still be writing a checkpoint, for
which the next collective would wait just as long."""
JOIN_S = 5.0
"""How long a rank that asks for a decision waits for rank 0 to join at all, once: ranks begin a moment apart."""
CLOSE_S = 30.0
"""How long the end waits for the thread. Python ends a thread that is in the store as the process ends, torch does not
stand that, and the process ends with SIGABRT."""
STOP_LEAD = 2
"""Steps to the first appointment for a stop."""

_met: Counter[tuple[str, int]] = Counter()
"""Meetings that this process has had, by name and rank; the other ranks count the same."""


class Appointment(msgspec.Struct, frozen=True, kw_only=True):
    """A step at which all ranks are to decide."""

    number: int
    step: int
    what: bytes

    @property
    def key(self) -> str:
        return f"appointment {self.number}"


class Meeting:
    """Appointments about one thing.

    Args:
        store: A ``torch.distributed.Store`` that all ranks share.
        name: Of the thing, the same on all ranks.
        rank, size: This one, and how many there are.
        wake: Called from the thread when there is something new: :attr:`heard`, on rank 0 :attr:`asked`.
    """

    def __init__(self, store: Any, name: str, *, rank: int, size: int, wake: Callable[[], object]) -> None:
        # A connection of its own: nobody waits for an answer behind the process group.
        self._store = store.clone()
        # Another one about the same thing, as of a second profiler in the process, has nothing to do with this one.
        _met[name, rank] += 1
        self._name, self._size, self._wake = f"{name} {_met[name, rank]}", size, wake
        self._rank = rank
        self._said: dict[int, bytes] = {}
        self.leads = rank == 0
        self.heard: Appointment | None = None
        """The newest appointment; never on rank 0."""
        self.asked: bytes | None = None
        """What some rank has asked rank 0 for, until it takes it."""
        self._asking: bytes | None = None
        self._thing = name
        self._said_who_is_missing = False
        self._patient = True
        self._calls = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name=f"harness-{name}", daemon=True)

    def start(self, said: bytes = b"") -> None:
        """Join, and leave a word for the others."""
        with _unreachable():
            self._store.set(self._key(f"joined {self._rank}"), b"." + said)
        self._thread.start()
        atexit.register(self.close)

    def has_joined(self, rank: int) -> bool:
        """Whether that rank has."""
        return self.said_by(rank) is not None

    def said_by(self, rank: int) -> bytes | None:
        """The word that a rank has left when it joined; None where it has not."""
        if rank not in self._said:
            with _unreachable():
                key = self._key(f"joined {rank}")
                if self._store.check([key]):
                    self._said[rank] = self._store.get(key)[1:]
        return self._said.get(rank)

    def close(self) -> None:
        """Listen no more."""
        atexit.unregister(self.close)
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def ask(self, what: bytes) -> None:
        """Ask rank 0 to call an appointment; a signal handler may do it, the thread sends it."""
        self._asking = what

    def call(self, step: int, what: bytes) -> Appointment:
        """Announce an appointment; rank 0's to do."""
        self._calls += 1
        appointment = Appointment(number=self._calls, step=step, what=what)
        with _unreachable():
            self._store.set(self._key("newest"), msgspec.msgpack.encode(appointment))
        return appointment

    def promise(self, appointment: Appointment) -> None:
        """Say that this rank will be there."""
        with _unreachable():
            self._store.add(self._key(f"{appointment.key}/promises"), 1)

    def all_promised(self, appointment: Appointment) -> bool:
        """Whether every other rank will be there; rank 0's to ask."""
        with _unreachable():
            return int(self._store.add(self._key(f"{appointment.key}/promises"), 0)) == self._size - 1
        return False

    def settle(self, key: str, wanted: Callable[[], bool]) -> bool:
        """What all ranks do about ``key``: what ``wanted`` says on rank 0, which is asked on no other."""
        key = self._key(f"{key}/decision")
        with _unreachable():
            if self.leads:
                return bool(self._store.compare_set(key, "", "yes" if wanted() else "no") == b"yes")
            if self._lead_has_joined():
                try:
                    self._store.wait([key], timedelta(seconds=DECISION_S))
                except RuntimeError:
                    log.warning("rank 0 has not decided within %.0f s; this rank goes on", DECISION_S)
            elif not self._said_who_is_missing:
                self._said_who_is_missing = True
                log.warning("rank 0 has not joined, which decides on %s: there are none for now", self._thing)
            return bool(self._store.compare_set(key, "", "no") == b"yes")
        return False

    def _lead_has_joined(self) -> bool:
        """Whether rank 0 has; the first time it is given a moment to."""
        if not self.has_joined(0) and self._patient:
            self._patient = False
            with contextlib.suppress(RuntimeError):
                self._store.wait([self._key("joined 0")], timedelta(seconds=JOIN_S))
        return self.has_joined(0)

    def _key(self, key: str) -> str:
        return f"harness/{self._name}/{key}"

    def _listen(self) -> None:
        while not self._over.wait(POLL_S):
            try:
                self._look()
            except RuntimeError:
                # Whoever keeps the store is gone, and the job with it.
                return

    def _look(self) -> None:
        if (asking := self._asking) is not None:
            self._asking = None
            self._store.set(self._key("asked"), asking)
        if self.leads:
            if self._store.check([self._key("asked")]):
                self.asked = self._store.get(self._key("asked"))
                self._store.delete_key(self._key("asked"))
                self._wake()
            return
        if self._store.check([self._key("newest")]):
            newest = msgspec.msgpack.decode(self._store.get(self._key("newest")), type=Appointment)
            if newest != self.heard:
                self.heard = newest
                self._wake()


class _unreachable:
    """A store that is gone decides nothing; the next collective says what has happened."""

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return isinstance(error, RuntimeError)


class AgreedStop(StopSignals):
    """SIGTERM, SIGINT or SIGHUP at any rank ends the job on all of them, after the same step.

    Args:
        store, rank, size: As for :class:`Meeting`.
    """

    def __init__(self, store: Any, *, rank: int, size: int) -> None:
        super().__init__()
        self._meeting = Meeting(store, "stop", rank=rank, size=size, wake=self._pay_attention)
        self._appointment: Appointment | None = None
        self._lead = STOP_LEAD

    def __enter__(self) -> Self:
        self._meeting.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._meeting.close()

    def agreed(self, step: int) -> bool:
        self.attention = math.inf
        meeting = self._meeting
        if meeting.leads:
            if self._appointment is None and meeting.asked is not None:
                self._appointment = meeting.call(step + self._lead, meeting.asked)
        elif meeting.heard is not self._appointment:
            self._appointment = meeting.heard
            if self._appointment is not None and step <= self._appointment.step:
                meeting.promise(self._appointment)
        appointment = self._appointment
        if appointment is not None and step < appointment.step:
            self.attention = appointment.step
        elif appointment is not None and step == appointment.step:
            if meeting.settle(appointment.key, lambda: meeting.all_promised(appointment)):
                self.received = Signals(int(appointment.what))
                return True
            if meeting.leads:
                self._lead *= 2
                self._appointment = meeting.call(step + self._lead, appointment.what)
                self.attention = self._appointment.step
        if not meeting.leads and meeting.heard is not self._appointment:
            self._pay_attention()
        return False

    def _pay_attention(self) -> None:
        self.attention = -math.inf

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._only_once(number)
        self._meeting.ask(str(number).encode())
