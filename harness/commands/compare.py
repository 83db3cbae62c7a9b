"""Two runs, windows or traces side by side: ``harness compare``.

::

    report.find ──> trace.compare ──> sections ──> terminal | markdown | json
"""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from harness import console
from harness.errors import UsageError
from harness.logdir.find import Run, Window, find
from harness.logdir.rows import throughput
from harness.logdir.run import MANIFEST, read_manifest
from harness.logdir.tags import STEP_MS
from harness.trace.compare.comparison import Comparison, compare, culprits, regressions, undecided
from harness.trace.schema import WindowReport

Format = Literal["table", "markdown", "json"]

MOST_WINDOWS = 20
"""Of a run, the newest so many."""
_LIMIT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


class Gate(NamedTuple):
    """What ``fail_over`` has come to."""

    kept: bool
    lines: list[str]
    """What has grown by more than the limit, and why; and what may have, for all that is known."""


def run(
    before: Path,
    after: Path,
    *,
    fail_over: str | None = None,
    per_sample: bool = False,
    rows: int = 15,
    format: Format = "table",
) -> Gate:
    """Print what differs between two runs, windows or traces.

    Args:
        before: A trace file, a window, or a run, of which all whole windows are taken, at most the newest 20.
        after: Another one.
        fail_over: The change of step time or peak memory from which on it is too much: ``5%`` or ``0.05``.
        per_sample: Divide times by what a step trains on, which runs know.
        rows: Of every group of figures.
        format: ``json`` is :class:`harness.trace.compare.comparison.Comparison`.

    Returns:
        Whether the step and peak memory have grown by no more than ``fail_over``, and what to say of it.

    Raises:
        UsageError: where one of them cannot be read, or ``fail_over`` is no limit.
    """
    limit = None if fail_over is None else _limit(fail_over)
    sets = [_windows(path) for path in (before, after)]
    works = [_work(side.path) for side in sets]
    samples = (1.0, 1.0)
    if per_sample:
        known = [_per_step(work, path) for work, path in zip(works, (before, after), strict=True)]
        samples = known[0], known[1]
    found = compare(sets[0].reports, sets[1].reports, names=(str(before), str(after)), samples=samples)
    sides = [
        msgspec.structs.replace(
            side,
            torch_version=side.torch_version or work.torch_version,
            per_second=work.per_second,
            unit=work.unit,
            per_step=work.per_step,
        )
        if work is not None
        else side
        for side, work in zip((found.before, found.after), works, strict=True)
    ]
    told = [
        f"{name} has a first window besides, which carries the job's warm-up and is left out"
        for name, side in zip(("before", "after"), sets, strict=True)
        if side.left_out and len(side.reports) == 1
    ]
    warnings = [*found.warnings, *told]
    found = msgspec.structs.replace(found, before=sides[0], after=sides[1], per_sample=per_sample, warnings=warnings)
    if format == "json":
        sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    else:
        _show(found, limit, rows, format)
    return Gate(True, []) if limit is None else _gate(found, limit)


def _show(found: Comparison, limit: float | None, rows: int, format: Format) -> None:
    from harness.report.sections.comparison import comparison_sections

    document = comparison_sections(found, limit, rows)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if format == "markdown":
        from harness.report import markdown

        sys.stdout.write(markdown.render(document))
    else:
        from harness.report import terminal

        terminal.show(document, console.out)


def _gate(found: Comparison, limit: float) -> Gate:
    from harness.report.words import doubt, sentence

    grown = regressions(found, limit)
    named = [f"  {sentence(row)}" for row in culprits(found)] if any(row.group == "step" for row in grown) else []
    over = [f"{sentence(row)}, over the limit of {100 * limit:g} %" for row in grown]
    return Gate(not grown, [*over, *named, *(doubt(row, limit) for row in undecided(found, limit))])


def _limit(text: str) -> float:
    match = _LIMIT.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not value:
        raise UsageError(f"--fail-over {text}: must be a share above zero, as 5% or 0.05")
    return value


class _Side(NamedTuple):
    """What is compared."""

    path: Path
    reports: list[WindowReport]
    """Whole windows, oldest first."""
    left_out: bool = False
    """Whether a run's first window, which carries the job's warm-up, is not among them."""


def _windows(path: Path) -> _Side:
    found = find(path)
    if isinstance(found, list):
        listed = ", ".join(str(run.path) for run in found[:4]) + (", ..." if len(found) > 4 else "")
        raise UsageError(f"{path} holds {len(found)} runs; give one of them: {listed}")
    if isinstance(found, Window):
        return _Side(found.path, [found.report()])
    assert isinstance(found, Run)
    chosen = found.windows[1:] if len(found.windows) > 1 else found.windows
    reports = [window.report() for window in chosen[-MOST_WINDOWS:]]
    whole = [report for report in reports if report.window.steps and not report.window.partial]
    return _Side(found.path, whole or reports, len(found.windows) > 1)


class _Work(NamedTuple):
    """What a run's manifest tells of its speed."""

    torch_version: str | None
    per_second: float | None
    unit: str | None
    per_step: float | None


def _work(path: Path) -> _Work | None:
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
    return _Work(manifest.versions.get("torch"), per_second, unit, per_step)


def _per_step(work: _Work | None, path: Path) -> float:
    if work is None or not work.per_step:
        raise UsageError(f"--per-sample: {path} is no run whose manifest tells its throughput; leave it out")
    return work.per_step
