"""What only the trace file tells: memory over time, and the findings of other ranks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from harness.board.tab.places import Places
from harness.logdir.findings import Unreadable
from harness.logdir.window import Window
from harness.report.words import IDLE
from harness.trace import Trace, TraceError, WindowReport, analyze, read
from harness.trace.figures import busiest
from harness.trace.measure.memory import memory_over_time
from harness.trace.schema import MemoryCurve

MAX_TRACE_BYTES = 512 * 2**20
"""Of a trace file that is read for the page; a larger one can still be downloaded."""
MAX_JSON_BYTES = 2**30
"""Of what it decompresses to: it is read in the server's own process."""
TRACES_KEPT = 2
ANSWERS_KEPT = 256

Answer = TypeVar("Answer")


class Rank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's trace of a window, by its busiest device."""

    file: str
    rank: int
    label: str
    confidence: float
    step_us: float | None
    """Profiled: the median of its steps."""
    host_us: float | None
    """The median of its steps' spans on the CPU."""
    busy: float | None
    compute_us: float | None
    exposed_communication_us: float | None
    exposed_memcpy_us: float | None
    idle_us: float | None
    idle_most: str | None
    """The largest reason of its idleness."""
    peak_bytes: int | None


class Traces:
    """Reads trace files one at a time; the last few stay in memory, and so do answers."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._lock = threading.Lock()
        self._traces: OrderedDict[Path, Trace] = OrderedDict()
        self._answers: OrderedDict[tuple[str, Path], object] = OrderedDict()

    def memory(self, window: Window, file: str) -> list[MemoryCurve]:
        """Of each allocator; empty where the window was recorded without ``profile_memory``."""
        path = self._path(window, file)
        return self._once("memory", path, lambda: memory_over_time(self._read(path)))

    def rank(self, window: Window, file: str) -> Rank:
        """One rank's figures: those that were published, or else analyzed now."""
        path = self._path(window, file)

        def figures() -> Rank:
            try:
                report = window.told(WindowReport)
            except Unreadable:
                report = None
            return _rank(path.name, report if report and report.source == path.name else analyze(self._read(path)))

        return self._once("rank", path, figures)

    def _path(self, window: Window, file: str) -> Path:
        path = self._places.trace(window, file)
        if path.stat().st_size > MAX_TRACE_BYTES:
            raise Unreadable(f"{path.name} is too large to be read here; download it, or use harness report")
        return path

    def _read(self, path: Path) -> Trace:
        """Only with the lock: several large traces at once would take the memory of the machine."""
        trace = self._traces.pop(path, None)
        if trace is None:
            try:
                trace = read(path, max_json_bytes=MAX_JSON_BYTES)
            except TraceError as error:
                raise Unreadable(str(error).replace(str(path), path.name)) from error
        self._traces[path] = trace
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)
        return trace

    def _once(self, question: str, path: Path, answer: Callable[[], Answer]) -> Answer:
        with self._lock:
            key = (question, path)
            if key not in self._answers:
                self._answers[key] = answer()
                while len(self._answers) > ANSWERS_KEPT:
                    self._answers.popitem(last=False)
            return self._answers[key]  # type: ignore[return-value]


def _rank(file: str, report: WindowReport) -> Rank:
    device = busiest(report)
    idle = max(report.idle, key=lambda row: row.time_us, default=None)
    return Rank(
        file=file,
        rank=report.rank,
        label=report.verdict.label,
        confidence=report.verdict.confidence,
        step_us=report.step_time.profiled_median_us,
        host_us=float(np.median([step.host_us for step in report.steps])) if report.steps else None,
        busy=device.busy_fraction if device else None,
        compute_us=device.compute_us if device else None,
        exposed_communication_us=device.exposed_communication_us if device else None,
        exposed_memcpy_us=device.exposed_memcpy_us if device else None,
        idle_us=device.idle_us if device else None,
        idle_most=IDLE[idle.reason] if idle else None,
        peak_bytes=report.memory.peak_allocated_bytes if report.memory else None,
    )
