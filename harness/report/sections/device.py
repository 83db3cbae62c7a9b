"""The device's time: where it went, why none was spent, and on which kernels and copies."""

from __future__ import annotations

from collections.abc import Sequence

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
    prose,
    text,
)
from harness.report.units import bar, duration, rate, share, size
from harness.report.words import IDLE
from harness.trace.schema import Copy, DeviceTime, Idle, WindowReport

GAPS_SHOWN = 5
HOST_SHOWN = 3
STREAMS_SHOWN = 6
SMALL_KERNELS_SHOWN = 5


def device_section(report: WindowReport) -> Section | None:
    """Each device's time by what it did; the parts sum to its span."""
    if not report.device:
        return None
    several = len(report.device) > 1
    columns = [
        *([text("device")] if several else []),
        text("time"),
        Column("total"),
        Column("of the span"),
        text("", drop=1),
    ]
    rows: list[list[Cell]] = []
    for device in report.device:
        for place, (part, us, style) in enumerate(_parts(device)):
            fraction = us / device.span_us if device.span_us else 0.0
            cells: list[Cell] = [part, duration(us), share(fraction), Styled(bar(fraction), style)]
            rows.append([f"GPU {device.index}" if not place else "", *cells] if several else cells)
    blocks: list[Block] = [Table(columns, rows)]
    blocks += [Paragraph(_busy(device, report)) for device in report.device]
    streams = [stream for stream in report.streams if stream.events]
    if len(streams) > 1:
        streams.sort(key=lambda stream: -stream.busy_us)
        listed = ", ".join(
            f"{f'GPU {stream.device} ' if several else ''}stream {stream.stream} {duration(stream.busy_us)}"
            for stream in streams[:STREAMS_SHOWN]
        )
        blocks.append(Paragraph(f"Busy by stream: {listed}" + (", ..." if len(streams) > STREAMS_SHOWN else "") + "."))
    return Section("Where the device's time went", blocks)


def _parts(device: DeviceTime) -> list[tuple[str, float, str]]:
    """The terms that sum to the span; compute always, others where there are any."""
    parts = [
        ("compute", device.compute_us, "green"),
        ("exposed communication", device.exposed_communication_us, "magenta"),
        ("exposed copies", device.exposed_memcpy_us, "cyan"),
        ("idle", device.idle_us, "red"),
    ]
    return [part for part in parts if part[1] or part[0] in ("compute", "idle")]


def _busy(device: DeviceTime, report: WindowReport) -> str:
    span = f"GPU {device.index}: {duration(device.span_us)} from the first device event to the last"
    if not report.steps:
        return f"{span}, {share(device.busy_fraction)} of it busy."
    of = "the step without the profiler" if report.step_time.unprofiled_median_us is not None else "the traced step"
    hidden = [
        f"{share(1 - exposed / whole)} of {what} hidden"
        for what, whole, exposed in (
            ("communication", device.communication_us, device.exposed_communication_us),
            ("copies", device.memcpy_us, device.exposed_memcpy_us),
        )
        if whole
    ]
    return f"{span}. Its work fills {share(device.busy_fraction)} of {of}" + "".join(f"; {h}" for h in hidden) + "."


def idle_section(report: WindowReport) -> Section | None:
    """Idle time by reason, and the longest gaps."""
    if not report.idle:
        return None
    total = sum(row.time_us for row in report.idle)
    reasons = Table(
        [text("reason"), Column("time"), Column("of idle"), Column("gaps", drop=2), prose("meanwhile the host was in")],
        [
            [
                IDLE[row.reason],
                duration(row.time_us),
                share(row.time_us / total if total else 0.0),
                f"{row.count:,}",
                _host(row),
            ]
            for row in report.idle
        ],
    )
    blocks: list[Block] = [reasons]
    if report.gaps:
        several = len(report.device) > 1
        columns = [
            *([text("device", drop=1)] if several else []),
            Column("gap"),
            Column("at", drop=4),
            Column("step", drop=2),
            text("reason"),
            name("the host was in"),
            name("ended by", drop=3),
        ]
        rows = [
            [
                *([f"GPU {gap.device}"] if several else []),
                duration(gap.duration_us),
                duration(gap.start_us),
                "" if gap.step is None else str(gap.step),
                IDLE[gap.reason],
                gap.host or "",
                gap.before,
            ]
            for gap in report.gaps[:GAPS_SHOWN]
        ]
        blocks += [Paragraph("The longest gaps:"), Table(columns, rows)]
    return Section("Why the device was idle", blocks)


def _host(row: Idle) -> str:
    return ", ".join(f"{activity.name} {duration(activity.time_us)}" for activity in row.host[:HOST_SHOWN])


