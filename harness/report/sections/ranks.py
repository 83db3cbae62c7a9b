"""The ranks of a window side by side, and what they send each other."""

from __future__ import annotations

from collections.abc import Iterator

from harness.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Section,
    Styled,
    Table,
    more,
    name,
    text,
    without,
)
from harness.report.styles import verdict_style
from harness.report.units import duration, rate, share, size
from harness.trace.schema import Rank, Ranks, WindowReport


def ranks_sections(report: WindowReport, rows: int) -> Iterator[Section]:
    """Nothing where one rank was read and it has no collective."""
    if report.ranks is None:
        return
    if len(report.ranks.ranks) > 1:
        yield _ranks(report.ranks, report.world_size, rows)
    if report.ranks.collectives:
        yield _collectives(report.ranks, rows)


def _ranks(found: Ranks, world_size: int, rows: int) -> Section:
    columns = [
        Column("rank"),
        text("host", drop=6),
        Column("step"),
        Column("device busy", drop=5),
        Column("compute"),
        Column("exposed comm.", drop=2),
        Column("waiting"),
        Column("others wait for it", drop=1),
        Column("peak memory", drop=4),
        text("verdict"),
        Column("clock", drop=7),
    ]
    late = found.straggler.rank if found.straggler is not None else None
    # Of many, those that the others wait for.
    chosen = sorted(found.ranks, key=lambda rank: -(rank.late_us or 0.0))[:rows]
    table = Table(columns, [_row(rank, late=rank.rank == late) for rank in found.ranks if rank in chosen])
    absent = {
        "host": all(rank.host is None for rank in found.ranks),
        "device busy": all(rank.busy_fraction is None for rank in found.ranks),
        "peak memory": all(rank.peak_memory_bytes is None for rank in found.ranks),
    }
    blocks: list[Block] = [without(table, *(title for title, gone in absent.items() if gone))]
    blocks.append(
        Paragraph("Times are of one step; waiting is exposed, until the last rank has joined a collective.", "dim")
    )
    blocks += more(len(chosen), len(found.ranks))
    blocks.append(Facts(list(_balance(found, world_size))))
    return Section("Ranks", blocks)


def _row(rank: Rank, *, late: bool) -> list[Cell]:
    number = f"{rank.rank}"
    return [
        Styled(f"▸ {number}", "bold red") if late else number,
        rank.host or "",
        _duration(rank.step_us),
        "" if rank.busy_fraction is None else share(rank.busy_fraction),
        duration(rank.compute_us),
        duration(rank.exposed_communication_us),
        _duration(rank.waiting_us),
        _duration(rank.late_us),
        "" if rank.peak_memory_bytes is None else size(rank.peak_memory_bytes),
        Styled(rank.verdict, verdict_style(rank.verdict)),
        "?" if rank.clock_offset_us is None else duration(rank.clock_offset_us),
    ]


def _duration(us: float | None) -> str:
    return "" if us is None else duration(us)


def _balance(found: Ranks, world_size: int) -> Iterator[tuple[str, str]]:
    if len(found.ranks) < world_size:
        yield "Ranks", f"{len(found.ranks)} of {world_size} recorded; they may also wait for those that did not"
    if found.compute_imbalance is not None:
        most = max(found.ranks, key=lambda rank: rank.compute_us)
        yield "Compute", f"the most, on rank {most.rank}, is {share(found.compute_imbalance)} over the mean"
    if found.memory_imbalance is not None:
        most = max(found.ranks, key=lambda rank: rank.peak_memory_bytes or 0)
        yield "Memory", f"the highest peak, on rank {most.rank}, is {share(found.memory_imbalance)} over the mean"
    if found.clock_error_us is not None:
        yield "Clocks", f"aligned on the ends of collectives, which then lie {duration(found.clock_error_us)} apart"
    else:
        yield "Clocks", "not aligned: no two ranks have a collective in common, so waiting is not told from transfer"
    if found.unmatched_collectives:
        yield "Unmatched", f"{found.unmatched_collectives:,} collectives have no counterpart on another rank"


def _collectives(found: Ranks, rows: int) -> Section:
    columns = [
        name("collective"),
        Column("size"),
        Column("ranks", drop=4),
        Column("count", drop=3),
        Column("time"),
        Column("waiting", drop=1),
        Column("hidden"),
        Column("algorithm bandwidth", drop=2),
        Column("bus bandwidth"),
    ]
    shown = found.collectives[:rows]
    table = Table(
        columns,
        [
            [
                row.kind,
                "" if row.bytes is None else size(row.bytes),
                "" if row.group_size is None else str(row.group_size),
                f"{row.count:,}",
                duration(row.time_us),
                _duration(row.waiting_us),
                share(row.hidden_fraction),
                "" if row.algorithm_bandwidth is None else rate(row.algorithm_bandwidth, "B/s"),
                "" if row.bus_bandwidth is None else rate(row.bus_bandwidth, "B/s"),
            ]
            for row in shown
        ],
    )
    several = any(row.waiting_us is not None for row in shown)
    of = "after the last rank has joined" if several else "as long as the call took, waiting for other ranks included"
    blocks: list[Block] = [
        table if several else without(table, "waiting"),
        *more(len(shown), len(found.collectives)),
        Paragraph(f"Bandwidth {of}; algorithm and bus as nccl-tests defines them.", "dim"),
    ]
    return Section("Communication", blocks)
