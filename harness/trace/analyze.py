"""All findings of a trace."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

import harness
from harness.trace.file.collector import without_collector
from harness.trace.file.columns import Trace
from harness.trace.measure import kernels
from harness.trace.measure.annotations import annotation_rows, phases
from harness.trace.measure.culprits import synchronizing
from harness.trace.measure.device_time import DeviceSets, device_sets, device_time, gaps, input_spans
from harness.trace.measure.flops import Cost, costs
from harness.trace.measure.idle import HostThreads, idle_rows, longest_gaps
from harness.trace.measure.launches import Work, ambiguous_launches, device_work, launches_without_work
from harness.trace.measure.memory import memory, peak_during
from harness.trace.measure.operators import HostCalls, host_calls, host_samples, operator_rows
from harness.trace.measure.peaks import DevicePeaks, peaks_of
from harness.trace.measure.roofline import roofline
from harness.trace.measure.shares import Shares, shares
from harness.trace.measure.steps import Steps, steps
from harness.trace.schema import Advice, DeviceInfo, Operator, StepTime, Totals, Verdict, Window, WindowReport
from harness.trace.schema import Step as StepRow
from harness.trace.verdict.advice import Findings, advice, memory_advice, side_advice
from harness.trace.verdict.questions import Finding, HostShares, Late, judge, judge_host


class Waits(NamedTuple):
    """What other ranks' traces tell of this one's communication."""

    fraction: float
    """Of the exposed communication, what was spent waiting for a rank to join."""
    host: HostShares | None
    """Of a host without a device."""
    late: Late | None
    """The rank that it waited for."""
    advice: list[Advice]
    """What to do about that rank."""


class Analysis(NamedTuple):
    """A report, and what it was made of."""

    report: WindowReport
    shares: Shares | None
    work: Work
    steps: Steps
    input_share: float | None
    """Of the steps, on the host."""


def analyze(trace: Trace, *, step_ms: float | None = None, peaks: DevicePeaks | None = None) -> WindowReport:
    """Findings of one window.

    step_ms: time of a step without the profiler, rather than what the harness wrote into the trace.
    peaks: of the device, where the table of `peaks.py` lacks it or is wrong for it.
    """
    return analysis(trace, step_ms=step_ms, peaks=peaks).report


@without_collector()
def analysis(
    trace: Trace, *, step_ms: float | None = None, peaks: DevicePeaks | None = None, waits: Waits | None = None
) -> Analysis:
    """Findings of one rank's trace of a window, of which other ranks may tell more.

    step_ms: time of a step without the profiler, rather than what the harness wrote into the trace.
    peaks: of the device, where the table of `peaks.py` lacks it or is wrong for it.
    """
    if step_ms is not None and not step_ms > 0:
        raise ValueError(f"step_ms must be positive, not {step_ms}")
    work = device_work(trace)
    window_steps = steps(trace, work)
    host = host_calls(trace)
    cost = costs(trace)
    rows, by_shape = _operators(trace, host, work, cost)
    unprofiled = _unprofiled_us(trace, step_ms)
    step_us = unprofiled or window_steps.median_us

    on_device = {device: work.on(device) for device in work.devices}
    sets = {device: device_sets(mine) for device, mine in on_device.items()}
    found_gaps = {device: gaps(trace, mine, sets[device], device) for device, mine in on_device.items()}
    threads = HostThreads(trace)
    divided = shares(work, window_steps, found_gaps, step_us, unprofiled=unprofiled is not None)
    if divided is not None and waits is not None:
        divided = divided.less_waiting(waits.fraction)
    late = waits.late if waits is not None else None

    devices = _devices(trace, work)
    owned = window_steps.of(work.launched_at) >= 0 if len(window_steps.start) else work.launched_at >= -1
    busiest = next((d for d in devices if divided is not None and d.index == divided.device), None)
    if peaks is None and busiest is not None:
        peaks = peaks_of(busiest.name, busiest.compute_capability)
    input_share = _input_share(trace, window_steps)
    roof = roofline(trace, host, work.where(owned), cost, peaks)
    lost_launches = launches_without_work(trace, work)
    if divided is not None:
        finding = judge(divided, roof, damaged=bool(trace.lost_events), late=late)
    elif len(work.event) or lost_launches:
        finding = Finding("undetermined", 0.0, [])
    else:
        finding = judge_host(input_share, waits.host if waits is not None else None, late)

    found = Findings(
        trace=trace,
        shares=divided,
        operators=rows,
        kernels=kernels.kernels(trace, work),
        annotations=annotation_rows(trace, work),
        copies=kernels.copies(trace, work),
        idle=idle_rows(trace, work, list(found_gaps.values()), threads),
        gaps=longest_gaps(trace, work, list(found_gaps.values()), window_steps, threads),
        steps=len(window_steps.start),
        serialization=kernels.serialization(trace, work),
        memory=memory(trace, threads.innermost),
        devices=devices,
        synchronizing=synchronizing(trace, host),
        several_ranks=waits is not None,
    )
    stray = int(np.count_nonzero(work.launched_at < 0))
    facts, ranks = trace.harness, trace.distributed
    told = side_advice(found) if finding.of_other_rank else advice(finding.label, found)
    report = WindowReport(
        harness_version=(facts.harness_version if facts is not None else None) or harness.__version__,
        source=trace.source.name,
        torch_version=trace.torch_version,
        devices=devices,
        rank=facts.rank if facts is not None and facts.rank is not None else ranks.rank if ranks else 0,
        world_size=facts.world_size
        if facts is not None and facts.world_size is not None
        else ranks.world_size
        if ranks
        else 1,
        window=_window(trace, window_steps, work, stray, lost_launches),
        steps=_step_rows(trace, window_steps),
        step_time=StepTime(profiled_median_us=window_steps.median_us, unprofiled_median_us=unprofiled),
        totals=_totals(trace, rows, work, sets, host, cost),
        device=[device_time(device, mine, sets[device], window_steps, step_us) for device, mine in on_device.items()],
        idle=found.idle,
        gaps=found.gaps,
        categories=trace.categories,
        operators=rows,
        operators_by_shape=by_shape,
        kernels=found.kernels,
        annotations=found.annotations,
        phases=phases(trace, work, window_steps),
        copies=found.copies,
        streams=kernels.streams(work),
        serialization=found.serialization,
        memory=msgspec.structs.replace(found.memory, advice=memory_advice(found)) if found.memory else None,
        roofline=roof,
        verdict=Verdict(
            label=finding.label,
            confidence=finding.confidence,
            evidence=finding.evidence,
            advice=_told_once([*(waits.advice if waits is not None else []), *told]),
        ),
    )
    return Analysis(report, divided, work, window_steps, input_share)


def _unprofiled_us(trace: Trace, step_ms: float | None) -> float | None:
    if step_ms is not None:
        return step_ms * 1000
    return (trace.harness.unprofiled_step_us or None) if trace.harness is not None else None


def _operators(trace: Trace, host: HostCalls, work: Work, cost: Cost) -> tuple[list[Operator], list[Operator]]:
    launched_by = np.full(len(trace), -1, np.int64)
    launched_by[work.event] = work.operator
    samples = host_samples(trace, host, launched_by, peak_during(trace, host), cost.flops)
    rows = operator_rows(trace, samples, work)
    by_shape = operator_rows(trace, samples, work, by_shape=True) if len(trace.signatures) else []
    return rows, by_shape


def _window(trace: Trace, found: Steps, work: Work, stray: int, lost_launches: int) -> Window:
    facts = trace.harness
    numbered = facts is not None and facts.first_step is not None
    warnings = list(trace.warnings)
    if not len(trace):
        warnings.append("the trace holds no complete event")
    ambiguous = ambiguous_launches(trace)
    if ambiguous:
        warnings.append(
            f"{ambiguous} launches share a correlation with another: what they launched counts for the first of them"
        )
    if facts is not None and facts.cut_short:
        warnings.append(f"recording ended early: {facts.cut_short}")
    if len(work.event) and not found.start.size:
        warnings.append("no step spans: shares are of the whole trace")
    return Window(
        first_step=int(found.number[0]) if len(found.number) and (numbered or found.name == "ProfilerStep") else None,
        steps=len(found.start),
        partial=facts.partial if facts is not None else False,
        lost_events=trace.lost_events,
        unattributed_device_events=stray,
        launches_without_work=lost_launches,
        cost_us=_cost_us(facts.cost) if facts is not None else None,
        warnings=warnings,
        passed_over=facts.passed_over if facts is not None else {},
        trigger=facts.trigger if facts is not None else None,
        cause=facts.cause if facts is not None else None,
    )


def _cost_us(cost: dict[str, Any] | None) -> float | None:
    """None unless the harness knew every part of it."""
    parts = [part for part in (cost or {}).values() if isinstance(part, (int, float))]
    return float(sum(parts)) if cost and len(parts) == len(cost) else None


def _step_rows(trace: Trace, found: Steps) -> list[StepRow]:
    return [
        StepRow(
            number=number,
            start_us=(start - trace.start) / 1000,
            duration_us=duration / 1000,
            device_busy_us=busy / 1000,
            host_us=(end - start) / 1000,
        )
        for number, start, end, duration, busy in zip(
            *(column.tolist() for column in (found.number, found.start, found.end, found.duration, found.busy)),
            strict=True,
        )
    ]


def _totals(
    trace: Trace, rows: list[Operator], work: Work, sets: dict[int, DeviceSets], host: HostCalls, cost: Cost
) -> Totals:
    return Totals(
        cpu_time_us=sum(row.self_cpu_time_us for row in rows),
        device_time_us=int((work.end - work.start).sum()) / 1000,
        device_busy_us=sum(s.busy.total for s in sets.values()) / 1000,
        device_span_us=sum(s.span for s in sets.values()) / 1000,
        flops=_outermost_flops(host, cost.flops),
        events=sum(trace.categories.values()),
        file_bytes=trace.file_bytes,
        json_bytes=trace.json_bytes,
    )


def _outermost_flops(host: HostCalls, flops: NDArray[np.float64]) -> float | None:
    """Sum over the calls with FLOPs that no other such call holds: aten::matmul and the aten::mm inside it
    are one product."""
    known = ~np.isnan(flops[host.event])
    if not known.any():
        return None
    held = np.zeros(len(known), bool)
    for level in range(1, int(host.calls.depth.max()) + 1):
        places = np.flatnonzero(host.calls.depth == level)
        above = host.calls.parent[places]
        held[places] = held[above] | known[above]
    return float(flops[host.event][known & ~held].sum())


def _input_share(trace: Trace, found: Steps) -> float | None:
    total = int((found.end - found.start).sum())
    return int(input_spans(trace).within(found.start, found.end).sum()) / total if total else None


def _devices(trace: Trace, work: Work) -> list[DeviceInfo]:
    """Devices that worked in the window, then those that only the header names."""
    known = {d.id: d for d in trace.devices}
    used = work.devices
    result = []
    for index in [*used, *(i for i in known if i not in used)]:
        device = known.get(index)
        capable = device is not None and device.major is not None and device.minor is not None
        result.append(
            DeviceInfo(
                index=index,
                name=device.name if device is not None else "unknown",
                total_memory_bytes=device.total_memory if device is not None else None,
                compute_capability=f"{device.major}.{device.minor}" if capable and device is not None else None,
                multiprocessors=device.multiprocessors if device is not None else None,
            )
        )
    return result


def _told_once(found: list[Advice]) -> list[Advice]:
    """Without what another rank's trace has advised already."""
    told: list[Advice] = []
    for one in found:
        if not any(
            one.lever == other.lever and {one.operator, one.reason} & {other.operator, other.reason} for other in told
        ):
            told.append(one)
    return told
