"""What of a path is compared with another: its windows, and what its run's manifest says of its speed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError
from harness.logdir.find import find
from harness.logdir.layout import MANIFEST
from harness.logdir.manifest import read_manifest
from harness.logdir.rows import throughput
from harness.logdir.tags import STEP_MS
from harness.logdir.window import Window
from harness.trace.schema import WindowReport

MOST_WINDOWS = 20
"""Of a run, the newest so many."""


class Windows(NamedTuple):
    """What is compared."""

    path: Path
    reports: list[WindowReport]
    """Whole windows, oldest first."""
    left_out: bool = False
    """Whether a run's first window, which carries the job's warm-up, is not among them."""


def windows_of(path: Path) -> Windows:
    """All whole windows of a run, at most the newest; or the one that ``path`` is.

    Raises:
        UsageError: where there are none, or several runs.
    """
    found = find(path)
    if isinstance(found, list):
        listed = ", ".join(str(run.path) for run in found[:4]) + (", ..." if len(found) > 4 else "")
        raise UsageError(f"{path} holds {len(found)} runs; give one of them: {listed}")
    if isinstance(found, Window):
        return Windows(found.path, [found.report()])
    windows = [window for window in found.windows if not window.is_empty]
    chosen = windows[1:] if len(windows) > 1 else windows
    reports = [window.report() for window in chosen[-MOST_WINDOWS:]]
    whole = [report for report in reports if report.window.steps and not report.window.partial]
    return Windows(found.path, whole or reports, len(windows) > 1)


class Work(NamedTuple):
    """What a run's manifest tells of its speed."""

    torch_version: str | None
    per_second: float | None
    unit: str | None
    per_step: float | None


def work_of(path: Path) -> Work | None:
    """Of the run that the path is, or is part of; None for a trace without a run."""
    run = next((folder for folder in (path, *path.absolute().parents[:3]) if (folder / MANIFEST).exists()), None)
    if run is None:
        return None
    try:
        manifest = read_manifest(run)
    except UsageError:
        return None
    per_second, unit = throughput(manifest.metrics)
    step_ms = manifest.metrics.get(STEP_MS)
    # Both are of the same steps, so what they say of one is exact but for rounding.
    per_step = round(per_second * step_ms / 1e3, 3) if per_second and step_ms else None
    return Work(manifest.versions.get("torch"), per_second, unit, per_step)


def per_step(work: Work | None, path: Path) -> float:
    """What a step trains on.

    Raises:
        UsageError: where that is not known.
    """
    if work is None or not work.per_step:
        raise UsageError(f"--per-sample: {path} is no run whose manifest tells its throughput; leave it out")
    return work.per_step
