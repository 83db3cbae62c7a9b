"""Reads a prepared timeline back, by the public definition of Perfetto's format and nothing of ours."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


@dataclass
class Slice:
    name: str
    category: str
    track: int
    ts: int
    end: int | None = None
    args: dict[str, Any] = field(default_factory=dict)
    flows: list[int] = field(default_factory=list)

    @property
    def dur(self) -> int:
        assert self.end is not None
        return self.end - self.ts


@dataclass
class TrackOf:
    name: str
    parent: int | None
    rank: int
    description: str


@dataclass
class Timeline:
    tracks: dict[int, TrackOf] = field(default_factory=dict)
    slices: list[Slice] = field(default_factory=list)
    instants: list[Slice] = field(default_factory=list)
    counters: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    open: dict[int, list[Slice]] = field(default_factory=lambda: defaultdict(list))

    def path(self, track: int) -> str:
        """`group / row`."""
        found = self.tracks[track]
        return found.name if found.parent is None else f"{self.tracks[found.parent].name} / {found.name}"

    def rows(self) -> list[str]:
        """In the order in which they are drawn."""
        order = sorted(
            (uuid for uuid, track in self.tracks.items() if track.parent is not None),
            key=lambda uuid: (self.tracks[self.tracks[uuid].parent or 0].name, self.tracks[uuid].rank),
        )
        return list(dict.fromkeys(self.path(uuid) for uuid in order))


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
        elif kind == 1:
            yield tag >> 3, int.from_bytes(data[at : at + 8], "little")
            at += 8
        else:
            assert kind == 2, f"wire type {kind} at byte {at}"
            size, at = varint(data, at)
            assert at + size <= len(data)
            yield tag >> 3, data[at : at + size]
            at += size


def read(path: Path) -> Timeline:
    """Asserts as it goes that slices are bracketed on their tracks and that time runs forward."""
    timeline = Timeline()
    texts: dict[int, dict[int, str]] = {1: {}, 2: {}, 3: {}}
    now = 0
    for number, packet in fields(gzip.decompress(path.read_bytes())):
        assert number == 1
        content = dict(fields(packet))
        if 12 in content:
            for kind, entry in fields(content[12]):
                told = dict(fields(entry))
                texts[kind][told[1]] = told[2].decode()
        if 60 in content:
            told = dict(fields(content[60]))
            description = told.get(14, b"").decode()
            timeline.tracks[told[1]] = TrackOf(told[2].decode(), told.get(5), told[12], description)
        if 11 in content:
            event = list(fields(content[11]))
            kind = dict(event)[9]
            if kind != COUNTER:
                assert content[8] >= now
                now = content[8]
            _add(timeline, texts, content[8], event)
    assert not any(timeline.open.values()), "a slice that never ends"
    return timeline


def _add(timeline: Timeline, texts: dict[int, dict[int, str]], ts: int, event: list[tuple[int, Any]]) -> None:
    told = dict(event)
    kind, track = told[9], told[11]
    assert track in timeline.tracks
    if kind == COUNTER:
        timeline.counters[track].append((ts, told[30]))
        return
    stack = timeline.open[track]
    if kind == END:
        stack.pop().end = ts
        return
    found = Slice(texts[2][told[10]], texts[1][told[3]], track, ts)
    found.flows = [id for number, id in event if number == 47]
    if 4 in told:
        annotation = dict(fields(told[4]))
        assert texts[3][annotation[1]] == "args"
        found.args = json.loads(annotation[9])
    if kind == INSTANT:
        timeline.instants.append(found)
    else:
        stack.append(found)
        timeline.slices.append(found)
