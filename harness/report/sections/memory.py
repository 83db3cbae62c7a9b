"""Memory by operator, the window's peaks, and what they point to."""

from __future__ import annotations

from typing import NamedTuple

from harness.report.document import Block, Column, Facts, Paragraph, Section, Table, name, numbered
from harness.report.sections.operators import grouped, label
from harness.report.units import duration, size
from harness.trace.schema import MemoryPool, Operator, WindowReport

NOTABLE_GROWTH_BYTES = 2**20


def memory_section(report: WindowReport, *, by_shape: bool, rows: int) -> Section | None:
    """None where no allocator event was recorded."""
    if report.memory is None:
        return None
    blocks: list[Block] = [Facts([_peak(pool, report) for pool in _pools(report)])]
    blocks += [
        Paragraph(
            f"{_where(pool)} holds {size(_growth(pool))} more at the window's end than at its start. If that goes on "
            "window after window something keeps tensors: a loss summed without .detach(), a cache.",
            "yellow",
        )
        for pool in _pools(report)
        if _growth(pool) >= NOTABLE_GROWTH_BYTES
    ]
    chosen = _largest(report, by_shape)
    if chosen:
        blocks.append(_table(chosen[:rows]))
    if report.memory.advice:
        blocks.append(numbered(report.memory.advice))
    return Section("Memory by operator" + (" and shapes" if by_shape else ""), blocks)


def _pools(report: WindowReport) -> list[MemoryPool]:
    """Those of the devices, or the CPU's where there are none."""
    pools = report.memory.pools if report.memory is not None else []
    return [pool for pool in pools if pool.device_type == "device"] or pools


def _where(pool: MemoryPool) -> str:
    return "CPU" if pool.device_type == "cpu" else f"GPU {pool.index}"


def _growth(pool: MemoryPool) -> int:
    return pool.end_allocated_bytes - pool.start_allocated_bytes


def _peak(pool: MemoryPool, report: WindowReport) -> tuple[str, str]:
    device = next((d for d in report.devices if pool.device_type == "device" and d.index == pool.index), None)
    total = device.total_memory_bytes if device is not None else None
    held = ""
    if pool.peak_reserved_bytes:
        held = f", reserved {size(pool.peak_reserved_bytes)}" + (f" of {size(total)}" if total else "")
    during = f" in {pool.peak_operator}" if pool.peak_operator else ""
    return (
        f"Peak on {_where(pool)}",
        f"allocated {size(pool.peak_allocated_bytes)}{held}, reached {duration(pool.peak_us)} into the window{during}; "
        f"{size(pool.start_allocated_bytes)} at its start, {size(pool.end_allocated_bytes)} at its end",
    )


def _on_device(report: WindowReport) -> bool:
    return any(pool.device_type == "device" for pool in _pools(report))


class _Row(NamedTuple):
    """An operator with its memory where it counts: on the devices, else on the CPU."""

    operator: Operator
    total: int
    own: int


def _largest(report: WindowReport, by_shape: bool) -> list[_Row]:
    """Operators that hold or free memory, by the size of their total."""
    device = _on_device(report)
    found = [
        _Row(
            row,
            row.device_memory_bytes if device else row.cpu_memory_bytes,
            row.self_device_memory_bytes if device else row.self_cpu_memory_bytes,
        )
        for row in grouped(report, by_shape)
    ]
    return sorted((row for row in found if row.total or row.own), key=lambda row: (-abs(row.total), -abs(row.own)))


def _table(rows: list[_Row]) -> Table:
    columns = [
        name("operator"),
        Column("total"),
        Column("self"),
        Column("peak meanwhile", drop=1),
        Column("calls", drop=2),
    ]
    return Table(
        columns,
        [
            [
                label(row.operator),
                size(row.total),
                size(row.own),
                "" if row.operator.peak_memory_bytes is None else size(row.operator.peak_memory_bytes),
                f"{row.operator.count:,}",
            ]
            for row in rows
        ],
    )
