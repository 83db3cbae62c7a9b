"""What the harness found, as rows of the timeline: steps, why a device was idle, memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.report.words import IDLE
from harness.trace import Trace
from harness.trace.file.columns import Kind
from harness.trace.measure.device_time import CAUSES, Gaps, device_sets, gaps
from harness.trace.measure.launches import Work, device_work
from harness.trace.measure.operators import CPU_DEVICE_TYPES
from harness.trace.measure.steps import Steps, steps

Ints = NDArray[np.int64]

HOST = -1
_MOST_NAMES = 20_000
_DAY = 86_400 * 10**9
_json = msgspec.json.Encoder().encode


class Marks(NamedTuple):
    """Slices of a finding, as columns of one length; times in ns."""

    device: int
    """HOST for the host."""
    start: Ints
    end: Ints
    names: list[str]
    arguments: list[bytes]
    """JSON objects."""


class Curve(NamedTuple):
    """Bytes of one allocator over time."""

    device: int
    """HOST for the host."""
    name: str
    ts: Ints
    """ns"""
    value: Ints


class Overlay(NamedTuple):
    """Rows that the harness lays over those of the file."""

    steps: Marks
    idle: list[Marks]
    """Of each device."""
    memory: list[Curve]
    spots: dict[str, dict[str, tuple[int, int]]]
    """When (start and duration, ns) each step was, and the longest call of each kernel and operator, by name."""


def findings(trace: Trace) -> Overlay:
    """Of a whole trace."""
    work = device_work(trace)
    found = steps(trace, work)
    idle = []
    for device in work.devices:
        mine = work.on(device)
        idle.append(_idle(trace, mine, gaps(trace, mine, device_sets(mine), device), found))
    spans = zip(found.number.tolist(), found.start.tolist(), (found.end - found.start).tolist(), strict=True)
    spots = {
        "step": {str(number): (start, duration) for number, start, duration in spans},
        "kernel": _longest(trace, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET),
        "operator": _longest(trace, Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME, Kind.OVERHEAD),
    }
    return Overlay(_steps(found), idle, _memory(trace), spots)


def _steps(found: Steps) -> Marks:
    described = zip(*(column.tolist() for column in (found.duration, found.busy)), strict=True)
    return Marks(
        device=HOST,
        start=found.start,
        end=found.end,
        names=[f"step {number}" for number in found.number.tolist()],
        arguments=[
            _json(
                {"until the device is done, since the step before (µs)": lasts / 1000, "device busy (µs)": busy / 1000}
            )
            for lasts, busy in described
        ],
    )


def _idle(trace: Trace, mine: Work, found: Gaps, window: Steps) -> Marks:
    step = window.of(mine.launched_at[found.next])
    names = [trace.names[name] for name in trace.name[mine.event[found.next]].tolist()]
    arguments = []
    for parts, before, place in zip(found.parts.tolist(), names, step.tolist(), strict=True):
        told: dict[str, Any] = {"reasons (µs)": {IDLE[c]: ns / 1000 for c, ns in zip(CAUSES, parts, strict=True) if ns}}
        told["ended by"] = before
        if place >= 0:
            told["step"] = int(window.number[place])
        arguments.append(_json(told))
    reasons = found.parts.argmax(axis=1).tolist()
    return Marks(found.device, found.start, found.end, [f"idle: {IDLE[CAUSES[i]]}" for i in reasons], arguments)


def _memory(trace: Trace) -> list[Curve]:
    """Allocated and reserved bytes of each allocator that tells them."""
    events = trace.allocations
    near = np.abs(events.ts - trace.start) < _DAY
    device = np.where(np.isin(events.device_type, CPU_DEVICE_TYPES), HOST, events.device)
    curves = []
    for index in np.unique(device).tolist():
        for name, values in (("memory allocated", events.allocated), ("memory reserved", events.reserved)):
            at = np.flatnonzero(near & (device == index) & (values >= 0))
            if values[at].any():
                curves.append(Curve(int(index), name, events.ts[at], values[at]))
    return curves


def _longest(trace: Trace, *kinds: Kind) -> dict[str, tuple[int, int]]:
    at = trace.of(*kinds)
    names, label = trace.labels
    at = at[np.lexsort((trace.dur[at], label[at]))]
    last = at[np.flatnonzero(np.diff(label[at], append=-1))][:_MOST_NAMES]
    columns = (label[last], trace.ts[last], trace.dur[last])
    return {names[i]: (ts, dur) for i, ts, dur in zip(*(column.tolist() for column in columns), strict=True)}
