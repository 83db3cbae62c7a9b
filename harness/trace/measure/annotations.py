"""Named spans: what each took on the host and on the device, and its share of the step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.calls import nest
from harness.trace.measure.intervals import union
from harness.trace.measure.launches import Work
from harness.trace.measure.steps import Steps
from harness.trace.schema import REST, Annotation, Phase

Ints = NDArray[np.int64]


def annotation_rows(trace: Trace, work: Work) -> list[Annotation]:
    """Each annotation's count, host time, device span and busy time, in order of appearance.

    A device event belongs to the calls that were open, on any thread, when it was launched: the backward pass
    is launched from another thread while the step that waits for it is open.
    """
    display, label = trace.labels
    at = trace.of(Kind.ANNOTATION)
    at = at[np.argsort(trace.ts[at], kind="stable")]
    order = np.argsort(work.launched_at, kind="stable")
    launched = work.launched_at[order]
    result = []
    for group in dict.fromkeys(label[at].tolist()):
        calls = at[label[at] == group]
        first = np.searchsorted(launched, trace.ts[calls], "left")
        last = np.searchsorted(launched, trace.end[calls], "left")
        launches = [order[lo:hi] for lo, hi in zip(first.tolist(), last.tolist(), strict=True) if hi > lo]
        mine = np.concatenate(launches) if launches else order[:0]
        result.append(
            Annotation(
                name=display[group],
                count=len(calls),
                host_us=int(trace.dur[calls].sum()) / 1000,
                device_span_us=sum(int(work.end[i].max() - work.start[i].min()) for i in launches) / 1000,
                device_busy_us=_busy(work.device[mine], work.start[mine], work.end[mine]) / 1000,
            )
        )
    return result


def _busy(device: Ints, start: Ints, end: Ints) -> int:
    return sum(union(start[device == d], end[device == d]).total for d in np.unique(device))


def phases(trace: Trace, work: Work, steps: Steps) -> list[Phase]:
    """Shares of the step: the annotations directly inside a step span on its thread, or inside the only one
    that fills it (`training_step`), and everything else."""
    spans = trace.of(Kind.ANNOTATION)
    display, label = trace.labels
    if not len(steps.start) or not len(spans):
        return []
    nested = nest(trace.ts[spans], trace.end[spans], trace.thread[spans])
    event = spans[nested.event]
    is_step = np.isin(trace.ts[event], steps.start) & np.isin(trace.end[event], steps.end)
    is_step &= (nested.parent < 0) | ~is_step[nested.parent]
    level = is_step
    inside = (nested.parent >= 0) & level[nested.parent]
    while np.count_nonzero(inside) == len(steps.start) and len(np.unique(label[event[inside]])) == 1:
        deeper = (nested.parent >= 0) & inside[nested.parent]
        if not deeper.any():
            break
        inside = deeper
    chosen = event[inside]
    host_total = int((steps.end - steps.start).sum())
    order = np.argsort(work.launched_at, kind="stable")
    order = order[steps.of(work.launched_at[order]) >= 0]
    launched = work.launched_at[order]
    time_until = np.concatenate(([0], np.cumsum((work.end - work.start)[order])))
    device_total = int(time_until[-1])
    result, host_rest, device_rest = [], host_total, device_total
    for group in dict.fromkeys(label[chosen].tolist()):
        calls = chosen[label[chosen] == group]
        covered = union(trace.ts[calls], trace.end[calls])
        host = covered.total
        first, last = (np.searchsorted(launched, edge, "left") for edge in covered)
        device = int((time_until[last] - time_until[first]).sum())
        host_rest, device_rest = host_rest - host, device_rest - device
        result.append(_phase(display[group], len(calls), host, host_total, device, device_total))
    if not result:
        return []
    return [
        *result,
        _phase(REST, len(steps.start), max(host_rest, 0), host_total, max(device_rest, 0), device_total),
    ]


def _phase(name: str, count: int, host: int, host_total: int, device: int, device_total: int) -> Phase:
    return Phase(
        name=name,
        count=count,
        host_us=host / 1000,
        host_share=host / host_total if host_total else 0.0,
        device_us=device / 1000,
        device_share=device / device_total if device_total else 0.0,
    )
