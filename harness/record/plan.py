"""Which window comes next."""

from __future__ import annotations

import logging
import math

from harness.publish.staging import window_name
from harness.record.delivery import Delivery
from harness.record.ensemble import LEAD
from harness.record.schedule import Schedule, Window
from harness.record.trigger import Demand

log = logging.getLogger(__name__)

REFERENCE_STEPS = LEAD
"""Unprofiled steps timed just before each window, against which the window's own are compared."""


class Plan:
    """The next window, none that is there already, and the cycles of the schedule that have had none.

    Attributes:
        window: The next window; None where there is none.
        look_at: The step from which it asks for attention, in time to measure unprofiled steps before it.
        unwanted: Whether it was refused where that measuring was to begin.
        passed_over: Cycles of the schedule that had no window.
    """

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery
        self._said_what_is_there = False
        self.passed_over = 0
        self.expect(None)

    def expect(self, window: Window | None) -> None:
        """Take this window for the next one."""
        self.window, self.unwanted = window, False
        self.look_at = math.inf if window is None else window.warmup - REFERENCE_STEPS

    def refuse(self, window: Window) -> None:
        """Time no steps ahead of a window that is not wanted, which costs something too; look again as it begins."""
        self.look_at, self.unwanted = window.warmup, True

    def expect_next(self, schedule: Schedule, step: int) -> None:
        """Take the schedule's next window from ``step`` on."""
        window = schedule.next_window(step, passed_over=self.passed_over)
        while window and self._delivery.has(window_name(window.first)):
            # A job resumed from an older checkpoint comes past windows that it has recorded already.
            self._passed_by(window)
            window = schedule.next_window(window.end, passed_over=self.passed_over)
        self.expect(window)

    def expect_asked(self, demand: Demand, schedule: Schedule, warmup: int) -> Window:
        """Take the window that was asked for, whose warm-up begins at ``warmup``, or soon after."""
        window = demand.schedule(schedule, warmup).next_window(warmup)
        while window is not None and self._delivery.has(window_name(window.first)):
            warmup += 1
            window = demand.schedule(schedule, warmup).next_window(warmup)
        assert window is not None
        self.expect(window)
        return window

    def recall(self, schedule: Schedule, first_step: int) -> None:
        """Count the cycles before ``first_step`` that have no window, in a job that has recorded some."""
        firsts = (int(name.removeprefix("window_")) for name in self._delivery.names())
        recorded = sum(first < first_step and schedule.begins_at(first) for first in firsts)
        self.passed_over = max(0, schedule.cycles_before(first_step) - recorded) if recorded else 0

    def displace(self, schedule: Schedule, since: int, end: int) -> None:
        """Count the schedule's cycles that a window which was asked for has taken the place of."""
        self.passed_over += schedule.cycles_before(end) - schedule.cycles_before(since)

    def _passed_by(self, window: Window) -> None:
        """Say it once: whoever starts a new job under an old name waits for windows in vain."""
        if not self._said_what_is_there:
            self._said_what_is_there = True
            log.warning(
                "%s is there already and not recorded again; a job that resumes none needs a run name of its own",
                self._delivery.profile / window_name(window.first),
            )
