"""What is left to read when a device has run out of memory."""

from __future__ import annotations

import logging
from pathlib import Path

from harness.files import atomic_write
from harness.report import markdown
from harness.report.sections.snapshot import snapshot_section
from harness.report.units import size
from harness.trace.snapshot import read_snapshot

log = logging.getLogger(__name__)

NAMED = 3
"""Allocations that the log names."""


def describe(path: Path, step: int) -> None:
    """Write the largest live allocations of a snapshot beside it, as Markdown, and name some in the log.

    Raises:
        OSError, SnapshotError: where the one cannot be written, or the other not be read.
    """
    snapshot = read_snapshot(path)
    with atomic_write(path.with_suffix(".md")) as file:
        file.write(markdown.render([snapshot_section(snapshot, f"Out of memory in step {step:,}")]).encode())
    named = "; ".join(f"{size(row.bytes)} by {row.line}" for row in snapshot.allocations[:NAMED])
    log.error(
        "step %d: out of memory with %s allocated: %s. All of it: %s",
        step,
        size(snapshot.allocated),
        named,
        path.with_suffix(".md"),
    )
