"""One window: all that its findings say, arranged for the page."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from harness.board.tab import tables
from harness.board.tab.document import as_json
from harness.board.tab.places import Places
from harness.board.tab.summaries import Summaries, Summary
from harness.logdir.window import Window
from harness.report.sections import device, findings, memory
from harness.report.sections.ranks import ranks_sections
from harness.report.words import IDLE, straggler_sentence
from harness.trace.figures import busiest
from harness.trace.schema import DeviceTime, WindowReport

SMALL_TABLE = 100
"""Rows of the tables in the report's document."""


class Part(msgspec.Struct, frozen=True):
    """A stretch of a bar."""

    name: str
    us: float
    share: float
    """Of the bar."""


class Bar(msgspec.Struct, frozen=True):
    """Something whole and what it consists of."""

    title: str
    parts: list[Part]


class Figure(msgspec.Struct, frozen=True):
    """A number at the head of the page."""

    name: str
    value: float | None
    kind: tables.Kind
    note: str = ""


class TraceFile(msgspec.Struct, frozen=True):
    name: str
    bytes: int


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that the page of a window shows."""

    summary: Summary
    previous: str | None
    next: str | None
    files: list[TraceFile]
    source: str
    """The trace file that the findings are of."""
    rank: int
    world_size: int
    figures: list[Figure]
    bars: list[Bar]
    sections: dict[str, list[dict[str, Any]]]
    """The report's document, by the part of the page that shows it."""
    tables: dict[str, tables.Table | None]
    straggler: str | None
    """Which rank the others wait for, and why, in a sentence."""
    untold: list[str]
    """Trace files of ranks that the findings across ranks do not tell of."""
    peak_us: float | None
    """When the memory was fullest, from the first event of the window."""


def page(window: Window, places: Places, summaries: Summaries) -> Page:
    """Everything about a window.

    Raises:
        Unreadable: where its findings cannot be shown.
    """
    report = window.told(WindowReport)
    names = [one.name for one in places.windows(places.run(window.run))]
    place = names.index(window.name) if window.name in names else len(names)
    files = [TraceFile(name, _size(path)) for name, path in window.traces().items()]
    others = [file.name for file in files if file.name != report.source]
    across = report.ranks if report.ranks is not None and len(report.ranks.ranks) > 1 else None
    told = {rank.source for rank in across.ranks} if across is not None else set()
    by_shape = bool(report.operators_by_shape)
    return Page(
        summary=summaries.of(window),
        previous=names[place - 1] if place else None,
        next=names[place + 1] if place + 1 < len(names) else None,
        files=files,
        source=report.source,
        rank=report.rank,
        world_size=report.world_size,
        figures=list(_figures(report)),
        bars=list(_bars(report)),
        sections={
            "verdict": as_json([findings.verdict_section(report)]),
            "measured": as_json([findings.measured_section(report, others)]),
            "idle": as_json([device.idle_section(msgspec.structs.replace(report, gaps=[]))]),
            "phases": as_json([findings.phases_section(report, SMALL_TABLE)]),
            "devices": as_json(
                [
                    device.device_section(report),
                    device.copies_section(report, SMALL_TABLE),
                    device.serialization_section(report),
                    device.roofline_section(report),
                ]
            ),
            "memory": as_json([memory.memory_section(report, by_shape=False, rows=0)]),
            "ranks": as_json(ranks_sections(report, SMALL_TABLE)),
            "trace": as_json([findings.categories_section(report)]),
        },
        tables={
            "steps": tables.steps(report) if report.steps else None,
            "gaps": tables.gaps(report) if report.gaps else None,
            "operators": tables.operators(report, by_shape=False) if report.operators else None,
            "operators_by_shape": tables.operators(report, by_shape=True) if by_shape else None,
            "kernels": tables.kernels(report) if report.kernels else None,
            "memory": tables.memory(report, by_shape=False) if report.memory else None,
            "memory_by_shape": tables.memory(report, by_shape=True) if report.memory and by_shape else None,
        },
        straggler=straggler_sentence(across.straggler) if across is not None and across.straggler is not None else None,
        untold=[file.name for file in files if file.name not in told] if others else [],
        peak_us=_peak_us(report),
    )


def _size(path: Path) -> int:
    """0 for what has gone meanwhile."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _figures(report: WindowReport) -> Iterable[Figure]:
    times, window = report.step_time, report.window
    if times.unprofiled_median_us is not None:
        yield Figure("step", times.unprofiled_median_us, "us", "median, without the profiler")
    if times.profiled_median_us is not None:
        yield Figure("step, profiled", times.profiled_median_us, "us", "median of the window's steps")
    chosen = busiest(report)
    if chosen is not None:
        yield Figure("device busy", chosen.busy_fraction, "share", f"of the step, GPU {chosen.index}")
    if report.memory is not None:
        yield Figure("peak memory", report.memory.peak_allocated_bytes, "bytes", "allocated in the window")
    if window.cost_us is not None:
        yield Figure("cost", window.cost_us, "us", "what the window took from the job")
    yield Figure("steps", window.steps, "count", "recorded" + (", cut short" if window.partial else ""))


def _bars(report: WindowReport) -> Iterable[Bar]:
    """Each device's span, divided to the nanosecond; and the step of the host by its phases."""
    for one in report.device:
        idle = report.idle if len(report.device) == 1 else []
        yield Bar(f"GPU {one.index}", list(_device_parts(one, {IDLE[row.reason]: row.time_us for row in idle})))
    if report.phases:
        yield Bar("host", [Part(phase.name, phase.host_us, phase.host_share) for phase in report.phases])


def _device_parts(one: DeviceTime, idle: dict[str, float]) -> Iterable[Part]:
    parts = {
        "compute": one.compute_us,
        "exposed communication": one.exposed_communication_us,
        "exposed copies": one.exposed_memcpy_us,
    }
    parts |= {f"idle: {reason}": us for reason, us in idle.items()} if idle else {"idle": one.idle_us}
    for name, us in parts.items():
        if us:
            yield Part(name, us, us / one.span_us if one.span_us else 0.0)


def _peak_us(report: WindowReport) -> float | None:
    pools = report.memory.pools if report.memory is not None else []
    largest = max(pools, key=lambda pool: (pool.device_type == "device", pool.peak_allocated_bytes), default=None)
    return largest.peak_us if largest is not None else None
