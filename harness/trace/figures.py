"""Figures that are read off a report: which of several numbers stands for the window."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from harness.trace.schema import REST, DeviceTime, Phase, Step, StepTime, Window, WindowReport


class HasDevices(Protocol):
    """A report, or the part of it that tells of the devices."""

    @property
    def device(self) -> Sequence[DeviceTime]: ...


class HasSteps(HasDevices, Protocol):
    """A report, or the part of it that tells of the steps and the devices."""

    @property
    def window(self) -> Window: ...
    @property
    def steps(self) -> Sequence[Step]: ...
    @property
    def step_time(self) -> StepTime: ...


def step_us(times: StepTime) -> float | None:
    """What a step takes: without the profiler where that is known, else with it."""
    return times.unprofiled_median_us or times.profiled_median_us or None


def is_unprofiled(times: StepTime) -> bool:
    """Whether :func:`step_us` is without the profiler."""
    return bool(times.unprofiled_median_us)


def busiest(report: HasDevices) -> DeviceTime | None:
    """The device whose times stand for the window; None where none worked."""
    return max(report.device, key=lambda device: device.busy_fraction, default=None)


def busy(report: HasDevices) -> float | None:
    """Of the busiest device, the share of a step that its work fills; None where none worked."""
    device = busiest(report)
    return None if device is None else device.busy_fraction


def operator_times(report: WindowReport, *, on_host: bool = False) -> dict[str, float]:
    """Self time of each operator in one step (µs): on the device where one worked, else, or where asked, on the
    host."""
    device, steps = bool(report.totals.device_time_us) and not on_host, max(report.window.steps, 1)
    times: dict[str, float] = {}
    for row in report.operators:
        if row.device_type == "cpu" and not row.is_annotation:
            own = row.self_device_time_us if device else row.self_cpu_time_us
            times[row.name] = times.get(row.name, 0.0) + own / steps
    return times


def parts_of_step(report: WindowReport) -> Iterable[Phase]:
    """The phases that have a name of their own."""
    return (phase for phase in report.phases if phase.name != REST)
