"""The rank that the others wait for, and why it is late."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.trace.measure.collectives import Collectives
from harness.trace.ranks.alignment import Aligned, exposed_wait
from harness.trace.ranks.rank import RankFindings
from harness.trace.schema import Advice, LateReason, Straggler, VerdictLabel
from harness.trace.thresholds import LAST, LATE
from harness.trace.verdict.questions import Late

LABEL_OF_REASON: dict[LateReason, VerdictLabel] = {
    "input": "input-bound",
    "sync": "sync-bound",
    "host": "overhead-bound",
    "copy": "copy-bound",
}
WORKING: tuple[VerdictLabel, ...] = ("compute-bound", "memory-bound", "device-bound", "cpu-bound")
WHY_LATE: dict[LateReason, str] = {
    "input": "its input",
    "sync": "waiting for its device",
    "host": "its host's own work",
    "copy": "its copies",
    "compute": "its computation",
}
"""In words, of a rank."""


def straggler(aligned: Aligned, ranks: Sequence[RankFindings], waiting_us: Sequence[float]) -> Straggler | None:
    """The rank with which most of the others' waiting ends; None where they wait little, or are late in turn.

    waiting_us: of each rank, exposed, in a step.
    """
    step_us = statistics.median(one.report.step_time.profiled_median_us or 0.0 for one in ranks)
    if not step_us or max(waiting_us) < LATE.value * step_us:
        return None
    caused = waiting_caused(aligned, [one.collectives for one in ranks])
    place = int(np.argmax(caused))
    share = float(caused[place] / caused.sum())
    if share < LAST.value:
        return None
    own, others = ranks[place], [one for i, one in enumerate(ranks) if i != place]
    reason, mine, theirs = _reason(own, others)
    steps = max(own.report.window.steps, 1)
    where = _slower_operator(own, others) if reason == "compute" else own.where.get(reason) if reason else None
    return Straggler(
        rank=own.report.rank,
        host=own.host,
        late_us=float(caused[place]) / 1000 / steps / len(others),
        share=share,
        reason=reason,
        own_us=mine,
        others_us=theirs,
        where=where,
        verdict=_label(own, reason),
    )


def waiting_caused(aligned: Aligned, tables: Sequence[Collectives]) -> NDArray[np.float64]:
    """ns that others had waited, exposed, when each rank joined as the last one; summed over the others. Collectives
    that wait side by side count once."""
    caused = np.zeros(len(tables))
    matched = aligned.instance >= 0
    last = np.full(int(aligned.instance.max(initial=-1)) + 1, -1)
    joined = matched & aligned.last
    last[aligned.instance[joined]] = aligned.rank[joined]
    for place, table in enumerate(tables):
        mine = aligned.of(place)
        waiting = aligned.wait[mine] > 0
        start, wait = table.start[waiting], aligned.wait[mine][waiting]
        waited_for = last[aligned.instance[mine][waiting]]
        for rank in np.unique(waited_for).tolist():
            chosen = waited_for == rank
            caused[rank] += exposed_wait(table, start[chosen], wait[chosen])
    return caused


def late(found: Straggler) -> Late:
    """The straggler as a verdict names it."""
    return Late(found.rank, found.verdict, _sentence(found))


def late_advice(found: Straggler, own: RankFindings) -> list[Advice]:
    """To look at that rank first, then what its own trace advises."""
    first = Advice(
        lever=f"rank {found.rank} is late",
        reason=f"The other ranks wait {found.late_us / 1000:.3g} ms a step for rank {found.rank}"
        + (f" on {found.host}" if found.host else "")
        + f", which is the last to join for {100 * found.share:.0f} % of all waiting; {_sentence(found)}. Faster "
        "communication gains nothing before that.",
    )
    verdict = own.report.verdict
    return [first, *(verdict.advice[:1] if verdict.label == found.verdict else [])]


def _sentence(found: Straggler) -> str:
    if found.reason is None:
        return "nothing in its own trace takes longer than in the others'"
    where = f", mostly in {found.where}" if found.where else ""
    return (
        f"{WHY_LATE[found.reason]} takes {found.own_us / 1000:.3g} ms a step and others' "
        f"{found.others_us / 1000:.3g} ms{where}"
    )


def _reason(own: RankFindings, others: Sequence[RankFindings]) -> tuple[LateReason | None, float, float]:
    """What the rank has most more of than the median of the others."""
    usual = {reason: statistics.median(one.times.get(reason, 0.0) for one in others) for reason in own.times}
    more = {reason: own.times[reason] - usual[reason] for reason in own.times}
    reason = max(more, key=lambda one: more[one], default=None)
    if reason is None or more[reason] <= 0:
        return None, 0.0, 0.0
    return reason, own.times[reason], usual[reason]


def _slower_operator(own: RankFindings, others: Sequence[RankFindings]) -> str | None:
    more = {
        name: us - statistics.median(one.operators.get(name, 0.0) for one in others)
        for name, us in own.operators.items()
    }
    return max(more, key=lambda name: more[name], default=None)


def _label(own: RankFindings, reason: LateReason | None) -> VerdictLabel:
    if own.shares is None:
        return "input-bound" if reason == "input" else "cpu-bound" if reason else "undetermined"
    if reason == "compute":
        return own.report.verdict.label if own.report.verdict.label in WORKING else "device-bound"
    return LABEL_OF_REASON[reason] if reason else "undetermined"
