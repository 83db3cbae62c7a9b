"""When windows are recorded, by torch's own schedule, and what they may cost where nobody says otherwise.

What is configured and what a loop of somebody's own hands over are the same things, and neither side knows the other:
so what holds for both stands below them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

STEPS_AT_MOST = 10_000
"""Steps of a window, or of its warm-up: no trace of more can be read, and long before it the memory is full."""
MAX_OVERHEAD = 0.01
"""Share of the job's time that windows may take."""
MAX_TRACE_MIB = 1024
"""Of a raw trace; a larger one is dropped."""
DRAIN_S = 60.0
"""How long the end of a job waits for windows that are not published yet."""
RANKS_TIMEOUT_S = 60.0
"""How long a window waits for the traces of other ranks."""
KEEP_BYTES = "20 GiB"
"""Of all traces of a run together."""
SLOW_STEPS, SLOW_EVERY_S = 3, 600.0
"""Slow steps in a row that ask for a window, and the time between two such windows at least."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """The steps of one planned window: ``[warmup, first)`` warm up, ``[first, end)`` are recorded."""

    warmup: int
    first: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """The arguments of :func:`torch.profiler.schedule`, in steps, counted from the job's first step.

    Raises:
        ValueError: for a negative count, ``active`` below 1, or more steps at once than :data:`STEPS_AT_MOST`.
    """

    wait: int
    """Steps of each cycle that pass before the warm-up."""
    warmup: int
    """Steps with the profiler on whose events are thrown away."""
    active: int
    """Steps that are recorded."""
    repeat: int = 0
    """How many windows at most; 0 goes on for ever."""
    skip_first: int = 0
    """Steps before the first cycle."""
    skip_first_wait: bool = False
    """The first cycle starts with its warm-up, without ``wait``."""

    def __post_init__(self) -> None:
        for field in ("wait", "warmup", "repeat", "skip_first"):
            if getattr(self, field) < 0:
                raise ValueError(f"{field} must be at least 0, not {getattr(self, field)}")
        if self.active < 1:
            raise ValueError(f"active must be at least 1, not {self.active}")
        for field in ("warmup", "active"):
            if getattr(self, field) > STEPS_AT_MOST:
                raise ValueError(f"{field} must be at most {STEPS_AT_MOST:,} steps, not {getattr(self, field):,}")

    def next_window(self, step: int, *, passed_over: int = 0) -> Window | None:
        """The first window whose warm-up begins at ``step`` or later; None once ``repeat`` are over.

        Args:
            passed_over: Cycles so far in which no window was wanted; ``repeat`` does not count them.
        """
        cycle = self.cycles_before(step)
        if self.repeat and cycle >= self.repeat + passed_over:
            return None
        warmup = self._offset + cycle * self._period
        return Window(warmup=warmup, first=warmup + self.warmup, end=warmup + self.warmup + self.active)

    def first_window(self, step: int, *, passed_over: int = 0) -> Window | None:
        """The first window of a job that begins with ``step``: one whose warm-up is under way, if one step of that is
        left, and else the next."""
        cycle = self.cycles_before(step) - 1
        first = self._offset + cycle * self._period + self.warmup
        if cycle >= 0 and step < first and not (self.repeat and cycle >= self.repeat + passed_over):
            return Window(warmup=step, first=first, end=first + self.active)
        return self.next_window(step, passed_over=passed_over)

    def cycles_before(self, step: int) -> int:
        """How many cycles have their warm-up begin before ``step``."""
        return max(0, -(-(step - self._offset) // self._period))

    def warmups(self, first: int, end: int) -> Iterator[int]:
        """The steps from ``first`` up to ``end`` at which the warm-up of a cycle begins, whatever ``repeat`` says."""
        for cycle in range(self.cycles_before(first), self.cycles_before(end)):
            yield self._offset + cycle * self._period

    def begins_at(self, step: int) -> bool:
        """Whether the recording of one of its windows begins with ``step``."""
        since = step - self.warmup - self._offset
        return since >= 0 and since % self._period == 0

    @property
    def _period(self) -> int:
        return self.wait + self.warmup + self.active

    @property
    def _offset(self) -> int:
        """Where the first warm-up begins."""
        return self.skip_first + (0 if self.skip_first_wait else self.wait)

    def to_torch(self) -> Callable[[int], Any]:
        """The same schedule as a callable from the step to :class:`torch.profiler.ProfilerAction`."""
        import warnings

        from torch.profiler import schedule

        with warnings.catch_warnings():
            # warmup=0 is the user's choice by now; the configuration's checks speak of it once.
            warnings.filterwarnings("ignore", message="Profiler won't be using warmup")
            return schedule(**dataclasses.asdict(self))
