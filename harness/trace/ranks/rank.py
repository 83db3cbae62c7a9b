"""What one rank's trace says that the other ranks' are held against. Made in a process of its own, so it is small."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from harness.trace.analyze import analysis
from harness.trace.figures import operator_times
from harness.trace.file.columns import Trace
from harness.trace.measure.collectives import Collectives, collectives, host_compute
from harness.trace.measure.device_time import INPUT, input_spans
from harness.trace.measure.intervals import Spans, union
from harness.trace.measure.operators import communicates
from harness.trace.measure.shares import Shares
from harness.trace.measure.steps import Steps
from harness.trace.schema import LateReason, WindowReport
from harness.trace.verdict.questions import HostShares

OPERATORS_KEPT = 40
_HOST = re.compile(r"(.+)_\d+\.(?:\d+\.)?pt\.trace\.json")
_IDLE: dict[str, LateReason] = {"host_late": "host", "sync": "sync", "input": "input"}


@dataclass(frozen=True)
class RankFindings:
    """One rank's own findings; times of one step in microseconds."""

    report: WindowReport
    host: str | None
    shares: Shares | None
    host_shares: HostShares | None
    """Of a host without a device; its communication still holds the waiting."""
    times: dict[LateReason, float]
    """What may make a rank late."""
    where: dict[LateReason, str]
    """The span or call with most of it."""
    operators: dict[str, float]
    """Self times of the longest operators, without those that communicate."""
    collectives: Collectives
    exposed_ns: int
    """Communication in the window with nothing computed beside it."""


def rank_findings(trace: Trace, step_ms: float | None = None) -> RankFindings:
    """Analyze one rank's trace."""
    found = analysis(trace, step_ms=step_ms)
    report, shares = found.report, found.shares
    calls = collectives(trace, found.work, found.steps)
    busy = union(calls.start, calls.end)
    exposed = busy.total - busy.overlap(calls.compute)
    if shares is not None:
        host_shares, times = None, _device_times(shares)
    else:
        host_shares, times = _host(trace, found.steps, busy)
    operators = {name: us for name, us in operator_times(report).items() if not communicates(name)}
    longest = sorted(operators, key=lambda name: -operators[name])[:OPERATORS_KEPT]
    match = _HOST.match(trace.source.name)
    return RankFindings(
        report=report,
        host=match[1] if match else None,
        shares=shares,
        host_shares=host_shares,
        times=times,
        where=_where(report),
        operators={name: operators[name] for name in longest},
        collectives=calls,
        exposed_ns=exposed,
    )


def _device_times(shares: Shares) -> dict[LateReason, float]:
    own: dict[LateReason, float] = {
        "input": shares.input,
        "sync": shares.sync,
        "host": shares.host,
        "copy": shares.copy,
        "compute": shares.compute,
    }
    return {reason: share * shares.step_us for reason, share in own.items()}


def _host(trace: Trace, steps: Steps, communication: Spans) -> tuple[HostShares | None, dict[LateReason, float]]:
    """Input, operators and communication of the steps, each without what stands before it; the rest is the host's
    own time."""
    if not len(steps.start):
        return None, {}
    inside = Spans(steps.start, steps.end)
    feeding, computing = input_spans(trace), host_compute(trace)
    computed = union(np.concatenate((feeding.start, computing.start)), np.concatenate((feeding.end, computing.end)))
    known = union(
        np.concatenate((computed.start, communication.start)), np.concatenate((computed.end, communication.end))
    )
    whole = inside.total
    if not whole:
        return None, {}
    fed, worked, covered = (int(spans.within(inside.start, inside.end).sum()) for spans in (feeding, computed, known))
    parts = HostShares(
        input=fed / whole,
        compute=(worked - fed) / whole,
        communication=(covered - worked) / whole,
        waiting=0.0,
    )
    step_us = whole / len(steps.start) / 1000
    rest = 1 - covered / whole
    times: dict[LateReason, float] = {
        "input": parts.input * step_us,
        "compute": parts.compute * step_us,
        "host": rest * step_us,
    }
    return parts, times


def _where(report: WindowReport) -> dict[LateReason, str]:
    """What the host was in while it kept the device waiting; the loader's span on a host without a device."""
    where = {_IDLE[row.reason]: row.host[0].name for row in report.idle if row.reason in _IDLE and row.host}
    loaders = [row for row in report.annotations if INPUT.search(row.name)]
    if loaders and "input" not in where:
        where["input"] = max(loaders, key=lambda row: row.host_us).name
    if report.copies:
        where["copy"] = max(report.copies, key=lambda row: row.time_us - row.hidden_us).name
    return where
