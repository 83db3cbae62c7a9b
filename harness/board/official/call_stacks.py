"""The Python lines that called each operator, from the functions recorded with `with_stack`."""

from __future__ import annotations

import re

import numpy as np

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.calls import nest

_LINE = re.compile(r"\(\d+\): ")
DEEPEST = 64
"""Frames that are kept, from the operator outwards."""


def call_stacks(trace: Trace) -> dict[int, str]:
    """For each operator with a caller in Python its frames, innermost first and joined by `;`, as torch 1.13 wrote
    them into `Call stack`. Keys are indices into the trace; equal stacks are one string."""
    operators = trace.of(Kind.OPERATOR)
    at = trace.of(Kind.PYTHON, Kind.OPERATOR)
    if not len(operators) or len(at) == len(operators):
        return {}
    start = np.maximum(trace.ts[at], int(trace.ts[operators].min()))
    calls = nest(start, np.maximum(trace.end[at], start), trace.thread[at])
    is_operator = (trace.kind[at] == Kind.OPERATOR)[calls.event].tolist()
    # Each place's stack is its caller's with one frame more, so every distinct stack is built once.
    stacks: dict[tuple[int, int], int] = {}
    frames: list[tuple[str, ...]] = [()]
    joined: list[str] = [""]
    of_place: list[int] = []
    found: dict[int, str] = {}
    for event, parent, operator in zip(at[calls.event].tolist(), calls.parent.tolist(), is_operator, strict=True):
        above = of_place[parent] if parent >= 0 else 0
        name = int(trace.name[event])
        if operator or not _LINE.search(trace.names[name]):
            of_place.append(above)
            if operator and above:
                found[event] = joined[above]
            continue
        key = (above, name)
        if key not in stacks:
            stacks[key] = len(frames)
            frames.append((trace.names[name].replace(";", ":"), *frames[above][: DEEPEST - 1]))
            joined.append(";".join(frames[-1]))
        of_place.append(stacks[key])
    return found
