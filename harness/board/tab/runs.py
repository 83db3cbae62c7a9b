"""The list of runs, newest first, each with its newest window."""

from __future__ import annotations

import msgspec

from harness.board.tab.places import Places
from harness.board.tab.summaries import Summaries, Summary
from harness.files import is_inside
from harness.logdir.layout import MANIFEST
from harness.logdir.manifest import Manifest, NoRun, read_manifest
from harness.logdir.scan import Run


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list. What is not known, as for a loop without ``harness train``, is None."""

    id: str
    """As :mod:`harness.logdir.scan` names it."""
    title: str
    """The same, but of a run that is the logdir itself what its manifest says."""
    status: str | None
    started: str | None
    step: int | None
    max_steps: int | None
    device: str | None
    world_size: int | None
    first_window: int | None
    """The step at which the first window begins, where there is none yet."""
    error: str | None
    windows: int
    newest: Summary | None


def rows(places: Places, summaries: Summaries) -> list[Row]:
    """Every run, the one that was started last first."""
    found = [_row(run, places, summaries) for run in places.runs()]
    return sorted(found, key=lambda row: (row.started or "", row.newest.recorded if row.newest else 0.0), reverse=True)


def _row(run: Run, places: Places, summaries: Summaries) -> Row:
    manifest, problem = _manifest(run)
    windows = places.windows(run)
    return Row(
        id=run.name,
        title=run.title(manifest),
        status=manifest.status if manifest is not None else None,
        started=manifest.started if manifest is not None else None,
        step=manifest.step if manifest is not None else None,
        max_steps=manifest.max_steps if manifest is not None else None,
        device=manifest.device if manifest is not None else None,
        world_size=manifest.world_size if manifest is not None else None,
        first_window=manifest.first_window if manifest is not None else None,
        error=manifest.error if manifest is not None else problem,
        windows=len(windows),
        newest=summaries.of(windows[-1]) if windows else None,
    )


def _manifest(run: Run) -> tuple[Manifest | None, str | None]:
    """The manifest; else why it cannot be read, or nothing for a run that has none. It hides no other run."""
    path = run.path / MANIFEST
    if path.is_symlink() and not is_inside(path, run.within):
        return None, f"{MANIFEST} is missing, or leads out of the logdir"
    try:
        return read_manifest(run.path), None
    except NoRun:
        return None, None
    except Exception as error:
        return None, f"{MANIFEST} cannot be read: {error.__cause__ or error}"
