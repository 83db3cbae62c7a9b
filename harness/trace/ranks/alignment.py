"""Ranks on one clock, and waiting told from transfer.

A collective cannot end anywhere before every rank has joined it, and where all ranks need all data (all-reduce,
all-gather, reduce-scatter, all-to-all, barrier) it ends everywhere at nearly the same time. So the instances that
match give each rank's clock: its offset is the median of the differences of the ends. What a rank spends in a
collective before the last one joins is waiting; the rest is transfer:

    wait = latest start of all ranks - own start        transfer = own end - latest start
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.trace.measure.collectives import Collectives, Sort
from harness.trace.measure.intervals import union

Ints = NDArray[np.int64]

ENDS_TOGETHER = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
ONE_SIDED = frozenset({"send_recv", "other"})
"""Not matched: the trace does not tell who the partner is."""


@dataclass(frozen=True)
class Aligned:
    """Every collective of every rank, as rows in the order of ranks; times in ns."""

    sorts: tuple[Sort, ...]
    """Of all ranks together."""
    rank: Ints
    """Place of the row's rank among the tables."""
    sort: Ints
    instance: Ints
    """Rows of one number are one collective; -1 for what no other rank has."""
    start: Ints
    """On the first rank's clock."""
    end: Ints
    wait: Ints
    """Until the last rank joined; 0 for what is not matched."""
    last: NDArray[np.bool_]
    """Whether this rank was the last one to join."""
    offset: tuple[int | None, ...]
    """Of each rank's clock, to be taken off its times; None where nothing ties it to the first rank's."""
    error: int
    """How far ends still lie apart, ns: the median, of the rank where it is largest."""

    def of(self, rank: int) -> NDArray[np.bool_]:
        mine: NDArray[np.bool_] = self.rank == rank
        return mine


def align(tables: Sequence[Collectives]) -> Aligned:
    """The collectives of all ranks on the clock of the first."""
    sorts: dict[Sort, int] = {}
    rank, sort, instance = [], [], []
    numbers: dict[tuple[int, int, int, int], int] = {}
    for place, table in enumerate(tables):
        common = np.array([sorts.setdefault(one, len(sorts)) for one in table.sorts], np.int64)
        mine = common[table.sort] if len(table.sort) else table.sort
        ordinal, count = _ordinals(mine, table.step)
        keys = zip(mine.tolist(), table.step.tolist(), ordinal.tolist(), count.tolist(), strict=True)
        rank.append(np.full(len(mine), place, np.int64))
        sort.append(mine)
        instance.append(np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64))
    at, which, number = (np.concatenate(column) for column in (rank, sort, instance))
    kinds = [one.kind for one in sorts]
    matchable = np.array([kind not in ONE_SIDED for kind in kinds], bool)[which] if len(kinds) else which > 0
    ranks_in = np.bincount(number, minlength=len(numbers))
    number = np.where(matchable & (ranks_in[number] > 1), number, -1) if len(number) else number
    start = np.concatenate([table.start for table in tables])
    end = np.concatenate([table.end for table in tables])
    together = np.array([kind in ENDS_TOGETHER for kind in kinds], bool)[which] if len(kinds) else which > 0
    offset, error = _offsets(at, np.where(together, number, -1), end, len(tables), len(numbers))
    known = np.array([0 if one is None else one for one in offset], np.int64)[at]
    tied = np.array([one is not None for one in offset], bool)[at]
    start, end, number = start - known, end - known, np.where(tied, number, -1)
    wait, last = _waits(number, start, end, len(numbers))
    return Aligned(tuple(sorts), at, which, number, start, end, wait, last, tuple(offset), error)


def _ordinals(sort: Ints, step: Ints) -> tuple[Ints, Ints]:
    """Which of its sort in its step each collective is, and of how many. Ranks whose counts differ do not match:
    nothing tells which of them lacks one."""
    if not len(sort):
        return sort, sort
    order = np.lexsort((step, sort))
    first = np.concatenate(([True], (np.diff(sort[order]) != 0) | (np.diff(step[order]) != 0)))
    group = np.cumsum(first) - 1
    begins = np.flatnonzero(first)
    sizes = np.diff(np.concatenate((begins, [len(sort)])))
    ordinal, count = np.empty(len(sort), np.int64), np.empty(len(sort), np.int64)
    ordinal[order] = np.arange(len(sort)) - begins[group]
    count[order] = sizes[group]
    return ordinal, count


def _offsets(rank: Ints, number: Ints, end: Ints, ranks: int, numbers: int) -> tuple[list[int | None], int]:
    """Each rank's clock less the first rank's, by way of ranks in between where groups do not share all."""
    offset: list[int | None] = [0, *[None] * (ranks - 1)]
    ends = np.zeros(numbers, np.int64)
    known = np.zeros(numbers, bool)
    rows = [np.flatnonzero((rank == r) & (number >= 0)) for r in range(ranks)]
    ends[number[rows[0]]] = end[rows[0]]
    known[number[rows[0]]] = True
    waiting, error = list(range(1, ranks)), 0
    while True:
        tied = [r for r in waiting if known[number[rows[r]]].any()]
        if not tied:
            return offset, error
        for r in tied:
            mine = rows[r]
            shared = mine[known[number[mine]]]
            apart = end[shared] - ends[number[shared]]
            found = int(np.median(apart))
            offset[r] = found
            error = max(error, int(np.median(np.abs(apart - found))))
            new = mine[~known[number[mine]]]
            ends[number[new]] = end[new] - found
            known[number[new]] = True
        waiting = [r for r in waiting if r not in tied]


def _waits(number: Ints, start: Ints, end: Ints, numbers: int) -> tuple[Ints, NDArray[np.bool_]]:
    latest = np.full(numbers + 1, np.iinfo(np.int64).min)
    np.maximum.at(latest, number, start)
    matched = number >= 0
    wait = np.where(matched, np.clip(latest[number] - start, 0, end - start), 0)
    return wait, matched & (start == latest[number])


def exposed_wait(table: Collectives, start: Ints, wait: Ints) -> int:
    """How long a rank waited with nothing computed beside it, ns. start, wait: of its collectives, on its own clock."""
    waiting = union(start, start + wait)
    return waiting.total - waiting.overlap(table.compute)
