"""What windows find, over a run: curves, text, and a word when something changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from harness.board.events.points import HEADLINE, Points
from harness.board.events.text import changes_text, findings_text
from harness.logdir.findings import findings_in
from harness.logdir.scan import windows
from harness.logdir.tags import CHANGES_TEXT, FINDINGS_TEXT
from harness.report.words import since
from harness.trace.compare.changes import Change, Changes
from harness.trace.schema import WindowReport

log = logging.getLogger(__name__)


class Board(Protocol):
    """Where points and text go: :class:`harness.board.events.logger.Logger`."""

    def scalars(self, values: dict[str, float], step: int) -> None: ...

    def text(self, tag: str, markdown: str, step: int = 0) -> None: ...


class Trends:
    """Writes each window's findings to TensorBoard at the window's own step.

    All state follows from the windows' reports: a resumed run reads those that lie in its directory and goes on
    with the same curves, the same first window and the same references.

    Args:
        board: Takes scalars and text.
        run: The run directory.
        resumed_from: The step that a resumed run goes on from. TensorBoard no longer shows what was written beyond
            it, so the windows that lie there are shown again. None for a new run.
        composition: What the job's memory is made of right now, in bytes, by name.
    """

    def __init__(
        self,
        board: Board,
        run: Path,
        *,
        resumed_from: int | None = None,
        composition: Callable[[], Sequence[tuple[str, int]]] = lambda: (),
    ) -> None:
        self._board = board
        self._composition = composition
        self._points, self._changes = Points(), Changes()
        self._all_changes: list[Change] = []
        self.headline: dict[str, float] = {}
        """The newest window's :data:`harness.board.events.points.HEADLINE`."""
        self._first: WindowReport | None = None
        self._before: WindowReport | None = None
        for path in windows(run) if resumed_from is not None else []:
            report = findings_in(path, WindowReport)
            if report is not None and report.window.first_step is not None:
                step = report.window.first_step
                self._take(report, step, show=resumed_from is not None and step > resumed_from)

    def window_recorded(self, window: Any) -> None:
        """Take a window that stands in the logdir; one without a ``report`` says nothing.

        Nothing is raised: what cannot be shown is logged.
        """
        report: WindowReport | None = getattr(window, "report", None)
        if report is None:
            return
        try:
            for change in self._take(report, window.first_step, composition=self._composition()):
                log.warning("%s", since(change))
        except Exception:
            log.warning("step %d: the window's findings could not be shown", window.first_step, exc_info=True)

    def _take(
        self, report: WindowReport, step: int, *, show: bool = True, composition: Sequence[tuple[str, int]] = ()
    ) -> list[Change]:
        before, first = self._before, self._first
        self._before, self._first = report, first or report
        points = self._points.take(report, step)
        self.headline = {tag: points[tag] for tag in HEADLINE if tag in points}
        changes = self._changes.take(report, step)
        self._all_changes += changes
        if show:
            self._board.scalars(points, step)
            text = findings_text(report, step, before=before, first=first, changes=changes, composition=composition)
            self._board.text(FINDINGS_TEXT, text, step)
            if changes:
                self._board.text(CHANGES_TEXT, changes_text(self._all_changes), step)
        return changes
