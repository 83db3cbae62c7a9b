"""Which window comes next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from harness.logdir.layout import step_of_window, window_name
from harness.record.ensemble import LEAD
from harness.record.schedule import Schedule, Window
from harness.record.trigger import Demand
from harness.trace.passed_over import ASKED, EARLIER

REFERENCE_STEPS = LEAD
"""Unprofiled steps timed just before each window, against which the window's own are compared."""


class Plan:
    """The next window, none that is there already, and the cycles of the schedule that have had none.

    Attributes:
        window: The next window; None where there is none.
        look_at: The step from which it asks for attention, in time to measure unprofiled steps before it.
        unwanted: Whether it was refused where that measuring was to begin.
        passed_over: Cycles of the schedule that had no window, by reason; see :mod:`harness.trace.passed_over`.

    Args:
        is_there: Whether a window of this name is there or on its way.
        passed_by: Told of each of the schedule's windows that is there already.
    """

    def __init__(self, is_there: Callable[[str], bool], passed_by: Callable[[Window], object]) -> None:
        self._is_there, self._passed_by = is_there, passed_by
        self.passed_over: Counter[str] = Counter()
        self.expect(None)

    def expect(self, window: Window | None) -> None:
        """Take this window for the next one."""
        self.window, self.unwanted = window, False
        self.look_at = math.inf if window is None else window.warmup - REFERENCE_STEPS

    def refuse(self, window: Window) -> None:
        """Time no steps ahead of a window that is not wanted, which costs something too; look again as it begins."""
        self.look_at, self.unwanted = window.warmup, True

    def begin(self, schedule: Schedule, step: int) -> None:
        """Take the first window of a job that begins with ``step``."""
        window = schedule.first_window(step, passed_over=self.passed_over.total())
        if window is None or self._is_there(window_name(window.first)):
            self.expect_next(schedule, step)
        else:
            self.expect(window)

    def expect_next(self, schedule: Schedule, step: int) -> None:
        """Take the schedule's next window from ``step`` on."""
        window = schedule.next_window(step, passed_over=self.passed_over.total())
        while window and self._is_there(window_name(window.first)):
            # A job resumed from an older checkpoint comes past windows that it has recorded already.
            self._passed_by(window)
            window = schedule.next_window(window.end, passed_over=self.passed_over.total())
        self.expect(window)

    def expect_asked(self, demand: Demand, schedule: Schedule, warmup: int) -> Window:
        """Take the window that was asked for, whose warm-up begins at ``warmup``, or soon after."""
        window = demand.schedule(schedule, warmup).next_window(warmup)
        while window is not None and self._is_there(window_name(window.first)):
            warmup += 1
            window = demand.schedule(schedule, warmup).next_window(warmup)
        assert window is not None
        self.expect(window)
        return window

    def recall(self, schedule: Schedule, first_step: int, names: Collection[str], told: Mapping[str, int]) -> None:
        """Count the cycles before ``first_step`` that have no window, in a job that has recorded some.

        Args:
            names: The windows that are there.
            told: The reasons, as far as they are written down.
        """
        firsts = (first for name in names if (first := step_of_window(name)) is not None)
        recorded = sum(first < first_step and schedule.begins_at(first) for first in firsts)
        if not recorded:
            return
        self.passed_over = Counter(told)
        begun = schedule.first_window(first_step)
        # The window whose warm-up is under way is recorded yet.
        cycles = schedule.cycles_before(first_step if begun is None else min(first_step, begun.first - schedule.warmup))
        unknown = cycles - recorded - self.passed_over.total()
        if unknown > 0:
            self.passed_over[EARLIER] += unknown

    def displace(self, schedule: Schedule, since: int, end: int) -> None:
        """Count the schedule's cycles that a window which was asked for has taken the place of."""
        displaced = schedule.cycles_before(end) - schedule.cycles_before(since)
        if displaced > 0:
            self.passed_over[ASKED] += displaced
