"""How the step of each window in a list differs from that of the one before it."""

from __future__ import annotations

from pathlib import Path

from harness.board.tab.places import Window
from harness.board.tab.summaries import Unreadable, decoded
from harness.report.document import Cell
from harness.report.sections.overview import Glance, step_trend


class Against:
    """Reads the steps of each window once: a window never changes."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], Glance | None]] = {}

    def before(self, window: Window, before: Window | None) -> Cell:
        """The change as the report's list of windows shows it; nothing where one of the two tells no step."""
        now, then = self._glance(window), self._glance(before) if before is not None else None
        return step_trend(then, now) if now is not None else ""

    def _glance(self, window: Window) -> Glance | None:
        try:
            status = window.findings.stat()
        except OSError:
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(window.findings)
        if known is None or known[0] != stamp:
            try:
                known = stamp, decoded(window, Glance)
            except Unreadable:  # the list says of it why
                known = stamp, None
            self._known[window.findings] = known
        return known[1]
