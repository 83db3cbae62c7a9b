"""How long a recording may last and how large it may grow, looked at while it runs.

A loop that forgets to say that a step is over would record for ever: 60 MiB a second, and at the end a minute's stall.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.quantities import MIB

LOOK_S = 0.25
LEAST_S = 120.0
"""No recording is ended for its length before: one slow step is no fault."""
LONGER = 20.0
"""Times the time that the window's steps should take by the pace of the job."""
UNKNOWN_S = 600.0
"""Where no step has told the pace yet; a first step may compile for minutes."""
FASTEST_MIB_S = 400.0
"""Memory that comes faster is the job's own, as an optimizer's state: recording takes up to about 150."""
_MEMORY = Path("/proc/self/statm")


class Watchdog:
    """Looks at a recording from a thread of its own, and says why it has to end.

    Args:
        end: Called with the reason, once.
        expected_s: What the window's steps should take, as far as that is known by now.
        memory_bytes: By how much the process may grow; None: as it likes.
    """

    def __init__(
        self, end: Callable[[str], object], *, expected_s: Callable[[], float | None], memory_bytes: int | None
    ) -> None:
        self._end = end
        self._expected_s = expected_s
        self._memory_bytes = memory_bytes
        self._over = threading.Event()

    def start(self) -> None:
        """Look from now on, as at a recording that begins now."""
        self.stop()
        self._over = threading.Event()
        threading.Thread(target=self._look, args=(self._over,), name="harness-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def _look(self, over: threading.Event) -> None:
        started, growth = time.monotonic(), Growth()
        while not over.wait(LOOK_S):
            lasted_s = time.monotonic() - started
            reason = self._too_long(lasted_s) or self._too_large(growth.by_recording(_resident_bytes(), lasted_s))
            if reason is not None and not over.is_set():
                self._end(reason)
                return

    def _too_long(self, lasted_s: float) -> str | None:
        expected_s = self._expected_s()
        limit_s = UNKNOWN_S if expected_s is None else max(LEAST_S, LONGER * expected_s)
        if lasted_s <= limit_s:
            return None
        should = "" if expected_s is None else f", and its steps should take {expected_s:.3g} s"
        return f"it has lasted for {lasted_s:.0f} s{should}; is step() called once a step?"

    def _too_large(self, grown: float) -> str | None:
        if self._memory_bytes is None or grown <= self._memory_bytes:
            return None
        return (
            f"its events have taken {grown / MIB:,.0f} MiB of memory, and half of profiler.max_trace_mib is what they "
            "may; is step() called once a step? Else record less: fewer steps, no with_stack, no profile_memory"
        )


class Growth:
    """By how much a process has grown for what is recorded."""

    def __init__(self) -> None:
        self._bytes = _resident_bytes()
        self._at_s = 0.0
        self._grown = 0.0

    def by_recording(self, resident: int, at_s: float) -> float:
        """Bytes since the beginning, given the process's size now, ``at_s`` seconds later."""
        more, seconds = resident - self._bytes, at_s - self._at_s
        self._bytes, self._at_s = resident, at_s
        if more <= FASTEST_MIB_S * MIB * seconds:
            self._grown = max(0.0, self._grown + more)
        return self._grown


def _resident_bytes() -> int:
    """The process's resident memory; 0 where the system does not tell it so."""
    try:
        return int(_MEMORY.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
