"""Who called whom on the host: nesting of spans on a thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Calls(NamedTuple):
    """A forest of spans in preorder: by lane, then by start, the longer first."""

    event: Ints
    """Which span stands at each place: indices into what was nested."""
    parent: Ints
    """Place of the caller; -1 at the top."""
    depth: Ints

    def sums(self, own: Ints) -> Ints:
        """`own` of each place plus that of everything beneath it."""
        total = own.copy()
        by_depth = np.argsort(self.depth, kind="stable")
        bounds = np.searchsorted(self.depth[by_depth], np.arange(self.depth.max(initial=0) + 2))
        for level in range(len(bounds) - 2, 0, -1):
            places = by_depth[bounds[level] : bounds[level + 1]]
            np.add.at(total, self.parent[places], total[places])
        return total

    def child_sums(self, values: Ints) -> Ints:
        """Sum of `values` over the direct children of each place."""
        total = np.zeros(len(values), np.int64)
        called = self.parent >= 0
        np.add.at(total, self.parent[called], values[called])
        return total


def nest(start: Ints, end: Ints, lane: Ints) -> Calls:
    """Nests the spans of each lane the way torch does (`EventList._populate_cpu_children`).

    A span's caller is the innermost earlier span that holds it whole. One that crosses the end of an open
    span closes it: nothing later is called by that one. Linear in the number of spans, but for sorting.
    """
    if not len(start):
        return Calls(start, start, start)
    origin = int(start.min())
    width = int(end.max()) - origin + 1
    if width * (int(lane.max()) + 1) >= 2**63:  # days of thousands of lanes: their order is all that counts
        _, ranks = np.unique(np.concatenate((start, end)), return_inverse=True)
        return nest(ranks[: len(start)], ranks[len(start) :], lane)
    key = lane * width + (start - origin)
    order = np.argsort(key, kind="stable")
    ties = key[order][1:] == key[order][:-1]
    if np.any(ties & (end[order][1:] > end[order][:-1])):
        order = np.lexsort((-end, key))
    start, end, lane, key = start[order], end[order], lane[order], key[order]
    depth = _depths(key, key + (end - start))
    parent = _parents(depth)
    crossed = (parent >= 0) & (end > end[parent])
    if crossed.any():
        # Where nothing is open the forest falls apart; only the trees with a crossing are nested by hand.
        tree = np.cumsum(depth == 0)
        places = np.flatnonzero(np.isin(tree, np.unique(tree[crossed])))
        local, depth[places] = _by_stack(start[places].tolist(), end[places].tolist(), tree[places].tolist())
        parent[places] = np.where(local >= 0, places[local], -1)
    return Calls(order, parent, depth)


def _depths(start: Ints, end: Ints) -> Ints:
    """Open spans before each, for properly nested spans in preorder."""
    closed = np.searchsorted(np.sort(end), start, "right")
    # An empty span is counted as closed from its own place on, not from the start that it shares with others.
    empties = np.concatenate(([0], np.cumsum(end == start)))
    if empties[-1]:
        same_start_until = np.searchsorted(start, start, "right")
        closed -= empties[same_start_until] - empties[:-1]
    return np.arange(len(start)) - closed


def _parents(depth: Ints) -> Ints:
    """The last place before each that is one level up."""
    parent = np.full(len(depth), -1, np.int64)
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[by_depth], np.arange(depth.max() + 2))
    for level in range(1, len(bounds) - 1):
        above = by_depth[bounds[level - 1] : bounds[level]]
        places = by_depth[bounds[level] : bounds[level + 1]]
        if len(above):
            parent[places] = above[np.maximum(np.searchsorted(above, places) - 1, 0)]
    return parent


def _by_stack(start: list[int], end: list[int], tree: list[int]) -> tuple[Ints, Ints]:
    """Parents and depths of spans that may cross."""
    parent, depth = [-1] * len(start), [0] * len(start)
    open_spans: list[int] = []
    current = -1
    for i, (begins, ends, root) in enumerate(zip(start, end, tree, strict=True)):
        if root != current:
            open_spans, current = [], root
        while open_spans and (begins >= end[open_spans[-1]] or ends > end[open_spans[-1]]):
            open_spans.pop()
        if open_spans:
            parent[i], depth[i] = open_spans[-1], len(open_spans)
        open_spans.append(i)
    return np.array(parent, np.int64), np.array(depth, np.int64)
