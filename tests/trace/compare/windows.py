"""Findings of windows, made: of recorded traces with other times, and of a few operators on a host."""

from __future__ import annotations

from msgspec.structs import replace

from harness.trace import WindowReport
from harness.trace.schema import Operator, Phase, Step, VerdictLabel
from tests.report.conftest import analyzed
from tests.trace.conftest import recorded

GPU = "eager_transformer_mem"


def report_of(name: str, step: int) -> WindowReport:
    found = analyzed(recorded(name))[1]
    return replace(found, window=replace(found.window, first_step=step))


def operator(name: str, self_us: float) -> Operator:
    return Operator(
        name=name,
        input_shapes=None,
        count=1,
        cpu_time_us=self_us,
        self_cpu_time_us=self_us,
        device_time_us=0,
        self_device_time_us=0,
        cpu_memory_bytes=0,
        self_cpu_memory_bytes=0,
        device_memory_bytes=0,
        self_device_memory_bytes=0,
        peak_memory_bytes=None,
        flops=None,
    )


def cpu_window(step: int, times: dict[str, float], *, phases: dict[str, float] | None = None) -> WindowReport:
    """A window of one step in µs, spent in these operators and phases."""
    found = report_of("matmul_64", step)
    whole = sum(times.values())
    return replace(
        found,
        window=replace(found.window, steps=1, trigger="schedule"),
        steps=[Step(number=step, start_us=0, duration_us=whole, device_busy_us=0, host_us=whole)],
        step_time=replace(found.step_time, profiled_median_us=whole, unprofiled_median_us=whole),
        totals=replace(found.totals, device_time_us=0),
        device=[],
        idle=[],
        operators=[operator(name, us) for name, us in times.items()],
        phases=[
            Phase(name=name, count=1, host_us=us, host_share=us / whole, device_us=0, device_share=0)
            for name, us in (phases or {}).items()
        ],
        verdict=replace(found.verdict, label="cpu-bound", confidence=1.0),
    )


def judged(step: int, label: VerdictLabel, confidence: float = 0.9) -> WindowReport:
    found = cpu_window(step, {"aten::mm": 1000})
    return replace(found, verdict=replace(found.verdict, label=label, confidence=confidence))
