"""Steps that are slow, several in a row, against what the job's steps have taken lately."""

from __future__ import annotations

import statistics
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

KEPT = 101
"""Steps whose median is the normal pace."""
LEAST = 20
"""Fewer steps tell no pace: a job's first ones compile, tune and fill caches."""
RENEW = 25
"""Steps between two computations of the median, which takes some µs."""


class Slow(NamedTuple):
    """What was slow."""

    cause: str
    step_us: float
    """Median of the slow steps: what a window of them is compared with."""


class SlowSteps:
    """Notices ``steps`` in a row that take ``factor`` times the running median of the job's steps.

    It reads the host's clock twice a step, which costs about twice what an idle profiler's step does. On a CUDA device
    the host only enqueues, so its times are those of the work where the loop waits for the device in each step
    (``loss.item()``), and where the queue is full; else they tell of the host: input, Python, launches.

    Args:
        factor: More than 1.
        steps: In a row, at least 1. One alone may be anything.
        every_s: Seconds between two notices at least.
        clock: Seconds.

    Raises:
        ValueError: for numbers that cannot be.
    """

    def __init__(
        self, factor: float, *, steps: int = 3, every_s: float = 600.0, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        if not factor > 1 or steps < 1 or every_s < 0:
            raise ValueError(
                f"factor must be more than 1 (is {factor:g}), steps 1 (is {steps}), every_s 0 ({every_s:g})"
            )
        self._factor, self._in_a_row, self._every_s, self._clock = factor, steps, every_s, clock
        self._usual: deque[float] = deque(maxlen=KEPT)
        self._slow: list[float] = []
        self._limit = self._median = float("inf")
        self._until_renewal = LEAST
        self._not_before = float("-inf")
        self._began: float | None = None

    def begin(self) -> None:
        self._began = self._clock()

    def end(self) -> Slow | None:
        """The step is over; what to say of it and those before it, if they are slow."""
        if self._began is None:
            return None
        now = self._clock()
        took, self._began = now - self._began, None
        if took <= self._limit:
            if self._slow:
                self._slow.clear()
            self._usual.append(took)
            self._until_renewal -= 1
            if not self._until_renewal:
                self._renew()
            return None
        self._slow.append(took)
        if len(self._slow) < self._in_a_row:
            return None
        slow, median = self._slow, self._median
        # If they stay so they are the new normal; where they were an episode the median is soon back.
        self._slow, self._limit, self._until_renewal = [], float("inf"), LEAST
        self._usual.clear()
        if now < self._not_before:
            return None
        self._not_before = now + self._every_s
        middle = statistics.median(slow)
        return Slow(
            f"{len(slow)} steps in a row took {middle / median:.1f} times the median of {median * 1e3:.3g} ms",
            middle * 1e6,
        )

    def _renew(self) -> None:
        self._median = statistics.median(self._usual)
        self._limit = self._factor * self._median
        self._until_renewal = RENEW
