"""How long the steps around a window take, measured without making the device wait."""

from __future__ import annotations

import statistics
import time
from functools import partial

import torch

_timed_event = partial(torch.cuda.Event, enable_timing=True)


class StepClock:
    """Durations of steps, between :meth:`begin` and :meth:`end`.

    On a CUDA device the edges are events in the stream, so that a host that runs ahead of the device
    neither shortens the steps nor is held up. Reading them waits for the last one.
    """

    def __init__(self, *, cuda: bool) -> None:
        self._cuda = cuda
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._seconds: list[float] = []
        self._begin: float | torch.cuda.Event | None = None

    def begin(self) -> None:
        self._begin = self._mark()

    def end(self) -> None:
        begin, end = self._begin, self._mark()
        self._begin = None
        if isinstance(begin, torch.cuda.Event) and isinstance(end, torch.cuda.Event):
            self._events.append((begin, end))
        elif isinstance(begin, float) and isinstance(end, float):
            self._seconds.append(end - begin)

    def _mark(self) -> float | torch.cuda.Event:
        if not self._cuda:
            return time.perf_counter()
        event: torch.cuda.Event = _timed_event()
        event.record()
        return event

    @property
    def seconds(self) -> list[float]:
        """Those that are known without waiting for the device."""
        return self._seconds

    def durations_us(self) -> list[float]:
        """Duration of every measured step, in microseconds, in order."""
        if self._events:
            self._events[-1][1].synchronize()
            self._seconds += [begin.elapsed_time(end) / 1e3 for begin, end in self._events]
            self._events.clear()
        return [second * 1e6 for second in self._seconds]

    def median_us(self) -> float | None:
        """The median of :meth:`durations_us`, None where no step was measured."""
        durations = self.durations_us()
        return statistics.median(durations) if durations else None
