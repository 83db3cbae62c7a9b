"""The steps of a window, and how long each took.

A step ends when the host has left its span and the device has finished everything launched up to then; it
lasts from the end of the step before, the first from the later of its own start and the end of what earlier
steps had put on the device. So a step that only enqueues is as long as its kernels, a step whose host is slow
is as long as its span, and the durations add up to the window.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.calls import nest
from harness.trace.measure.intervals import totals_by_group
from harness.trace.measure.launches import Work
from harness.trace.measure.operators import is_collective

Ints = NDArray[np.int64]

PROFILER_STEP = re.compile(r"ProfilerStep#([0-9]+)$")
_MOST_DIGITS = 18
"""Of a step's number; more do not fit, and no job comes to them."""
# Annotations that torch writes by itself inside a step, and that are no step.
PART_OF_A_STEP = re.compile(r"Optimizer\.|enumerate\(DataLoader\)|enumerate\(DataPipe\)|DistributedDataParallel\.|FSDP")


class Steps(NamedTuple):
    """Step spans in order; columns of one length, ns."""

    number: Ints
    start: Ints
    end: Ints
    """Of the host's span."""
    duration: Ints
    busy: Ints
    """Union of the device events that the step launched, on its busiest device."""
    name: str | None
    """The annotation's name; None where there are no steps."""

    @property
    def median_us(self) -> float | None:
        return float(np.median(self.duration)) / 1000 if len(self.duration) else None

    def of(self, t: Ints) -> Ints:
        """Position of the step during which each t falls, up to the start of the next; -1 before the first,
        after the end of the last, and for negative t."""
        if not len(self.start):
            return np.full(len(t), -1, np.int64)
        position = np.searchsorted(self.start, t, "right") - 1
        return np.where((t >= 0) & (t < self.end[-1]), position, -1)


def steps(trace: Trace, work: Work) -> Steps:
    """ProfilerStep spans, or else the annotation that recurs at the top level and holds most of the time."""
    at, name = _step_spans(trace)
    start, end = trace.ts[at], trace.end[at]
    number = _numbers(trace, at)
    empty = np.zeros(len(at), np.int64)
    result = Steps(number, start, end, empty, empty, name)
    if not len(at):
        return result
    owner = result.of(work.launched_at)
    done = np.maximum.accumulate(np.maximum(end, _last_end(owner, work.end, len(at))))
    earlier = work.end[(owner < 0) & (work.start < done[0])]
    begin = max(int(start[0]), min(int(earlier.max(initial=start[0])), int(done[0])))
    busy = np.zeros(len(at), np.int64)
    for device in work.devices:
        mine = work.device == device
        busy = np.maximum(busy, totals_by_group(work.start[mine], work.end[mine], owner[mine], len(at)))
    return result._replace(duration=np.diff(done, prepend=begin), busy=busy)


def _last_end(owner: Ints, end: Ints, count: int) -> Ints:
    last = np.zeros(count, np.int64)
    np.maximum.at(last, owner[owner >= 0], end[owner >= 0])
    return last


def _numbers(trace: Trace, at: Ints) -> Ints:
    first = trace.harness.first_step if trace.harness is not None else None
    if first is not None:
        return first + np.arange(len(at))
    matches = [PROFILER_STEP.match(trace.names[i]) for i in trace.name[at].tolist()]
    digits = [match[1] if match else "" for match in matches]
    if any(len(text) > _MOST_DIGITS for text in digits):
        return np.arange(len(at))
    return np.array([int(text) if text else i for i, text in enumerate(digits)], np.int64)


def _ours(trace: Trace, spans: Ints) -> Ints:
    """The spans of the steps that the harness has recorded whole.

    Where a recording ends, torch closes the span of a step that has not ended; and another scheduled profiler of torch
    in the process marks its own steps, with numbers of its own. Ours follow on each other, from the first one on.
    """
    facts = trace.harness
    if facts is None or facts.steps is None or facts.first_step is None or len(spans) <= facts.steps:
        return spans
    numbers = [trace.names[i].partition("#")[2] for i in trace.name[spans].tolist()]
    found: list[int] = []
    before = int(trace.ts[spans[0]])
    for number in range(facts.first_step, facts.first_step + facts.steps):
        named = [span for span, text in zip(spans.tolist(), numbers, strict=True) if text == str(number)]
        if not named:
            # Not numbered as the harness does it.
            return spans[: facts.steps]
        found.append(min(named, key=lambda span: abs(int(trace.ts[span]) - before)))
        before = int(trace.end[found[-1]])
    return np.array(found, np.int64)


def _step_spans(trace: Trace) -> tuple[Ints, str | None]:
    annotations = trace.of(Kind.ANNOTATION)
    annotations = annotations[np.argsort(trace.ts[annotations], kind="stable")]
    steps = annotations[trace.named(annotations, PROFILER_STEP.match)]
    if len(steps):
        return _ours(trace, steps), "ProfilerStep"
    part = trace.named(annotations, lambda name: PART_OF_A_STEP.match(name) or is_collective(name))
    annotations = annotations[~part]
    nested = nest(trace.ts[annotations], trace.end[annotations], trace.thread[annotations])
    top = annotations[nested.event[nested.parent < 0]]
    best, most = top[:0], 0
    for name in np.unique(trace.name[top]):
        spans = np.sort(top[trace.name[top] == name])
        spans = spans[np.argsort(trace.ts[spans], kind="stable")]
        apart = bool(np.all(trace.ts[spans][1:] >= trace.end[spans][:-1]))
        if len(spans) > 1 and apart and trace.dur[spans].sum() > most:
            best, most = spans, int(trace.dur[spans].sum())
    return best, trace.names[trace.name[best[0]]] if len(best) else None
