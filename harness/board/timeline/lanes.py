"""Slices of one thread, nested: Perfetto silently drops every slice that crosses the end of another on its track."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Marks(NamedTuple):
    """Begins and ends of slices; columns of one length. On each lane they are in order and well bracketed."""

    event: Ints
    """Which slice: an index into what was nested."""
    is_end: Bools
    ts: Ints
    """ns"""
    lane: Ints
    """0 is the thread's own; crossing slices stand on further ones."""


class Nested(NamedTuple):
    marks: Marks
    moved: int
    """Slices that stand on a lane other than the first."""
    clipped: int
    """Slices that end early."""


def nested(start: Ints, end: Ints, flexible: Bools) -> Nested:
    """Brackets the slices of one thread without losing one.

    A slice that crosses the end of another goes to the first lane on which it crosses none. Where one of the two
    is flexible, a Python frame, whose times are less exact than those of what it calls, that one ends early instead.

    Args:
        start: ns, any order.
        end: ns, at or after the start.
        flexible: May end early.
    """
    order = np.lexsort((~flexible, -end, start))
    events, lanes = order.tolist(), _Lanes()
    for event, begins, ends, bends in zip(
        events, start[order].tolist(), end[order].tolist(), flexible[order].tolist(), strict=True
    ):
        lanes.place(event, begins, ends, bends)
    lanes.close()
    marks = np.array(lanes.marks, np.int64).reshape(-1, 4).T
    return Nested(Marks(marks[0], marks[1].astype(bool), marks[2], marks[3]), lanes.moved, lanes.clipped)


class _Open:
    """A slice that has begun."""

    __slots__ = ("bends", "end", "event")

    def __init__(self, event: int, end: int, bends: bool) -> None:
        self.event, self.end, self.bends = event, end, bends


class _Lanes:
    """Stacks of open slices, one a lane; slices come in the order of their starts, the longer first."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, bool, int, int]] = []
        self.moved = self.clipped = 0
        self._stacks: list[list[_Open]] = [[]]

    def place(self, event: int, begins: int, ends: int, bends: bool) -> None:
        for lane, stack in enumerate(self._stacks):
            while stack and stack[-1].end <= begins:
                self._end(lane, stack.pop())
            if not stack or ends <= stack[-1].end:
                break
            if bends:
                ends = stack[-1].end
                self.clipped += 1
                break
            if self._clears(lane, stack, begins, ends):
                break
        else:
            lane, stack = len(self._stacks), []
            self._stacks.append(stack)
        self.moved += lane > 0
        stack.append(_Open(event, ends, bends))
        self.marks.append((event, False, begins, lane))

    def close(self) -> None:
        for lane, stack in enumerate(self._stacks):
            while stack:
                self._end(lane, stack.pop())

    def _clears(self, lane: int, stack: list[_Open], begins: int, ends: int) -> bool:
        """Whether ending flexible slices now makes room; they end then."""
        crossed = [slice for slice in stack if slice.end < ends]
        if not all(slice.bends for slice in crossed):
            return False
        for slice in reversed(crossed):
            slice.end = begins
            self.clipped += 1
            self._end(lane, slice)
        del stack[len(stack) - len(crossed) :]
        return True

    def _end(self, lane: int, slice: _Open) -> None:
        self.marks.append((slice.event, True, slice.end, lane))
