"""One window's findings as points of curves: which tags there are, and that they stay few."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

from harness.logdir import tags
from harness.trace.figures import busiest, operator_times, parts_of_step
from harness.trace.schema import REST, IdleCause, VerdictLabel, WindowReport

MIB = 1024**2
VERDICTS: tuple[VerdictLabel, ...] = get_args(VerdictLabel)
"""A verdict's place here is its number as a curve."""
HEADLINE = (tags.WINDOW_BUSY, tags.WINDOW_PEAK_ALLOCATED_MIB, tags.VERDICT)
"""What tells most of a window, beside the curves of training."""
NOBODY = -1
"""In the place of a rank that is late."""
LEADERS = 6
"""Of each window, so many operators and phases may become curves."""
MOST_CURVES = 12
"""Of operators, and of phases, over the whole run: more lines than these nobody tells apart."""
WORTH_A_CURVE = 0.02
"""Of the window's time: less is noise, whose leaders change from window to window."""


class Leaders:
    """The names that have a curve. Once in, a name stays for the run, so that no curve has holes."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def take(self, times: Mapping[str, float]) -> None:
        """Let the largest of a window in, as long as there is room."""
        whole = sum(times.values())
        for name in sorted(times, key=lambda name: -times[name])[:LEADERS]:
            if len(self.names) < MOST_CURVES and name not in self.names and times[name] >= WORTH_A_CURVE * whole > 0:
                self.names.append(name)

    def of(self, values: Mapping[str, float]) -> dict[str, float]:
        """The value of every name, 0 for one that is not in this window."""
        return {name: values.get(name, 0.0) for name in self.names}


class Points:
    """From reports, in the order of their steps, to scalars by tag."""

    def __init__(self) -> None:
        self._operators, self._phases = Leaders(), Leaders()
        self._before: int | None = None

    def take(self, report: WindowReport, step: int) -> dict[str, float]:
        """The window's scalars. Times are milliseconds, of one step where the tag says no other thing."""
        found = {**_window(report), **_idle(report), **_ranks(report), **self._overhead(report, step)}
        operators = operator_times(report)
        self._operators.take(operators)
        chosen = self._operators.of(operators)
        chosen[REST] = sum(operators.values()) - sum(chosen.values())
        found |= {f"{tags.OPERATORS}{name}": us / 1e3 for name, us in chosen.items()}
        self._phases.take({phase.name: phase.host_us for phase in parts_of_step(report)})
        found |= _shares(tags.PHASES, self._phases, {phase.name: phase.host_share for phase in report.phases})
        if report.device:
            device = {phase.name: phase.device_share for phase in report.phases}
            found |= _shares(tags.PHASES_ON_DEVICE, self._phases, device)
        return {tag: value for tag, value in found.items() if math.isfinite(value)}

    def _overhead(self, report: WindowReport, step: int) -> dict[str, float]:
        """The window's cost over all the time since the one before it, or since the job's first step."""
        cost, step_us = report.window.cost_us, report.step_time.unprofiled_median_us
        since, self._before = step - (self._before or 0), step
        if cost is None or not step_us or since <= 0:
            return {}
        return {tags.WINDOW_OVERHEAD: cost / (since * step_us + cost)}


def _shares(group: str, phases: Leaders, shares: Mapping[str, float]) -> dict[str, float]:
    if not shares:
        return {}
    chosen = phases.of(shares)
    chosen[REST] = sum(shares.values()) - sum(chosen.values())
    return {f"{group}{name}": share for name, share in chosen.items()}


def _window(report: WindowReport) -> dict[str, float]:
    window, times, steps = report.window, report.step_time, max(report.window.steps, 1)
    found: dict[str, float | None] = {
        tags.WINDOW_STEP_MS_UNPROFILED: _ms(times.unprofiled_median_us),
        tags.WINDOW_STEP_MS_PROFILED: _ms(times.profiled_median_us),
        tags.WINDOW_COST_MS: _ms(window.cost_us),
        tags.WINDOW_LOST_EVENTS: window.lost_events + window.launches_without_work,
        tags.VERDICT: VERDICTS.index(report.verdict.label),
        tags.VERDICT_CONFIDENCE: report.verdict.confidence,
    }
    device = busiest(report)
    if device is not None:
        found |= {
            tags.WINDOW_BUSY: device.busy_fraction,
            tags.WINDOW_EXPOSED_COPIES_MS: device.exposed_memcpy_us / steps / 1e3,
            tags.WINDOW_EXPOSED_COMMUNICATION_MS: device.exposed_communication_us / steps / 1e3,
        }
    if report.memory is not None:
        found |= {
            tags.WINDOW_PEAK_ALLOCATED_MIB: report.memory.peak_allocated_bytes / MIB,
            tags.WINDOW_PEAK_RESERVED_MIB: report.memory.peak_reserved_bytes / MIB,
        }
    return {tag: value for tag, value in found.items() if value is not None}


def _idle(report: WindowReport) -> dict[str, float]:
    """Idle time of a step by reason, every reason in every window of a device."""
    if not report.device:
        return {}
    steps = max(report.window.steps, 1)
    times = {row.reason: row.time_us for row in report.idle}
    return {f"{tags.IDLE}{reason}": times.get(reason, 0.0) / steps / 1e3 for reason in get_args(IdleCause)}


def _ranks(report: WindowReport) -> dict[str, float]:
    """Waiting and balance of several ranks, and the bus bandwidth of each kind's largest collective."""
    found = report.ranks
    if found is None:
        return {}
    points: dict[str, float] = {}
    waits = [rank.waiting_us / rank.step_us for rank in found.ranks if rank.step_us and rank.waiting_us is not None]
    if waits:
        points[tags.WAITING_MOST] = max(waits)
        points[tags.WAITING_MEAN] = sum(waits) / len(waits)
        points[tags.STRAGGLER] = found.straggler.rank if found.straggler is not None else NOBODY
    if found.compute_imbalance is not None:
        points[tags.COMPUTE_IMBALANCE] = found.compute_imbalance
    if found.memory_imbalance is not None:
        points[tags.MEMORY_IMBALANCE] = found.memory_imbalance
    for row in sorted(found.collectives, key=lambda row: row.bytes or 0):
        if row.bus_bandwidth is not None:
            points[f"{tags.BUS_GB_PER_S}{row.kind}"] = row.bus_bandwidth / 1e9
    return points


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1e3
