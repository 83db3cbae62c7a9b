"""Folded call stacks: what flame graphs are drawn from, as `torch.profiler.export_stacks` writes it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from harness.trace.file.reader import Kind, Trace
from harness.trace.measure.calls import nest


def folded_stacks(trace: Trace) -> Iterator[tuple[str, int]]:
    """Each call path, outermost first and joined by `;`, with its self CPU time in the window, ns.

    Python functions (`with_stack`) with the operators that they call. A function that was running when the window began
    counts from the window's first operator or annotation on. Paths of less than a microsecond in all are left out.
    """
    at = trace.of(Kind.PYTHON, Kind.OPERATOR)
    if not len(at) or not len(trace.of(Kind.PYTHON)):
        return
    edges = trace.of(Kind.OPERATOR, Kind.ANNOTATION)
    begin = int(trace.ts[edges].min()) if len(edges) else int(trace.ts[at].min())
    at = at[trace.end[at] > begin]
    start, end = np.maximum(trace.ts[at], begin), trace.end[at]
    calls = nest(start, end, trace.thread[at])
    duration = (end - start)[calls.event]
    own = duration - calls.child_sums(duration)
    names = trace.name[at][calls.event]
    # A caller stands before what it calls, so its node is known by then.
    nodes: dict[tuple[int, int], int] = {}
    times: list[int] = []
    node_of: list[int] = []
    for name, parent, time in zip(names.tolist(), calls.parent.tolist(), own.tolist(), strict=True):
        key = (node_of[parent] if parent >= 0 else -1, name)
        node = nodes.setdefault(key, len(nodes))
        if node == len(times):
            times.append(0)
        times[node] += max(time, 0)
        node_of.append(node)
    paths: list[str] = []
    for (above, name), time in zip(nodes, times, strict=True):
        # A semicolon would end the frame.
        frame = trace.names[name].replace(";", ":").replace("\n", " ")
        paths.append(f"{paths[above]};{frame}" if above >= 0 else frame)
        if time >= 1000:
            yield paths[-1], time
