"""The ranks of a job as its profilers see them: who leads, who records, and which windows they agree on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

import torch

from harness.distributed.meeting import Appointment, Meeting
from harness.record.entry import rank_of_environment, ranks_without_a_group
from harness.record.trigger import Demand
from harness.schedule import Window

log = logging.getLogger(__name__)

LEAD = 10
"""Steps to the first appointment for a window that was asked for; the unprofiled ones before it are as many."""
CALLS_AT_MOST = 12
"""Appointments for one window, each twice as far ahead as the one before, after which it is given up."""


class Ensemble:
    """This process among those that record; of one that is alone, whatever it wants is agreed.

    The windows of the schedule every rank knows, and rank 0 only decides on each. A window that is asked for it
    announces ahead. See :mod:`harness.distributed.meeting`.

    Args:
        ranks: Which record, 0 among them; None: all.
        schedule: Whether there is one, and so something to agree on.
        wake: Called from a thread when rank 0 has announced a window.

    """

    def __init__(self, ranks: Collection[int] | None, *, schedule: bool, wake: Callable[[], object]) -> None:
        distributed = torch.distributed
        there = distributed.is_available() and distributed.is_initialized()
        self.rank, self.size = (distributed.get_rank(), distributed.get_world_size()) if there else (0, 1)
        recording = range(self.size) if ranks is None else ranks
        self.leads = self.rank == 0
        self.records = self.rank in recording
        if schedule and (warning := ranks_without_a_group(self.size)) is not None:
            # They would all write into one run, each as rank 0.
            self.records = rank_of_environment() == 0
            if self.records:
                log.warning("%s", warning)
        self.others = sorted(set(recording) & set(range(1, self.size)))
        """The ranks beside rank 0 that record."""
        self._meeting: Meeting | None = None
        if schedule and self.size > 1:
            store = distributed.distributed_c10d._get_default_store()
            self._meeting = Meeting(store, "windows", rank=self.rank, size=self.size, wake=wake)
        self._said_who_is_absent = False
        self._appointment: Appointment | None = None
        self._calls = 0
        self._unheard = False

    @property
    def alone(self) -> bool:
        return self._meeting is None

    def start(self, run: str) -> None:
        """Join the others; rank 0 says under which name it records."""
        if self._meeting is not None:
            self._meeting.start(run.encode())

    def run(self, own: str) -> str:
        """The name of the run, as rank 0 has it; ``own`` for a rank that is alone."""
        said = None if self._meeting is None else self._meeting.said_by(0)
        return own if said is None else said.decode()

    def absent(self) -> list[int]:
        """The ranks that should record too and have not joined: there is no profiler on them, or not yet."""
        if self._meeting is None or not self.others:
            return []
        absent = [rank for rank in self.others if not self._meeting.has_joined(rank)]
        if absent and not self._said_who_is_absent:
            self._said_who_is_absent = True
            named = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
            log.warning(
                "rank %s has entered no Profiler: windows come without it, and do not wait for it. Enter one on every "
                "rank, or name those that record: ranks=[0]",
                named,
            )
        return absent

    def close(self) -> None:
        if self._meeting is not None:
            self._meeting.close()

    @property
    def news(self) -> bool:
        """Whether rank 0 has announced a window that :meth:`hear` has not told of."""
        return self._meeting is not None and not self.leads and self._meeting.heard is not self._appointment

    def lead(self, demand: Demand, *, again: bool) -> int:
        """How many steps ahead a window that is asked for begins; further each time that it is called ``again``."""
        self._calls = self._calls + 1 if again else 0
        # Where steps are slow now, their pace is known, and they may not stay so for long. Other ranks have to hear.
        return 0 if self.alone and demand.unprofiled_us is not None else LEAD << self._calls

    def announce(self, demand: Demand, window: Window, displaced: Iterable[int]) -> None:
        """Tell the other ranks of a window that is asked for; rank 0's to do.

        Args:
            displaced: The steps at which windows of the schedule would begin that it takes the place of.
        """
        if self._meeting is not None:
            for warmup in displaced:
                self._meeting.settle(_scheduled(warmup), lambda: False)
            self._appointment = self._meeting.call(window.warmup, demand.encode())

    def hear(self, step: int) -> tuple[Demand, int] | None:
        """The window that rank 0 has announced, and where its warm-up begins, if that is not behind ``step`` already;
        this rank will be there then."""
        if self._meeting is None or not self.news:
            return None
        heard = self._appointment = self._meeting.heard
        if heard is None or step > heard.step:
            return None
        self._meeting.promise(heard)
        demand = Demand.decode(heard.what)
        # This rank has left out by itself what comes before.
        return replace(demand, since=max(step, demand.since or 0)), heard.step

    def decline(self, window: Window) -> None:
        """Tell the other ranks that this window of the schedule is not recorded, as it is there; rank 0's to do."""
        if self._meeting is not None and self.leads:
            self._meeting.settle(_scheduled(window.warmup), lambda: False)

    def agreed(self, window: Window, demand: Demand | None, wanted: Callable[[], bool]) -> bool:
        """Whether the window whose warm-up would begin now is recorded, on every rank.

        Args:
            demand: What it was asked for by; None for one of the schedule.
            wanted: Whether rank 0 wants it; no other rank is asked.
        """
        self._unheard = False
        meeting, appointment = self._meeting, self._appointment
        if meeting is None:
            return wanted()
        if demand is None or appointment is None:
            return meeting.settle(_scheduled(window.warmup), wanted)

        def heard_and_wanted() -> bool:
            self._unheard = not meeting.all_promised(appointment)
            return not self._unheard and wanted()

        return meeting.settle(appointment.key, heard_and_wanted)

    @property
    def unheard(self) -> bool:
        """Whether the window just passed over was, because some rank had not heard of it in time, and another call
        may do."""
        return self._unheard and self._calls < CALLS_AT_MOST


def _scheduled(warmup: int) -> str:
    return f"window {warmup}"
