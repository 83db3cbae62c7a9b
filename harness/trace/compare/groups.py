"""The figures that windows are compared by, in groups: how each is read off a window's findings."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from harness.trace.figures import HasSteps, busiest, operator_times, parts_of_step
from harness.trace.schema import WindowReport

Group = Literal["step", "device", "phase", "operator", "kernel", "memory", "idle", "allocation"]
Unit = Literal["us", "bytes", "fraction"]
Whole = Literal["step", "rest", "host", "device"]
GROUPS: tuple[Group, ...] = ("step", "device", "phase", "operator", "kernel", "memory")
ALL_GROUPS: tuple[Group, ...] = (*GROUPS, "idle", "allocation")
"""Those, the reasons why a device is idle, and what each operator allocates."""
COME_AND_GO: tuple[Group, ...] = ("phase", "operator", "kernel", "idle", "allocation")
"""Groups whose figures have names out of the trace: one may be new, or gone."""

Found = TypeVar("Found", bound=HasSteps)
_Read = TypeVar("_Read", bound=HasSteps, contravariant=True)
Sides = Sequence[WindowReport]


class Figure(NamedTuple, Generic[_Read]):
    """One number of a window."""

    unit: Unit
    value: Callable[[_Read], float]
    part_of: Whole | None
    """With what it scatters; None for what does not."""


Figures = Mapping[str, Figure[Found]]


def figures_of(group: Group, before: Sides, after: Sides) -> Figures[WindowReport]:
    """The figures of a group that both sides tell, by name."""
    if group == "step":
        return of_steps(before, after)
    if group == "device":
        return of_devices(before, after)
    return _OF_REPORTS[group](before, after)


def of_steps(before: Sequence[HasSteps], after: Sequence[HasSteps]) -> Figures[HasSteps]:
    """Without the profiler where both sides know it, and with it."""
    figures: dict[str, Figure[HasSteps]] = {}
    if all(one.step_time.unprofiled_median_us for one in (*before, *after)):
        figures["step"] = Figure("us", lambda one: one.step_time.unprofiled_median_us or math.nan, "step")
    figures["step, profiled"] = Figure("us", lambda one: one.step_time.profiled_median_us or math.nan, "step")
    return figures


def of_devices(before: Sequence[HasSteps], after: Sequence[HasSteps]) -> Figures[HasSteps]:
    """Where the time of the busiest device goes, in a step."""
    if not all(one.device for one in (*before, *after)):
        return {}
    parts = {
        "compute": "compute_us",
        "exposed communication": "exposed_communication_us",
        "exposed copies": "exposed_memcpy_us",
        "idle": "idle_us",
    }

    def part(field: str) -> Callable[[HasSteps], float]:
        return lambda one: float(getattr(busiest(one), field)) / max(one.window.steps, 1)

    figures: dict[str, Figure[HasSteps]] = {
        name: Figure("us", part(field), "rest" if name == "idle" else "device") for name, field in parts.items()
    }
    figures["busy"] = Figure("fraction", lambda one: (busiest(one) or one.device[0]).busy_fraction, "step")
    return {name: figure for name, figure in figures.items() if any(map(figure.value, (*before, *after)))}


def whole(report: HasSteps, part_of: Whole | None) -> float:
    """What one step takes of that which a figure is part of: its duration, the host's or the device's time, µs."""
    each = of_each_step(report, part_of)
    return statistics.median(each) if each else 0.0


def of_each_step(report: HasSteps, part_of: Whole | None) -> list[float]:
    """The same of every step."""
    if part_of in ("host", "device"):
        return [step.host_us if part_of == "host" else step.device_busy_us for step in report.steps]
    return [step.duration_us for step in report.steps]


def _named(
    values: Callable[[WindowReport], Mapping[str, float]],
    part_of: Whole | None,
    before: Sides,
    after: Sides,
    unit: Unit = "us",
) -> Figures[WindowReport]:
    """A figure for every name with a value in any window; 0 where one lacks it."""
    known = {id(one): values(one) for one in (*before, *after)}
    names = dict.fromkeys(name for found in known.values() for name, value in found.items() if value)

    def value(name: str) -> Callable[[WindowReport], float]:
        return lambda one: known[id(one)].get(name, 0.0)

    return {name: Figure(unit, value(name), part_of) for name in names}


def _phases(before: Sides, after: Sides) -> Figures[WindowReport]:
    def times(report: WindowReport) -> Mapping[str, float]:
        steps = _steps(report)
        return {phase.name: phase.host_us / steps for phase in parts_of_step(report)}

    return _named(times, "host", before, after)


def _operators(before: Sides, after: Sides) -> Figures[WindowReport]:
    """Self times: on the device where every window has one."""
    on_host = not all(one.totals.device_time_us for one in (*before, *after))
    part_of: Whole = "host" if on_host else "device"
    return _named(lambda one: operator_times(one, on_host=on_host), part_of, before, after)


def _kernels(before: Sides, after: Sides) -> Figures[WindowReport]:
    def times(report: WindowReport) -> Mapping[str, float]:
        steps = _steps(report)
        return {kernel.name: kernel.total_us / steps for kernel in report.kernels}

    return _named(times, "device", before, after)


def _memory(before: Sides, after: Sides) -> Figures[WindowReport]:
    if not all(one.memory for one in (*before, *after)):
        return {}

    def peak(field: str) -> Callable[[WindowReport], float]:
        return lambda one: float(getattr(one.memory, field))

    return {
        "peak allocated": Figure("bytes", peak("peak_allocated_bytes"), None),
        "peak reserved": Figure("bytes", peak("peak_reserved_bytes"), None),
    }


def _idle(before: Sides, after: Sides) -> Figures[WindowReport]:
    """Idle time of a step by :data:`harness.trace.schema.IdleCause`, over all devices."""
    if not all(one.device for one in (*before, *after)):
        return {}
    return _named(
        lambda one: _summed((row.reason, row.time_us / _steps(one)) for row in one.idle), "rest", before, after
    )


def _allocations(before: Sides, after: Sides) -> Figures[WindowReport]:
    """What each operator has allocated by itself in a step, less what it has freed: on the devices where every window
    has one's memory, else on the host."""
    if not all(one.memory for one in (*before, *after)):
        return {}
    on_device = all(_has_device_memory(one) for one in (*before, *after))

    def own(report: WindowReport) -> Mapping[str, float]:
        field = "self_device_memory_bytes" if on_device else "self_cpu_memory_bytes"
        rows = (row for row in report.operators if row.device_type == "cpu")
        return _summed((row.name, getattr(row, field) / _steps(report)) for row in rows)

    return _named(own, None, before, after, "bytes")


def _has_device_memory(report: WindowReport) -> bool:
    return report.memory is not None and any(pool.device_type == "device" for pool in report.memory.pools)


def _steps(report: WindowReport) -> int:
    return max(report.window.steps, 1)


def _summed(items: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in items:
        found[name] = found.get(name, 0.0) + value
    return found


_OF_REPORTS: dict[Group, Callable[[Sides, Sides], Figures[WindowReport]]] = {
    "phase": _phases,
    "operator": _operators,
    "kernel": _kernels,
    "memory": _memory,
    "idle": _idle,
    "allocation": _allocations,
}
