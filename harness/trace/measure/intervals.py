"""Sets of half-open intervals [start, end) in int64 ns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Spans(NamedTuple):
    """Disjoint intervals in ascending order."""

    start: Ints
    end: Ints

    @property
    def total(self) -> int:
        return int((self.end - self.start).sum())

    def until(self, t: Ints) -> Ints:
        """How much of (-inf, t) the spans cover, for each t."""
        if not len(self.start):
            return np.zeros(len(t), np.int64)
        lengths = self.end - self.start
        before = np.concatenate(([0], np.cumsum(lengths)))
        last = np.searchsorted(self.start, t, "right")
        inside = np.minimum(t - self.start[last - 1], lengths[last - 1])
        return np.where(last > 0, before[last - 1] + inside, 0)

    def within(self, start: Ints, end: Ints) -> Ints:
        """How much of each [start, end) the spans cover."""
        return self.until(end) - self.until(start)

    def overlap(self, other: Spans) -> int:
        """Length of the intersection."""
        return int(other.within(self.start, self.end).sum())

    def gaps(self) -> Spans:
        """What lies between the spans."""
        return Spans(self.end[:-1], self.start[1:])


def totals_by_group(start: Ints, end: Ints, group: Ints, groups: int) -> Ints:
    """Length of the union of each group's intervals. group: 0 to groups - 1; others are left out."""
    chosen = (group >= 0) & (group < groups) & (end > start)
    total = np.zeros(groups, np.int64)
    if not chosen.any():
        return total
    start, end, group = start[chosen], end[chosen], group[chosen]
    origin = int(start.min())
    width = int(end.max()) - origin + 1  # more than any interval reaches: groups never touch
    spans = union(group * width + (start - origin), group * width + (end - origin))
    np.add.at(total, spans.start // width, spans.end - spans.start)
    return total


def union(start: Ints, end: Ints) -> Spans:
    """The union of intervals in any order; those that touch become one, empty ones vanish."""
    kept = end > start
    start, end = start[kept], end[kept]
    if not len(start):
        return Spans(start, end)
    order = np.argsort(start, kind="stable")
    start, end = start[order], np.maximum.accumulate(end[order])
    first = np.concatenate(([True], start[1:] > end[:-1]))
    last = np.concatenate((first[1:], [True]))
    return Spans(start[first], end[last])
