"""Figures that are read off a report, for whoever sets windows side by side."""

from __future__ import annotations

from collections.abc import Iterable

from harness.trace.measure.annotations import REST
from harness.trace.noise import spread
from harness.trace.schema import DeviceTime, Phase, WindowReport


def step_noise(report: WindowReport) -> float:
    """How far the steps of a window lie apart: the standard deviation of their durations over the median."""
    median = report.step_time.profiled_median_us
    return spread([step.duration_us for step in report.steps]) / median if median else 0.0


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


def busiest(report: WindowReport) -> DeviceTime | None:
    """The device whose times stand for the window; None where none worked."""
    return max(report.device, key=lambda device: device.busy_fraction, default=None)
