"""The findings of one window, in the order of a reader's questions: what bounds the step, why, what to do; can
that be trusted; where did the time go; which code was it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Picture,
    Section,
    Styled,
    Table,
    name,
    numbered,
    prose,
    text,
    without,
)
from harness.report.memory import memory_section
from harness.report.operators import operator_section
from harness.report.units import duration, rate, share, size
from harness.trace.schema import (
    Annotation,
    Copy,
    DeviceTime,
    Evidence,
    Idle,
    IdleCause,
    VerdictLabel,
    WindowReport,
)

STYLE_OF_VERDICT: dict[VerdictLabel, str] = {
    "compute-bound": "bold green",
    "memory-bound": "bold green",
    "device-bound": "bold green",
    "undetermined": "bold yellow",
}
"""Green where the device works, red where it waits."""
WAITING = "bold red"

MEANING: dict[VerdictLabel, str] = {
    "input-bound": "The device waits for the loop to fetch its next batch.",
    "sync-bound": "The device runs dry because the host waits for it, and only then queues more work.",
    "overhead-bound": "The device waits for the host, which takes longer to launch the work than the work takes.",
    "copy-bound": "Copies between host and device take the time, with nothing running beside them.",
    "communication-bound": "Communication with other ranks takes the time, with no computation beside it.",
    "compute-bound": "The device works all the time, and mostly on arithmetic.",
    "memory-bound": "The device works all the time, and mostly on moving data through its memory.",
    "device-bound": "The device works all the time; whether arithmetic or memory limits it cannot be told.",
    "cpu-bound": "No device is in use: the step is the host's own work.",
    "undetermined": "The trace does not tell what bounds the step.",
}
REASON: dict[IdleCause, str] = {
    "host_late": "host late",
    "sync": "synchronisation",
    "input": "input",
    "launch": "launch latency",
    "dependency": "between queued kernels",
    "unattributed": "unattributed",
}
COUNTED = "device events"
"""The one measure of a verdict that is a count and no share."""
BAR = 24
GAPS_SHOWN = 5
HOST_SHOWN = 3
OTHERS_SHOWN = 3


@dataclass(frozen=True)
class Options:
    """What the reader asked to see."""

    sort_by: str | None = None
    """A name of :data:`harness.report.operators.SORT_KEYS`; None for the default."""
    by_shape: bool = False
    rows: int = 15
    """Of every long table."""


def sections(
    report: WindowReport, picture: Picture | None, options: Options, *, others: Sequence[str] = ()
) -> list[Section]:
    """The report, without the sections that have nothing to say. others: traces of other ranks beside this one."""
    found = [
        _verdict(report),
        _measured(report, others),
        _steps(report, options.rows),
        _device(report),
        _idle(report),
        Section("One step", [picture]) if picture is not None else None,
        _phases(report, options.rows),
        operator_section(report, sort_by=options.sort_by, by_shape=options.by_shape, rows=options.rows),
        _kernels(report, options.rows),
        memory_section(report, by_shape=options.by_shape, rows=options.rows),
        _copies(report, options.rows),
        _serialization(report),
        _roofline(report),
        _categories(report),
    ]
    return [section for section in found if section is not None]


def verdict_style(label: VerdictLabel) -> str:
    return STYLE_OF_VERDICT.get(label, WAITING)


def _verdict(report: WindowReport) -> Section:
    verdict = report.verdict
    blocks: list[Block] = [Paragraph(MEANING[verdict.label])]
    if verdict.evidence:
        columns = [text("measure"), Column("value"), text(""), Column("threshold"), prose("meaning")]
        blocks.append(Table(columns, [_evidence(evidence) for evidence in verdict.evidence]))
    if verdict.advice:
        blocks.append(numbered(verdict.advice))
    title = f"{verdict.label}, confidence {share(verdict.confidence)}"
    return Section(Styled(title, verdict_style(verdict.label)), blocks)


def _evidence(evidence: Evidence) -> list[Cell]:
    show = _count if evidence.measure == COUNTED else share
    sign = "≥" if evidence.value >= evidence.threshold else "<"
    return [evidence.measure, show(evidence.value), sign, show(evidence.threshold), evidence.meaning]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _measured(report: WindowReport, others: Sequence[str]) -> Section:
    window, times, totals = report.window, report.step_time, report.totals
    origin = [report.source]
    if report.torch_version:
        origin.append(f"torch {report.torch_version}")
    if report.world_size > 1:
        origin.append(f"rank {report.rank} of {report.world_size}")
    items = [("Trace", ", ".join(origin))]
    if others:
        rest = f" and {len(others) - OTHERS_SHOWN} more" if len(others) > OTHERS_SHOWN else ""
        items.append(("Beside it", ", ".join(others[:OTHERS_SHOWN]) + rest))
    working = {device.index for device in report.device}
    for device in report.devices:
        if working and device.index not in working:
            continue
        details = [device.name]
        if device.multiprocessors:
            details.append(f"{device.multiprocessors} multiprocessors")
        if device.total_memory_bytes:
            details.append(size(device.total_memory_bytes))
        items.append((f"GPU {device.index}", ", ".join(details)))
    if window.steps:
        begin = "" if window.first_step is None else f", from step {window.first_step}"
        items.append(("Steps", f"{window.steps}{begin}"))
    if times.unprofiled_median_us is not None and times.profiled_median_us is not None:
        slower = times.profiled_median_us / times.unprofiled_median_us
        items.append(
            (
                "Step time",
                f"{duration(times.unprofiled_median_us)} without the profiler, {duration(times.profiled_median_us)} "
                f"with it ({slower:.2f} times); medians",
            )
        )
    elif times.profiled_median_us is not None:
        items.append(
            (
                "Step time",
                f"{duration(times.profiled_median_us)} with the profiler, median; without it: not in the trace "
                "(--step-ms hands it over)",
            )
        )
    file = f"{size(totals.file_bytes)}, {totals.events:,} events"
    if totals.json_bytes > totals.file_bytes:
        file = f"{size(totals.file_bytes)} ({size(totals.json_bytes)} of JSON), {totals.events:,} events"
    items.append(("File", file))
    warnings = [Paragraph(f"! {warning}", "yellow") for warning in _warnings(report)]
    return Section("Measured", [Facts(items), *warnings])


def _warnings(report: WindowReport) -> Iterator[str]:
    window = report.window
    if window.partial:
        yield "The window was cut short: it holds fewer steps than the schedule asked for."
    if window.lost_events:
        yield f"{window.lost_events:,} events of the file could not be read; sums lack them."
    if window.launches_without_work:
        yield f"{window.launches_without_work:,} launches have no device event: the profiler lost some of them."
    if window.unattributed_device_events:
        yield (
            f"{window.unattributed_device_events:,} device events were launched before the window began; they are no "
            "work of its steps."
        )
    for warning in window.warnings:
        yield warning[:1].upper() + warning[1:] + ("" if warning.endswith(".") else ".")


def _steps(report: WindowReport, rows: int) -> Section | None:
    if not report.steps:
        return None
    columns = [
        Column("step"),
        Column("starts at", drop=4),
        Column("duration"),
        Column("host", drop=2),
        Column("device busy"),
        Column("of the step", drop=1),
        text("", drop=3),
    ]
    longest = max(step.duration_us for step in report.steps)
    shown = report.steps[:rows]
    table = Table(
        columns,
        [
            [
                str(step.number),
                duration(step.start_us),
                duration(step.duration_us),
                duration(step.host_us),
                duration(step.device_busy_us),
                share(step.device_busy_us / step.duration_us if step.duration_us else 0.0),
                bar(step.duration_us / longest if longest else 0.0),
            ]
            for step in shown
        ],
    )
    if not report.device:
        table = without(table, "device busy", "of the step")
    more: list[Block] = [_more(len(shown), len(report.steps))] if len(shown) < len(report.steps) else []
    return Section("Steps", [table, *more])


def _more(shown: int, there: int) -> Paragraph:
    return Paragraph(f"{shown} of {there:,} rows; --rows shows more.", "dim")


def bar(fraction: float, width: int = BAR) -> str:
    """A bar of block characters, in eighths of one."""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def _device(report: WindowReport) -> Section | None:
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
            for stream in streams[:6]
        )
        blocks.append(Paragraph(f"Busy by stream: {listed}" + (", ..." if len(streams) > 6 else "") + "."))
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


def _idle(report: WindowReport) -> Section | None:
    if not report.idle:
        return None
    total = sum(row.time_us for row in report.idle)
    reasons = Table(
        [text("reason"), Column("time"), Column("of idle"), Column("gaps", drop=2), prose("meanwhile the host was in")],
        [
            [
                REASON[row.reason],
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
                REASON[gap.reason],
                gap.host or "",
                gap.before,
            ]
            for gap in report.gaps[:GAPS_SHOWN]
        ]
        blocks += [Paragraph("The longest gaps:"), Table(columns, rows)]
    return Section("Why the device was idle", blocks)


def _host(row: Idle) -> str:
    return ", ".join(f"{activity.name} {duration(activity.time_us)}" for activity in row.host[:HOST_SHOWN])


def _phases(report: WindowReport, rows: int) -> Section | None:
    """Every named span; those that divide the step come first, with their shares of it."""
    if not report.annotations and not report.phases:
        return None
    spans = {annotation.name: annotation for annotation in report.annotations}
    phases = {phase.name for phase in report.phases}
    chosen: list[list[Cell]] = [
        [
            phase.name,
            f"{phase.count:,}",
            duration(phase.host_us),
            share(phase.host_share),
            *_device_spans(spans.get(phase.name)),
            share(phase.device_share),
        ]
        for phase in report.phases
    ]
    others = [annotation for annotation in report.annotations if annotation.name not in phases]
    for annotation in sorted(others, key=lambda annotation: -annotation.host_us):
        row = [annotation.name, f"{annotation.count:,}", duration(annotation.host_us), ""]
        chosen.append([*row, *_device_spans(annotation), ""])
    columns = [
        name("span"),
        Column("count", drop=3),
        Column("host"),
        Column("of the step"),
        Column("device span", drop=2),
        Column("device busy", drop=1),
        Column("of device time", drop=1),
    ]
    shown = chosen[:rows]
    more = [_more(len(shown), len(chosen))] if len(shown) < len(chosen) else []
    table = Table(columns, shown)
    if not report.device:
        table = without(table, "device span", "device busy", "of device time")
    return Section("Phases and named spans", [table, *more])


def _device_spans(annotation: Annotation | None) -> list[Cell]:
    if annotation is None:
        return ["", ""]
    return [duration(annotation.device_span_us), duration(annotation.device_busy_us)]


def _kernels(report: WindowReport, rows: int) -> Section | None:
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
    more = [_more(len(shown), len(report.kernels))] if len(shown) < len(report.kernels) else []
    return Section("Kernels, copies and memsets", [table, *more])


def _copies(report: WindowReport, rows: int) -> Section | None:
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


def _serialization(report: WindowReport) -> Section | None:
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
        [[kernel.name, duration(kernel.time_us)] for kernel in found.kernels[:GAPS_SHOWN]],
    )
    return Section("One after another", [Facts(items), *([kernels] if found.kernels else [])])


def _roofline(report: WindowReport) -> Section | None:
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


def _categories(report: WindowReport) -> Section | None:
    if not report.categories:
        return None
    total = sum(report.categories.values())
    rows = sorted(report.categories.items(), key=lambda item: -item[1])
    table = Table(
        [text("category"), Column("events"), Column("share", drop=1)],
        [[category, f"{count:,}", share(count / total if total else 0.0)] for category, count in rows],
    )
    return Section("What is in the trace", [table])
