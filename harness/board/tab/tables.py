"""Tables that the page sorts and searches: typed columns, and rows as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from harness.report.units import shapes
from harness.report.words import IDLE
from harness.timeline import links
from harness.trace.schema import Kernel, Operator, WindowReport

MOST_ROWS = 3000
"""Of one table, the largest by its first sorting; a window has hundreds."""

# A spot is what to add to the timeline's address to see it there.
Kind = Literal["name", "text", "us", "bytes", "count", "share", "flops", "spot"]
Item = TypeVar("Item")


class Column(msgspec.Struct, frozen=True):
    title: str
    kind: Kind
    help: str = ""


class Table(msgspec.Struct, frozen=True):
    columns: list[Column]
    rows: list[list[Any]]
    sorted_by: int
    """Index of the column that the rows come sorted by, largest first."""
    left_out: int = 0
    """Rows beyond :data:`MOST_ROWS`."""


Field = tuple[Column, Callable[[Item], Any]]


def _table(rows: Sequence[Item], fields: Sequence[Field[Item] | None], by: str) -> Table:
    shown = [field for field in fields if field is not None]
    sorted_by = next(place for place, (column, _) in enumerate(shown) if column.title == by)
    key = shown[sorted_by][1]
    chosen = sorted(rows, key=lambda row: -(key(row) or 0))[:MOST_ROWS]
    return Table(
        [column for column, _ in shown],
        [[value(row) for _, value in shown] for row in chosen],
        sorted_by,
        len(rows) - len(chosen),
    )


def operators(report: WindowReport, *, by_shape: bool) -> Table:
    """Every operator with torch's columns, and its share of all operators' self time."""
    rows = [row for row in (report.operators_by_shape if by_shape else report.operators) if row.device_type == "cpu"]
    device = bool(report.totals.device_time_us)
    whole = report.totals.device_time_us if device else report.totals.cpu_time_us
    flops = any(row.flops for row in rows)

    def share(row: Operator) -> float:
        # The device time of a span counts again in the operators that it holds.
        own = 0.0 if row.is_annotation and device else row.self_device_time_us if device else row.self_cpu_time_us
        return own / whole if whole else 0.0

    return _table(
        rows,
        [
            (Column("operator", "name"), lambda row: row.name),
            (Column("input shapes", "text"), lambda row: shapes(row.input_shapes or [])) if by_shape else None,
            (Column("calls", "count"), lambda row: row.count),
            (Column("self device", "us", "kernels, copies and memsets that it launched itself"), _own_device)
            if device
            else None,
            (Column("device total", "us", "and those of the operators that it called"), lambda row: row.device_time_us)
            if device
            else None,
            (Column("self CPU", "us"), lambda row: row.self_cpu_time_us),
            (Column("CPU total", "us"), lambda row: row.cpu_time_us),
            (
                Column("share", "share", f"self time, of all {'device' if device else 'CPU'} time in the window"),
                share,
            ),
            (Column("FLOP", "flops"), lambda row: row.flops) if flops else None,
            (Column("", "spot", "show its longest call in the timeline"), links.operator),
        ],
        by="self device" if device else "self CPU",
    )


def _own_device(row: Operator) -> float:
    return row.self_device_time_us


def memory(report: WindowReport, *, by_shape: bool) -> Table:
    """Every operator that holds or frees memory, on the devices, or on the CPU where there are none."""
    pools = report.memory.pools if report.memory is not None else []
    device = any(pool.device_type == "device" for pool in pools)

    def total(row: Operator) -> int:
        return row.device_memory_bytes if device else row.cpu_memory_bytes

    def own(row: Operator) -> int:
        return row.self_device_memory_bytes if device else row.self_cpu_memory_bytes

    rows = [
        row
        for row in (report.operators_by_shape if by_shape else report.operators)
        if row.device_type == "cpu" and (total(row) or own(row))
    ]
    return _table(
        rows,
        [
            (Column("operator", "name"), lambda row: row.name),
            (Column("input shapes", "text"), lambda row: shapes(row.input_shapes or [])) if by_shape else None,
            (Column("calls", "count"), lambda row: row.count),
            (Column("self", "bytes", "allocated less freed by itself"), own),
            (Column("total", "bytes", "and by the operators that it called"), total),
            (
                Column("peak meanwhile", "bytes", "most bytes allocated while one of its calls ran"),
                lambda row: row.peak_memory_bytes,
            ),
        ],
        by="self",
    )


def kernels(report: WindowReport) -> Table:
    """Every kernel, copy and memset by name."""
    whole = report.totals.device_time_us

    def share(row: Kernel) -> float:
        return row.total_us / whole if whole else 0.0

    return _table(
        report.kernels,
        [
            (Column("kernel", "name"), lambda row: row.name),
            (Column("kind", "text"), lambda row: row.kind),
            (Column("calls", "count"), lambda row: row.count),
            (Column("total", "us"), lambda row: row.total_us),
            (Column("mean", "us"), lambda row: row.mean_us),
            (Column("longest", "us"), lambda row: row.max_us),
            (Column("share", "share", "of all device time in the window"), share),
            (Column("launched by", "name"), lambda row: row.operator),
            (Column("", "spot", "show its longest call in the timeline"), links.kernel),
        ],
        by="total",
    )


def steps(report: WindowReport) -> Table:
    """Every step of the window."""
    device = bool(report.device)
    return _table(
        report.steps,
        [
            (Column("step", "text"), lambda row: str(row.number)),
            (Column("duration", "us", "from the end of the step before to its own"), lambda row: row.duration_us),
            (Column("host", "us", "its span on the CPU: the time to enqueue"), lambda row: row.host_us),
            (Column("device busy", "us", "what it launched, on its busiest device"), lambda row: row.device_busy_us)
            if device
            else None,
            (Column("", "spot", "show the step in the timeline"), links.step),
        ],
        by="duration",
    )


def gaps(report: WindowReport) -> Table:
    """The longest times in which a device did nothing."""
    several = len(report.device) > 1
    return _table(
        report.gaps,
        [
            (Column("gap", "us"), lambda row: row.duration_us),
            (Column("device", "text"), lambda row: f"GPU {row.device}") if several else None,
            (Column("at", "us", "from the window's first event"), lambda row: row.start_us),
            (Column("step", "text"), lambda row: "" if row.step is None else str(row.step)),
            (Column("reason", "text"), lambda row: IDLE[row.reason]),
            (Column("the host was in", "name"), lambda row: row.host),
            (Column("ended by", "name"), lambda row: row.before),
            (
                Column("", "spot", "show the gap in the timeline"),
                links.gap,
            ),
        ],
        by="gap",
    )
