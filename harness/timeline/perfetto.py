"""Perfetto's own trace format (protos/perfetto/trace/), as far as a timeline needs it.

It holds times to the nanosecond, tracks in an order of our choosing and counters with units, and Perfetto reads it
several times faster than JSON. Lengths and numbers that repeat in every packet are written as varints of a fixed
width, which the format allows, so that numpy writes the packets of a hundred thousand slices at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Table = NDArray[np.uint8]


class EventType(IntEnum):
    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class Unit(IntEnum):
    """Of a counter."""

    COUNT = 2
    BYTES = 3


class Track(NamedTuple):
    """A row of the timeline, or a group of rows. Rows of one name below one parent are drawn as one."""

    uuid: int
    """Positive, below 2^28."""
    name: str
    parent: int | None = None
    rank: int = 0
    """Among its siblings."""
    description: str = ""
    unit: Unit | None = None
    """Makes it a counter."""


_SEQUENCE = b"\x50\x01"  # trusted_packet_sequence_id: 1
_INCREMENTAL = b"\x68\x02"  # sequence_flags: SEQ_NEEDS_INCREMENTAL_STATE
_CLEARED = b"\x68\x01"  # SEQ_INCREMENTAL_STATE_CLEARED
_EXPLICIT = 3  # child_ordering
_NAMES_A_PACKET = 1000


def varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(field << 3 | 2) + varint(len(body)) + body


def text(field: int, value: str) -> bytes:
    return message(field, value.encode("utf-8", "replace"))


def tracks(rows: Iterable[Track]) -> bytes:
    """Packets that describe tracks, parents first."""
    return b"".join(message(1, _SEQUENCE, message(60, *_track(row))) for row in rows)


def _track(track: Track) -> Iterator[bytes]:
    yield number(1, track.uuid)
    yield text(2, track.name)
    if track.parent is not None:
        yield number(5, track.parent)
    if track.unit is not None:
        yield message(8, number(3, track.unit))
    yield number(11, _EXPLICIT)
    yield number(12, track.rank)
    if track.description:
        yield text(14, track.description)


def interned(names: Sequence[str], categories: Sequence[str], arguments: str) -> bytes:
    """Packets that begin the sequence: the texts that packets refer to by their place, from 1 on.

    Args:
        arguments: What the arguments of a slice are filed under.
    """
    first = message(1, _SEQUENCE, _CLEARED, message(12, message(3, number(1, 1), text(2, arguments))))
    return first + b"".join((*_texts(2, names), *_texts(1, categories)))


def _texts(field: int, values: Sequence[str]) -> Iterator[bytes]:
    for low in range(0, len(values), _NAMES_A_PACKET):
        entries = (
            message(field, number(1, low + i), text(2, value))
            for i, value in enumerate(values[low : low + _NAMES_A_PACKET], start=1)
        )
        yield message(1, _SEQUENCE, _INCREMENTAL, message(12, *entries))


def flow(ids: Iterable[int]) -> bytes:
    """The arrows that begin or end at a slice, for its `flows`: each id stands on two slices."""
    return b"".join(b"\xf9\x02" + id.to_bytes(8, "little") for id in ids)  # flow_ids: 47, fixed64


def padded(values: Ints, width: int) -> Table:
    """Varints of `width` bytes each, shape (n, width), of values in 0..2^(7 width) - 1."""
    shifts = np.arange(width, dtype=np.int64) * 7
    table = (values[:, None] >> shifts) & 127
    table[:, :-1] |= 128
    return table.astype(np.uint8)


def _constant(count: int, value: bytes) -> Table:
    return np.broadcast_to(np.frombuffer(value, np.uint8), (count, len(value)))


_LENGTH = 4


class Packets(NamedTuple):
    """Packets to come, as columns of one length."""

    kind: Ints
    """`EventType`; ends take no more than time and track."""
    ts: Ints
    """ns, at or after 0."""
    track: Ints
    name: Ints
    """Place among the interned names, from 1 on."""
    category: Ints


def events(packets: Packets, arguments: Sequence[object], flows: Sequence[bytes]) -> bytes:
    """Begins and ends of slices and instants, in the order that is given.

    Args:
        arguments: Of each packet, a JSON object as a buffer; empty for none, and for ends.
        flows: Of each packet, see `flow`; empty for none, and for ends.
    """
    count = len(packets.ts)
    pieces: list[list[object]] = [[] for _ in range(count)]
    ends = packets.kind == EventType.SLICE_END
    at = np.flatnonzero(ends)
    body = [_constant(len(at), b"\x48\x02\x58"), padded(packets.track[at], 4)]
    for place, row in zip(at.tolist(), _rows(_head(packets.ts[at], _width(body)), *body), strict=True):
        pieces[place] = [row]

    at = np.flatnonzero(~ends)
    places = at.tolist()
    argued, linked = [arguments[place] for place in places], [flows[place] for place in places]
    sizes = np.array([len(argument) for argument in argued], np.int64)  # type: ignore[arg-type]
    annotation = [  # debug_annotations: {name_iid: 1, legacy_json_value}
        _constant(len(at), b"\x22"),
        padded(sizes + 7, _LENGTH),
        _constant(len(at), b"\x08\x01\x4a"),
        padded(sizes, _LENGTH),
    ]
    body = [
        _constant(len(at), b"\x48"),
        padded(packets.kind[at], 1),
        _constant(len(at), b"\x58"),
        padded(packets.track[at], 4),
        _constant(len(at), b"\x50"),
        padded(packets.name[at], 4),
        _constant(len(at), b"\x18"),
        padded(packets.category[at], 4),
    ]
    links = np.array([len(link) for link in linked], np.int64)
    inner = _width(body) + np.where(sizes > 0, sizes + _width(annotation), 0) + links
    heads, insets = _rows(_head(packets.ts[at], inner), *body), _rows(*annotation)
    for place, head, inset, argument, link in zip(places, heads, insets, argued, linked, strict=True):
        pieces[place] = [head, inset, argument, link] if argument else [head, link]
    return b"".join(itertools.chain.from_iterable(pieces))  # type: ignore[arg-type]


def counts(ts: Ints, track: int, value: Ints) -> bytes:
    """A counter: what it is from each ts (ns) on; value in 0..2^63 - 1."""
    body = [
        _constant(len(ts), b"\x48\x04" + number(11, track) + varint(30 << 3)),
        padded(value, 9),
    ]
    return np.concatenate([_head(ts, _width(body)), *body], axis=1).tobytes()


def _head(ts: Ints, inner: Ints | int) -> Table:
    """Of packets with a track event of `inner` bytes: packet { timestamp, sequence, flags, track_event {."""
    count = len(ts)
    sizes = np.broadcast_to(np.asarray(inner, np.int64), (count,))
    packet = [
        _constant(count, b"\x40"),
        padded(ts, 9),
        _constant(count, _SEQUENCE + _INCREMENTAL + b"\x5a"),
        padded(sizes, _LENGTH),
    ]
    return np.concatenate([_constant(count, b"\x0a"), padded(sizes + _width(packet), _LENGTH), *packet], axis=1)


def _width(parts: Sequence[Table]) -> int:
    return sum(part.shape[1] for part in parts)


def _rows(*parts: Table) -> list[memoryview]:
    """Each row's bytes."""
    table = np.concatenate(parts, axis=1)
    data, width = memoryview(table.tobytes()), table.shape[1]
    return [data[at : at + width] for at in range(0, len(data), width)]
