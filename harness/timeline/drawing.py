"""What is drawn, as the packets of Perfetto's format."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from harness.timeline import perfetto
from harness.timeline.lanes import Brackets
from harness.timeline.perfetto import EventType, Packets, Track, Unit
from harness.timeline.rows import Row, Slices

Ints = NDArray[np.int64]

_PACKETS_A_BLOCK = 1 << 13


class Texts:
    """Texts by number, to which more can be added."""

    def __init__(self, first: Sequence[str]) -> None:
        self.all = list(first)
        self._numbers = {text: number for number, text in enumerate(first)}

    def __getitem__(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.all)
            self.all.append(text)
        return self._numbers[text]


class Tracks:
    """Tracks in the order of their ranks."""

    def __init__(self) -> None:
        self._of_group: defaultdict[str, list[tuple[int, Row, Unit | None]]] = defaultdict(list)
        self._count = 0

    def add(self, row: Row, unit: Unit | None = None) -> int:
        """One more track of this row; its uuid."""
        self._count += 1
        self._of_group[row.group].append((self._count, row, unit))
        return self._count

    def described(self) -> Iterable[Track]:
        for number, group in enumerate(sorted(self._of_group), start=1):
            members = sorted(self._of_group[group], key=lambda member: member[1].rank)
            parent = self._count + number
            yield Track(parent, group, rank=number)
            for rank, (uuid, row, unit) in enumerate(members):
                yield Track(uuid, row.name, parent, rank, row.description, unit)


class Drawn:
    """Slices of all rows, and their brackets in the order of time."""

    def __init__(self) -> None:
        self._arguments: list[object] = []
        self._flows: list[bytes] = []
        self._columns: list[list[Ints]] = []

    def add(self, slices: Slices, flows: Sequence[bytes], brackets: Brackets, uuids: Ints) -> None:
        kept = ~(brackets.is_end & slices.is_instant[brackets.event])
        event = brackets.event[kept]
        kind = np.where(slices.is_instant[event], EventType.INSTANT, EventType.SLICE_BEGIN)
        kind[brackets.is_end[kept]] = EventType.SLICE_END
        self._columns.append(
            [
                kind,
                brackets.ts[kept],
                uuids[brackets.lane[kept]],
                slices.name[event] + 1,
                slices.category[event] + 1,
                event + len(self._arguments),
            ]
        )
        self._arguments += slices.arguments
        self._flows += flows

    def blocks(self, clock: int) -> Iterator[bytes]:
        if not self._columns:
            return
        columns = [np.concatenate(parts) for parts in zip(*self._columns, strict=True)]
        order = np.argsort(columns[1], kind="stable")
        for low in range(0, len(order), _PACKETS_A_BLOCK):
            block = order[low : low + _PACKETS_A_BLOCK]
            kind, ts, track, name, category, event = (column[block] for column in columns)
            events = event.tolist()
            yield perfetto.events(
                Packets(kind, ts + clock, track, name, category),
                [self._arguments[i] for i in events],
                [self._flows[i] for i in events],
            )
