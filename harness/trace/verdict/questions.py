"""What bounds the step: questions in order, each with its measure, threshold and answer.

1. No device in use: is most of the step spent fetching input? Else the host's own work bounds it.
2. Is the device waited for, that is, is it busy for less than the threshold? Time between kernels that were
   already queued counts as the device's own. If so, what is it waiting for: the largest of input, a
   synchronisation, the host's launches, an exposed copy, another rank.
3. A busy device: is the largest part of its time an exposed copy, or exposed communication?
   Where several ranks' traces tell waiting from transfer, only transfer is communication. A step that mostly waits
   for a rank that is late is bound by whatever makes that rank late; where ranks are late in turn nothing is said.
4. Else it computes or moves memory: the roofline tells, if it covers enough of the kernels' time.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from harness.trace.measure.shares import Shares
from harness.trace.schema import Evidence, Roofline, VerdictLabel
from harness.trace.thresholds import BUSY, COVERAGE, DOUBT, INPUT_ON_CPU

Wait = Literal["input", "sync", "host", "copy", "communication", "waiting"]
LABEL_OF_WAIT: dict[Wait, VerdictLabel] = {
    "input": "input-bound",
    "sync": "sync-bound",
    "host": "overhead-bound",
    "copy": "copy-bound",
    "communication": "communication-bound",
    "waiting": "undetermined",
}
MEANING: dict[Wait, str] = {
    "input": "share of the step that the device is idle while the loop fetches input",
    "sync": "share of the step that the device is idle because the host had waited for it",
    "host": "share of the step that the device is idle because the host launches too late",
    "copy": "share of the step in copies with nothing beside them",
    "communication": "share of the step in communication with no computation beside it",
    "waiting": "share of the step in collectives that other ranks have not joined, each of them late in its turn",
}
IDLE: tuple[Wait, ...] = ("input", "sync", "host")
EXPOSED: tuple[Wait, ...] = ("copy", "communication", "waiting")
# Of a confidence, for what the trace leaves open.
TRACED_TIME_ONLY = 0.8
KERNELS_BY_NAME = 0.8
DAMAGED = 0.8


class Finding(NamedTuple):
    label: VerdictLabel
    confidence: float
    evidence: list[Evidence]
    of_other_rank: bool = False
    """The label is that of the rank for which this one waits."""


class Late(NamedTuple):
    """The rank that the others wait for."""

    rank: int
    label: VerdictLabel
    """What makes it late."""
    reason: str
    """In words."""


class HostShares(NamedTuple):
    """Fractions of the step on a host without a device, as far as several ranks tell them."""

    input: float
    compute: float
    communication: float
    """Exposed transfer."""
    waiting: float
    """Exposed, in a collective that another rank has not joined."""


def judge_host(input_share: float | None, shares: HostShares | None = None, late: Late | None = None) -> Finding:
    """The verdict on a trace without device work. input_share: of the steps; None where there are
    no steps. shares: where collectives tell more."""
    if shares is not None:
        own = max(1 - shares.communication - shares.waiting, 0.0)
        asked: tuple[tuple[Wait, float], ...] = (("communication", shares.communication), ("waiting", shares.waiting))
        for wait, share in asked:
            other = max(own, shares.communication + shares.waiting - share)
            if share > other:
                measure, label, meaning = _wait(wait, late)
                evidence = [
                    Evidence("device events", 0, 1, "no device is in use"),
                    Evidence(measure, share, other, meaning),
                ]
                return Finding(label, _ahead(share, other), evidence, wait == "waiting")
    if input_share is None:
        return Finding("cpu-bound", 0.5, [Evidence("device events", 0, 1, "no device is in use")])
    evidence = [
        Evidence("device events", 0, 1, "no device is in use"),
        Evidence("input", input_share, INPUT_ON_CPU.value, "share of the step spent fetching input"),
    ]
    if input_share >= INPUT_ON_CPU.value:
        return Finding("input-bound", input_share, evidence)
    return Finding("cpu-bound", 1 - input_share, evidence)


def judge(shares: Shares, roof: Roofline | None, *, damaged: bool, late: Late | None = None) -> Finding:
    """The verdict on a device's share of a step. late: the rank for which it waits."""
    finding = _judge(shares, roof, late)
    confidence = finding.confidence * (DAMAGED if damaged else 1.0)
    return finding._replace(confidence=round(min(confidence, 1.0), 3))


