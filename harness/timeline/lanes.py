"""Slices of one thread, nested: Perfetto silently drops every slice that crosses the end of another on its track."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Brackets(NamedTuple):
    """Begins and ends of slices; columns of one length. On each lane they are in order and well bracketed."""

    event: Ints
    """Which slice: an index into what was nested."""
    is_end: Bools
    ts: Ints
    """ns"""
    lane: Ints
    """0 is the thread's own; crossing slices stand on further ones."""


class Nested(NamedTuple):
    brackets: Brackets
    moved: int
    """Slices that stand on a lane other than the first."""
    clipped: int
    """Slices that end early."""


def nested(start: Ints, end: Ints, flexible: Bools) -> Nested:
    """Brackets the slices of one thread without losing one.

    A slice that crosses the end of another goes to the first lane on which it crosses none. Where just one of the two
    is flexible, as the frame of a Python function that opens a span or closes it, that one ends early instead.

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
    columns = np.array(lanes.brackets, np.int64).reshape(-1, 4).T
    return Nested(Brackets(columns[0], columns[1].astype(bool), columns[2], columns[3]), lanes.moved, lanes.clipped)


class _Open:
    """A slice that has begun."""

    __slots__ = ("bends", "end", "event", "meant")

    def __init__(self, event: int, end: int, meant: int, bends: bool) -> None:
        self.event, self.end, self.bends = event, end, bends
        self.meant = meant
        """Its own end, before anything cut it short."""


class _Lanes:
    """Stacks of open slices, one a lane; slices come in the order of their starts, the longer first."""

    def __init__(self) -> None:
        self.brackets: list[tuple[int, bool, int, int]] = []
        self.moved = self.clipped = 0
        self._stacks: list[list[_Open]] = [[]]

    def place(self, event: int, begins: int, ends: int, bends: bool) -> None:
        meant = ends
        for lane, stack in enumerate(self._stacks):
            while stack and stack[-1].end <= begins:
                self._end(lane, stack.pop())
            if not stack or ends <= stack[-1].end:
                break
            crossed = [slice for slice in stack if slice.end < ends]
            if bends and not any(slice.bends and slice.meant < ends for slice in crossed):
                ends = crossed[-1].end
                self.clipped += 1
                break
            if not bends and all(slice.bends for slice in crossed):
                self._end_early(lane, stack, len(crossed), begins)
                break
        else:
            lane, stack = len(self._stacks), []
            self._stacks.append(stack)
        self.moved += lane > 0
        stack.append(_Open(event, ends, meant, bends))
        self.brackets.append((event, False, begins, lane))

    def close(self) -> None:
        for lane, stack in enumerate(self._stacks):
            while stack:
                self._end(lane, stack.pop())

    def _end_early(self, lane: int, stack: list[_Open], count: int, now: int) -> None:
        """Innermost slices first; those that cross are the innermost of a stack."""
        for _ in range(count):
            slice = stack.pop()
            slice.end = now
            self._end(lane, slice)
        self.clipped += count

    def _end(self, lane: int, slice: _Open) -> None:
        self.brackets.append((slice.event, True, slice.end, lane))
