"""What lies below TensorBoard's logdirs, by the names that a browser sends; nothing outside is ever named.

Every name is looked up among those that were found on disk; none is joined to a path.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from harness.errors import UsageError
from harness.logdir.scan import Logdir, Run, Scanner, pass_over
from harness.logdir.window import Window, Windows

KNOWN_FOR_S = 1.0
"""How long a look at the disk counts: a page asks for several things at once."""


class Missing(UsageError):
    """There is no such run, window or file; the message says which."""

    status = 404


class Places:
    """Finds runs and windows, and remembers for a moment what it found.

    Args:
        logdirs: Says which they are now: a logdir may come later.
    """

    def __init__(self, logdirs: Callable[[], list[Logdir]]) -> None:
        self.logdirs = logdirs
        self._scanner = Scanner(pass_over, bounded=True)
        self._lock = threading.Lock()
        self._runs: dict[str, Run] = {}
        self._looked = -KNOWN_FOR_S

    def runs(self) -> list[Run]:
        """Every run below the logdirs."""
        with self._lock:
            if time.monotonic() - self._looked >= KNOWN_FOR_S:
                self._runs = {run.name: run for run in self._scanner.look(self.logdirs()).runs}
                self._looked = time.monotonic()
            return list(self._runs.values())

    def run(self, name: str) -> Run:
        """The run of this name.

        Raises:
            Missing: where there is none.
        """
        self.runs()
        if name not in self._runs:
            raise Missing(f"there is no run {name[:200]!r} below the logdir")
        return self._runs[name]

    def windows(self, run: Run) -> Windows:
        """A run's windows, in the order of their steps."""
        return self._scanner.windows(run)

    def window(self, run: Run, name: str) -> Window:
        """The window of this name; ``newest`` is the last one.

        Raises:
            Missing: where there is none.
        """
        found = self.windows(run)
        if found and name == "newest":
            return found[-1]
        for window in found:
            if window.name == name:
                return window
        raise Missing(f"there is no window {name[:200]!r} in the run {run.name}")

    def trace(self, window: Window, name: str) -> Path:
        """A window's trace file; an empty name is the first one's.

        Raises:
            Missing: where there is none.
        """
        traces = window.traces()
        if not traces:
            raise Missing(
                f"{window.name} of {window.run} holds no trace any more: profiler.keep has removed it; "
                "its findings stay"
            )
        if name and name not in traces:
            raise Missing(f"there is no trace {name[:200]!r} in {window.name} of {window.run}")
        return traces[name] if name else next(iter(traces.values()))