def _judge(shares: Shares, roof: Roofline | None, late: Late | None) -> Finding:
    own = shares.busy + shares.dependency
    waits: dict[Wait, float] = {wait: getattr(shares, wait) for wait in LABEL_OF_WAIT}
    if not shares.waiting:
        del waits["waiting"]
    evidence = [
        Evidence(
            "device busy",
            own,
            BUSY.value,
            "share of the "
            + ("unprofiled " if shares.unprofiled else "traced ")
            + "step that the device works or passes from one queued kernel to the next"
            + (", waiting for other ranks not counted" if shares.waiting else ""),
        )
    ]
    idle = {wait: waits[wait] for wait in IDLE}
    exposed = {wait: waits[wait] for wait in EXPOSED if wait in waits}
    if own < BUSY.value:
        # Idleness as a whole against what the device does instead of computing, then its largest reason.
        if shares.unexplained > max(waits.values()):
            evidence.append(
                Evidence("unexplained idle", shares.unexplained, max(waits.values()), "no traced gap tells why")
            )
            return Finding("undetermined", 1 - shares.unexplained, evidence)
        asked = idle if sum(idle.values()) >= max(exposed.values()) else exposed
        return _waiting(shares, waits, asked, evidence, late)
    largest = max(exposed, key=lambda wait: exposed[wait])
    for wait, share in exposed.items():
        measure, _, meaning = _wait(wait, late)
        evidence.append(Evidence(measure, share, shares.compute, meaning))
    if exposed[largest] > shares.compute:
        label, confidence = _wait(largest, late)[1], _ahead(exposed[largest], shares.compute)
        return Finding(label, confidence, evidence, largest == "waiting")
    return _working(shares, roof, evidence)


def _wait(wait: Wait, late: Late | None) -> tuple[str, VerdictLabel, str]:
    """Measure, label and meaning."""
    if wait != "waiting" or late is None:
        return wait, LABEL_OF_WAIT[wait], MEANING[wait]
    meaning = f"share of the step in collectives that rank {late.rank} has not joined; {late.reason}"
    return f"waiting for rank {late.rank}", late.label, meaning


def _waiting(
    shares: Shares, waits: dict[Wait, float], asked: dict[Wait, float], evidence: list[Evidence], late: Late | None
) -> Finding:
    cause = max(asked, key=lambda wait: asked[wait])
    runner_up = max(share for wait, share in waits.items() if wait != cause)
    for wait, share in waits.items():
        measure, _, meaning = _wait(wait, late)
        evidence.append(Evidence(measure, share, runner_up if wait == cause else waits[cause], meaning))
    confidence = _ahead(waits[cause], max(runner_up, 0.0))
    if cause == "host" and not shares.unprofiled:
        evidence.append(
            Evidence(
                "device busy, doubt",
                shares.busy,
                DOUBT.value,
                "no unprofiled step time: above this share the profiler alone may be what made the host late",
            )
        )
        if shares.busy >= DOUBT.value:
            return Finding("undetermined", confidence * TRACED_TIME_ONLY / 2, evidence)
        confidence *= TRACED_TIME_ONLY
    return Finding(_wait(cause, late)[1], confidence, evidence, cause == "waiting")


def _working(shares: Shares, roof: Roofline | None, evidence: list[Evidence]) -> Finding:
    coverage = roof.coverage if roof is not None else 0.0
    evidence.append(
        Evidence(
            "roofline coverage",
            coverage,
            COVERAGE.value,
            "share of kernel time known to compute or to move memory"
            if roof is not None
            else "no peaks are known for this device, so no roofline",
        )
    )
    if roof is None or coverage < COVERAGE.value:
        return Finding("device-bound", shares.busy, evidence)
    known = roof.compute_bound_us + roof.memory_bound_us
    computing = roof.compute_bound_us / known
    evidence.append(
        Evidence("computing", computing, 0.5, "share of the known kernel time that arithmetic bounds, not memory")
    )
    by_name = KERNELS_BY_NAME if roof.shape_coverage < coverage / 2 else 1.0
    if computing >= 0.5:
        return Finding("compute-bound", computing * by_name, evidence)
    return Finding("memory-bound", (1 - computing) * by_name, evidence)


def _ahead(first: float, second: float) -> float:
    """How far the first of two shares is ahead, 0.5 for a tie."""
    return first / (first + second) if first + second else 0.5
