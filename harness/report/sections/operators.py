"""The operator table in the shape of `key_averages().table()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from harness.errors import UsageError
from harness.report.document import Block, Column, Facts, Section, Table, more, name
from harness.report.units import rate, shapes, torch_share, torch_size, torch_time
from harness.trace.schema import Operator, WindowReport

Key = Callable[[Operator], float]

SORT_KEYS: dict[str, Key] = {
    "cpu_time_total": lambda row: row.cpu_time_us,
    "self_cpu_time_total": lambda row: row.self_cpu_time_us,
    "cpu_time": lambda row: row.cpu_time_us / row.count,
    "device_time_total": lambda row: row.device_time_us,
    "self_device_time_total": lambda row: row.self_device_time_us,
    "device_time": lambda row: row.device_time_us / row.count,
    "cpu_memory_usage": lambda row: row.cpu_memory_bytes,
    "self_cpu_memory_usage": lambda row: row.self_cpu_memory_bytes,
    "device_memory_usage": lambda row: row.device_memory_bytes,
    "self_device_memory_usage": lambda row: row.self_device_memory_bytes,
    "peak_memory": lambda row: row.peak_memory_bytes or 0,
    "flops": lambda row: row.flops or 0,
    "count": lambda row: row.count,
}
"""By the names of torch's `table(sort_by=)`, `_time` without `_total` being the mean of a call; and `peak_memory`."""
OLD_NAMES = {key.replace("device", "cuda"): key for key in SORT_KEYS if "device" in key}


def sort_key(sort_by: str) -> str:
    """The name of today for one of torch's names, old or new.

    Raises:
        UsageError: for any other name; the message lists them.
    """
    known = OLD_NAMES.get(sort_by, sort_by)
    if known not in SORT_KEYS:
        from difflib import get_close_matches

        names = [*SORT_KEYS, *OLD_NAMES]
        close = get_close_matches(sort_by, names, 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise UsageError(f"--sort-by {sort_by}: no such column{hint}; choose from {', '.join(names)}")
    return known


def default_sort_key(report: WindowReport) -> str:
    """Device time where a device worked, else CPU time."""
    return "device_time_total" if report.totals.device_time_us else "cpu_time_total"


def sorted_rows(rows: Sequence[Operator], key: str) -> list[Operator]:
    """Largest first; ties stay in the order of the trace, as in torch's table."""
    return sorted(rows, key=SORT_KEYS[key], reverse=True)


def grouped(report: WindowReport, by_shape: bool) -> list[Operator]:
    """Rows by name, or by name and input shapes.

    Raises:
        UsageError: where the trace has no shapes.
    """
    if not by_shape:
        return report.operators
    if not report.operators_by_shape:
        raise UsageError(
            f"--group-by shape: {report.source} was recorded without shapes; record with record_shapes=True"
        )
    return report.operators_by_shape


def label(row: Operator) -> str:
    """`aten::linear`, or with shapes as people write them `linear [32×1024] [1024×1024]`."""
    if not row.input_shapes:
        return row.name
    return f"{row.name.removeprefix('aten::')} {shapes(row.input_shapes)}".rstrip()


def operator_section(report: WindowReport, *, sort_by: str | None, by_shape: bool, rows: int) -> Section:
    """Torch's columns, and memory and FLOPs where they were recorded; below, torch's totals."""
    key = sort_key(sort_by) if sort_by else default_sort_key(report)
    everything = grouped(report, by_shape)
    chosen = sorted_rows(everything, key)[:rows]
    columns = [(column, show) for column, show in _columns(report, key) if show is not None]
    table = Table([column for column, _ in columns], [[show(row) for _, show in columns] for row in chosen])
    totals = [("Self CPU time total", torch_time(report.totals.cpu_time_us))]
    if report.totals.device_time_us:
        totals.append(("Self CUDA time total", torch_time(report.totals.device_time_us)))
    if report.totals.flops:
        totals.append(("FLOPs total", rate(report.totals.flops, "FLOP")))
    blocks: list[Block] = [table, Facts(totals)]
    blocks += more(len(chosen), len(everything))
    grouping = " by name and shape" if by_shape else ""
    return Section(f"Operators{grouping}, sorted by {key}", blocks)


def _columns(report: WindowReport, key: str) -> list[tuple[Column, Callable[[Operator], str] | None]]:
    """Columns with what they show, None for what was not recorded. The one sorted by stays at any width."""
    cpu, device = report.totals.cpu_time_us, report.totals.device_time_us

    def column(title: str, drop: int, *keys: str) -> Column:
        return Column(title, drop=0 if key in keys else drop)

    def timed(show: Callable[[Operator], str]) -> Callable[[Operator], str] | None:
        return show if device else None

    def remembered(read: Callable[[Operator], int]) -> Callable[[Operator], str] | None:
        return (lambda row: torch_size(read(row))) if any(map(read, report.operators)) else None

    flops = any(row.flops for row in report.operators)
    peak = any(row.peak_memory_bytes for row in report.operators)
    return [
        (name("Name"), label),
        (column("Self CPU %", 7), lambda row: torch_share(row.self_cpu_time_us, cpu)),
        (column("Self CPU", 3, "self_cpu_time_total"), lambda row: torch_time(row.self_cpu_time_us)),
        (column("CPU total %", 8), lambda row: torch_share(row.cpu_time_us, cpu)),
        (column("CPU total", 2, "cpu_time_total"), lambda row: torch_time(row.cpu_time_us)),
        (column("CPU time avg", 6, "cpu_time"), lambda row: torch_time(row.cpu_time_us / row.count)),
        (column("Self CUDA", 1, "self_device_time_total"), timed(lambda row: torch_time(row.self_device_time_us))),
        (column("Self CUDA %", 4), timed(lambda row: torch_share(row.self_device_time_us, device))),
        (column("CUDA total", 1, "device_time_total"), timed(lambda row: torch_time(row.device_time_us))),
        (column("CUDA time avg", 5, "device_time"), timed(lambda row: torch_time(row.device_time_us / row.count))),
        (column("CPU Mem", 13, "cpu_memory_usage"), remembered(lambda row: row.cpu_memory_bytes)),
        (column("Self CPU Mem", 12, "self_cpu_memory_usage"), remembered(lambda row: row.self_cpu_memory_bytes)),
        (column("CUDA Mem", 11, "device_memory_usage"), remembered(lambda row: row.device_memory_bytes)),
        (column("Self CUDA Mem", 10, "self_device_memory_usage"), remembered(lambda row: row.self_device_memory_bytes)),
        (
            column("Peak Mem", 9, "peak_memory"),
            (lambda row: torch_size(row.peak_memory_bytes or 0)) if peak else None,
        ),
        (column("# of Calls", 1, "count"), lambda row: str(row.count)),
        (column("FLOPs", 9, "flops"), (lambda row: rate(row.flops, "FLOP") if row.flops else "--") if flops else None),
    ]