def kernels_section(report: WindowReport, rows: int) -> Section | None:
    """Device events by name, longest in total first."""
    if not report.kernels:
        return None
    total = report.totals.device_time_us
    columns = [
        name("kernel"),
        Column("total"),
        Column("of device time", drop=2),
        Column("calls", drop=1),
        Column("mean", drop=4),
        Column("longest", drop=6),
        text("kind", drop=5),
        name("launched by", drop=3),
    ]
    shown = report.kernels[:rows]
    table = Table(
        columns,
        [
            [
                kernel.name,
                duration(kernel.total_us),
                share(kernel.total_us / total if total else 0.0),
                f"{kernel.count:,}",
                duration(kernel.mean_us),
                duration(kernel.max_us),
                kernel.kind,
                kernel.operator or "",
            ]
            for kernel in shown
        ],
    )
    return Section("Kernels, copies and memsets", [table, *more(len(shown), len(report.kernels))])


def copies_section(report: WindowReport, rows: int) -> Section | None:
    """Copies by direction and kind of memory, with the share that was hidden."""
    if not report.copies:
        return None
    columns = [
        name("copies"),
        Column("count", drop=3),
        Column("bytes", drop=2),
        Column("time"),
        Column("rate", drop=1),
        Column("hidden"),
        name("launched by", drop=4),
    ]
    table = Table(
        columns,
        [
            [
                copy.name,
                f"{copy.count:,}",
                size(copy.bytes),
                duration(copy.time_us),
                rate(copy.bytes / copy.time_us * 1e6, "B/s") if copy.time_us and copy.bytes else "",
                share(copy.hidden_us / copy.time_us if copy.time_us else 0.0),
                copy.operator or "",
            ]
            for copy in report.copies[:rows]
        ],
    )
    return Section("Copies", [table, *_host_to_device(report.copies)])


def _host_to_device(copies: Sequence[Copy]) -> list[Paragraph]:
    mine = [copy for copy in copies if copy.direction == "HtoD"]
    time = sum(copy.time_us for copy in mine)
    if not time:
        return []
    hidden = sum(copy.hidden_us for copy in mine)
    pageable = sum(copy.bytes for copy in mine if copy.pageable)
    return [
        Paragraph(
            f"Host to device: {size(sum(copy.bytes for copy in mine))} in {duration(time)}, {share(hidden / time)} "
            "of it hidden behind kernels" + (f"; {size(pageable)} from pageable memory." if pageable else ".")
        )
    ]


def serialization_section(report: WindowReport) -> Section | None:
    """Kernels that left room beside them, and streams that waited for each other."""
    found = report.serialization
    if found is None or not (found.serial_small_us or found.waiting_streams_us):
        return None
    busy = report.totals.device_busy_us
    items = []
    if found.serial_small_us:
        items.append(
            (
                "Alone and small",
                f"{found.serial_small_count:,} kernels of {duration(found.serial_small_us)} "
                f"({share(found.serial_small_us / busy if busy else 0.0)} of busy time) ran with nothing beside them "
                "on fewer multiprocessors than the device has",
            )
        )
    if found.waiting_streams_us:
        items.append(
            (
                "Streams that waited",
                f"{found.waiting_streams_count:,} events, {duration(found.waiting_streams_us)}: first in their "
                "stream, they started only after another stream's work",
            )
        )
    items.append(("Side by side", f"{duration(found.concurrent_us)} with at least two device events at once"))
    kernels = Table(
        [name("the longest of the small ones"), Column("time")],
        [[kernel.name, duration(kernel.time_us)] for kernel in found.kernels[:SMALL_KERNELS_SHOWN]],
    )
    return Section("One after another", [Facts(items), *([kernels] if found.kernels else [])])


def roofline_section(report: WindowReport) -> Section | None:
    """The floors of arithmetic and memory; None where nothing is known of the kernels."""
    roof = report.roofline
    if roof is None or not roof.coverage:
        return None
    items = [
        (
            "Coverage",
            f"{share(roof.coverage)} of kernel time is known to compute or to move memory, "
            f"{share(roof.shape_coverage)} by shapes",
        ),
        (
            "Bound by",
            f"arithmetic for {duration(roof.compute_bound_us)}, memory for {duration(roof.memory_bound_us)} of kernel "
            "time",
        ),
    ]
    if roof.shape_coverage:
        items += [
            ("Arithmetic", f"{rate(roof.flops, 'FLOP')}, {duration(roof.compute_floor_us)} at the peak rate"),
            ("Memory", f"{size(roof.bytes)} at least, {duration(roof.memory_floor_us)} at peak bandwidth"),
            ("Attained", f"{share(roof.achieved_fraction)} of the roof above each operator, by time"),
        ]
    return Section(f"Roofline of {roof.device}", [Facts(items)])
