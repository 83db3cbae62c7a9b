"""A memory snapshot's live allocations as a document."""

from __future__ import annotations

from harness.report.document import Block, Column, Facts, Section, Table, more, name
from harness.report.units import share, size
from harness.trace.snapshot import Snapshot


def snapshot_section(snapshot: Snapshot, title: str, *, rows: int = 15) -> Section:
    """Totals, and the lines whose allocations are alive, largest first."""
    free = snapshot.reserved - snapshot.allocated
    facts = Facts(
        [
            ("Allocated", size(snapshot.allocated)),
            ("Reserved", f"{size(snapshot.reserved)}, {size(free)} of it free"),
            ("Largest free block", size(snapshot.largest_free)),
        ]
    )
    shown = snapshot.allocations[:rows]
    table = Table(
        [Column("size"), Column("of what is allocated"), Column("blocks"), name("allocated by"), name("in")],
        [
            [
                size(row.bytes),
                share(row.bytes / snapshot.allocated if snapshot.allocated else 0.0),
                f"{row.blocks:,}",
                row.line,
                row.operator,
            ]
            for row in shown
        ],
    )
    blocks: list[Block] = [facts, table, *more(len(shown), len(snapshot.allocations))]
    return Section(title, blocks)
