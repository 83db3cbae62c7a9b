"""Two runs, windows or traces side by side: ``harness compare``.

::

    logdir.compared ──> trace.compare ──> sections ──> terminal | markdown | json
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import msgspec

from harness.logdir.compared import per_step, windows_of, work_of
from harness.report.sections.gate import Gate, gate, limit_of
from harness.trace.compare.comparison import compare

Format = Literal["table", "markdown", "json"]


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
    limit = None if fail_over is None else limit_of(fail_over)
    sets = [windows_of(path) for path in (before, after)]
    works = [work_of(side.path) for side in sets]
    samples = (1.0, 1.0)
    if per_sample:
        known = [per_step(work, path) for work, path in zip(works, (before, after), strict=True)]
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
        from harness.report.sections.comparison import comparison_sections
        from harness.report.shown import show

        show(list(comparison_sections(found, limit, rows)), as_markdown=format == "markdown")
    return gate(found, limit)
