"""From a trace file to columns."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from harness.trace.errors import TraceError
from harness.trace.file.collector import without_collector
from harness.trace.file.columns import KIND_OF_CATEGORY, Allocations, Kind, Message, Signature, Thread, Trace
from harness.trace.file.contents import MAX_JSON_BYTES, contents, what_it_is
from harness.trace.file.decode import (
    NOTHING,
    AllocatorArguments,
    Arguments,
    Complete,
    Document,
    Instant,
    Metadata,
    decode,
)
from harness.trace.file.salvage import salvage

__all__ = ["Allocations", "Kind", "Signature", "Thread", "Trace", "TraceError", "columns", "read"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@without_collector()
def read(path: str | os.PathLike[str], *, max_json_bytes: int = MAX_JSON_BYTES) -> Trace:
    """Columns of a kineto trace, `.json` or gzip-compressed, of torch 1.8 to today.

    A damaged file is repaired and read as far as it goes; `lost_events` and `warnings` tell what that cost.

    Raises TraceError, of one line, when the path cannot be read, holds no trace, or holds more than
    `max_json_bytes` of JSON, decompressed.
    """
    path = Path(path)
    found = contents(path, max_json_bytes)
    measured = partial(columns, source=path, file_bytes=found.file_bytes, json_bytes=len(found.json))
    try:
        return measured(decode(found.json), warnings=found.damage)
    except (msgspec.MsgspecError, RecursionError) as error:
        salvaged = salvage(found.json)
        if salvaged is None:
            raise TraceError(path, what_it_is(found.json)) from error
        warnings = (*found.damage, *salvaged.warnings)
        return measured(salvaged.document, lost_events=salvaged.lost_events, warnings=warnings)


_NO_ARGUMENTS = Arguments()
_NO_ALLOCATION = AllocatorArguments()
# A span without a category is told from one of an unknown category, until that has been said.
_UNKNOWN = max(Kind) + 1
_CODE_OF_CATEGORY = {category: int(kind) for category, kind in KIND_OF_CATEGORY.items()} | {"unknown": _UNKNOWN}
_DAY = 86_400 * 10**9
_SECOND = 10**9
# µs. Twice as many nanoseconds still fit 64 bits; the year 2115, counted from 1970.
_FURTHEST_US = 4.6e15
_MOST_BYTES = 2**50

_Numbers = defaultdict[Any, int]


def _numbering() -> _Numbers:
    """Numbers values in order of appearance: reading one that is new gives it the next number."""
    return defaultdict(itertools.count().__next__)


def columns(
    document: Document,
    *,
    source: Path,
    file_bytes: int = 0,
    json_bytes: int = 0,
    lost_events: int = 0,
    warnings: tuple[str, ...] = (),
) -> Trace:
    """The columns of decoded events. Repaired and salvaged documents come in here as well."""
    rows, counts = _Rows(), Counter[str]()
    allocating: list[Instant] = []
    thread_names: dict[Thread, str] = {}
    for batch in document.batches:
        for kind_of_event in dict.fromkeys(map(type, batch)):
            events: list[Any] = [event for event in batch if event.__class__ is kind_of_event]
            if issubclass(kind_of_event, Complete):
                rows.add(events)
                continue
            counts.update([event.cat for event in events])
            if issubclass(kind_of_event, Instant):
                allocating += [event for event in events if event.name == "[memory]"]
            elif kind_of_event is Metadata:
                thread_names |= {
                    Thread(event.pid, event.tid): event.args.name
                    for event in events
                    if event.name == "thread_name" and event.args is not None
                }
    column = rows.columns()
    counts.update(dict(zip(rows.categories, np.bincount(column.pop("category")).tolist(), strict=True)))
    allocations = _allocations(allocating, rows.threads)
    notes = [*document.header.warnings, *warnings]
    elsewhere = astray(column["ts"], column["dur"])
    if elsewhere.any():
        column = {name: values[~elsewhere] for name, values in column.items()}
        lost = int(np.count_nonzero(elsewhere))
        lost_events += lost
        notes.append(f"{lost} events have no time in the window (zero, or days from all others): they are in no number")
    negative = int(np.count_nonzero(column["dur"] < 0))
    if negative:
        notes.append(f"{negative} events of negative duration count as empty")
    nameless = int(np.count_nonzero(column["kind"] == _UNKNOWN))
    if nameless:
        notes.append(f"{nameless} spans have no category (cat): they are counted, and are in no other number")
    facts = document.header.harness
    return Trace(
        source=source,
        file_bytes=file_bytes,
        json_bytes=json_bytes,
        categories=dict(counts),
        names=tuple(rows.names),
        threads=tuple(Thread(*pair) for pair in rows.threads),
        thread_names=thread_names,
        signatures=tuple(Signature(*msgspec.json.decode(line, type=_RAWS)) for line in rows.signatures),
        messages=tuple(Message(*values) for values in rows.messages),
        **(column | {"kind": np.minimum(column["kind"], Kind.OTHER), "dur": np.maximum(column["dur"], 0)}),
        allocations=allocations,
        devices=tuple(document.header.deviceProperties),
        distributed=document.header.distributedInfo,
        harness=facts,
        torch_version=document.header.torch_version or (facts.torch_version if facts is not None else None),
        lost_events=lost_events,
        warnings=tuple(notes),
    )


def astray(ts: Ints, dur: Ints) -> Bools:
    """Events whose time cannot be theirs: more than a day from the middle of the window or longer than a
    day, or at or before zero with a second of nothing until the next. Kept, they would stretch every span."""
    if not len(ts):
        return np.zeros(0, bool)
    found = dur > _DAY
    if int(ts.max()) - int(ts.min()) > _DAY:
        found |= np.abs(ts - int(np.median(ts))) > _DAY
    if ts.min() <= 0 < ts.max():
        found |= (ts <= 0) & (ts + np.maximum(dur, 0) < ts[ts > 0].min() - _SECOND)
    return found


_WITH_SHAPES = frozenset({Kind.OPERATOR, Kind.ANNOTATION})
_ON_DEVICE = frozenset({Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.DEVICE_ANNOTATION})
_RAWS = tuple[Raw, Raw, Raw]
_json = msgspec.json.Encoder().encode
_lines = msgspec.json.Encoder().encode_lines


class _Rows:
    """Columns of complete events as they grow."""

    def __init__(self) -> None:
        self.names, self.threads, self.signatures = _numbering(), _numbering(), _numbering()
        self.messages, self.categories = _numbering(), _numbering()
        # Events repeat few combinations of category, name and thread: one look-up finds all of them.
        self._places = _numbering()
        self._of_place: list[tuple[int, int, int, int]] = []
        self._kind_of_place: list[int] = []
        self._length = 0
        self._parts: list[dict[str, Ints]] = []
        self._operators = _Some({"signature": -1, "sequence": -1, "forward_thread": 0})
        self._python = _Some({"python_id": 0, "python_parent": 0})
        self._device = _Some({"device": -1, "stream": -1, "bytes": 0, "blocks_per_sm": -1})
        self._collectives = _Some({"message": -1})

    def add(self, events: list[Complete]) -> None:
        places = self._places
        arguments = [e.args or _NO_ARGUMENTS for e in events]
        place = [places[e.cat, e.name, e.pid, e.tid] for e in events]
        if len(places) > len(self._of_place):
            self._describe(itertools.islice(places, len(self._of_place), None))
        self._parts.append(
            {
                "place": _ints(place),
                "ts": nanoseconds([e.ts for e in events]),
                "dur": nanoseconds([e.dur for e in events]),
                "external": _ints([a.external_id or a.external_id_2021 for a in arguments], 0),
                "correlation": _ints([a.correlation for a in arguments]),
            }
        )
        kinds, start = self._kind_of_place, self._length
        self._length += len(events)
        kind = [kinds[i] for i in place]
        present = set(kind)
        columns: tuple[list[Any], ...]
        # What only some kinds have is taken from those.
        if present & _WITH_SHAPES:
            at = [i for i, k in enumerate(kind) if k in _WITH_SHAPES]
            some = [arguments[i] for i in at]
            columns = (
                self._signatures(some),
                [a.sequence for a in some],
                [a.forward_thread for a in some],
            )
            self._operators.add(start, at, columns)
        if Kind.PYTHON in present:
            at = [i for i, k in enumerate(kind) if k == Kind.PYTHON]
            some = [arguments[i] for i in at]
            self._python.add(start, at, ([a.python_id for a in some], [a.python_parent_id or 0 for a in some]))
        if present & _ON_DEVICE:
            # Device and stream come from the event's lane where its arguments lack them.
            at = [i for i, k in enumerate(kind) if k in _ON_DEVICE]
            pairs = [(arguments[i], events[i]) for i in at]
            columns = (
                [_digits(a.device if a.device >= 0 else e.pid) for a, e in pairs],
                [_digits(a.stream if a.stream != -1 else e.tid) for a, e in pairs],
                [a.bytes for a, _ in pairs],
                [a.blocks_per_sm for a, _ in pairs],
            )
            self._device.add(start, at, columns)
            at = [i for i in at if arguments[i].collective]
            if at:
                self._collectives.add(start, at, ([self._message(arguments[i]) for i in at],))

    def _message(self, a: Arguments) -> int:
        said = (a.collective, a.sent, a.received, a.dtype, a.group_size, a.group, a.group_ranks)
        return self.messages[said]

    def _describe(self, places: Iterable[tuple[str, str, int | str, int | str]]) -> None:
        for cat, name, pid, tid in places:
            kind = _CODE_OF_CATEGORY.get(cat, Kind.OTHER)
            self._kind_of_place.append(kind)
            self._of_place.append((self.categories[cat], kind, self.names[name], self.threads[pid, tid]))

    def _signatures(self, arguments: list[Arguments]) -> list[int]:
        """Each call's number among the distinct ones, -1 without shapes. One line for each call, written by
        msgspec at once, since turning every `Raw` into bytes takes as long as all other columns together."""
        calls = [(a.input_dims, a.input_types, a.concrete_inputs) for a in arguments if a.input_dims is not NOTHING]
        lines = _lines(calls).split(b"\n")[:-1]
        if len(lines) != len(calls):  # the file breaks its own lines within a value
            lines = [_json(call) for call in calls]
        numbers = self.signatures
        if len(calls) == len(arguments):
            return [numbers[line] for line in lines]
        following = iter(lines)
        return [-1 if a.input_dims is NOTHING else numbers[next(following)] for a in arguments]

    def columns(self) -> dict[str, NDArray[Any]]:
        if not self._parts:
            self.add([])
        column = {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}
        of_place = np.array(self._of_place, np.int64).reshape(-1, 4)[column.pop("place")]
        column |= zip(("category", "kind", "name", "thread"), of_place.T.copy(), strict=True)
        for some in (self._operators, self._python, self._device, self._collectives):
            column |= some.columns(self._length)
        return column | {"kind": column["kind"].astype(np.int8), "bytes": _sizes(column["bytes"])}


class _Some:
    """Columns that only some events have."""

    def __init__(self, missing: dict[str, int]) -> None:
        self._missing = missing
        self._at: list[int] = []
        self._values: dict[str, list[Any]] = {name: [] for name in missing}

    def add(self, start: int, at: list[int], columns: tuple[list[Any], ...]) -> None:
        """Values of the events at these places after `start`, in the order of the columns."""
        self._at += [start + i for i in at]
        for values, more in zip(self._values.values(), columns, strict=True):
            values += more

    def columns(self, length: int) -> dict[str, NDArray[Any]]:
        return {name: self._scattered(length, name, missing) for name, missing in self._missing.items()}

    def _scattered(self, length: int, name: str, missing: int) -> NDArray[Any]:
        values = self._values[name]
        column = np.full(length, missing, np.float64 if name == "blocks_per_sm" else np.int64)
        column[self._at] = values if name == "blocks_per_sm" else _ints(values, missing)
        return column


_DIGITS = re.compile(r"[0-9]{1,18}")


def _digits(lane: int | str) -> int:
    """Files of 2021 write lanes as `stream 7`."""
    if isinstance(lane, int):
        return lane
    found = _DIGITS.search(lane)
    return int(found[0]) if found else 0


def _allocations(events: list[Instant], threads: _Numbers) -> Allocations:
    arguments = [event.args or _NO_ALLOCATION for event in events]
    ts = nanoseconds([event.ts for event in events])
    order = np.argsort(ts, kind="stable")
    return Allocations(
        ts=ts[order],
        thread=_ints([threads[event.pid, event.tid] for event in events])[order],
        bytes=_sizes(_ints([a.bytes for a in arguments], 0))[order],
        device_type=_ints([a.device_type for a in arguments], 0)[order],
        device=_ints([a.device_index for a in arguments])[order],
        allocated=_sizes(_ints([a.allocated for a in arguments]), -1)[order],
        reserved=_sizes(_ints([a.reserved for a in arguments]), -1)[order],
    )


def _ints(values: list[int], missing: int = -1) -> Ints:
    """A column. Unsigned 64-bit numbers become what they are signed; larger ones are no number at all."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array([_signed(value) if -(2**63) <= value < 2**64 else missing for value in values], np.int64)


def _signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def _sizes(values: Ints, missing: int = 0) -> Ints:
    """Bytes, of which no sum may overflow: a petabyte in one piece is damage."""
    return np.where(np.abs(values) < _MOST_BYTES, values, missing)


def nanoseconds(microseconds: list[float] | list[Decimal]) -> Ints:
    """Exact to the nanosecond; what no clock could have shown becomes the nearest that it could, or 0."""
    if microseconds and isinstance(microseconds[0], Decimal):
        furthest = Decimal(_FURTHEST_US)
        return np.array(
            [int(max(-furthest, min(t, furthest)) * 1000) if t.is_finite() else 0 for t in microseconds],
            np.int64,
        )
    values = np.array(microseconds, np.float64)
    if len(values) and not np.abs(values).max() < _FURTHEST_US:
        values = np.clip(np.nan_to_num(values, nan=0.0), -_FURTHEST_US, _FURTHEST_US)
    # Whole µs from 1970 are exact as doubles, in ns they no longer are. Of fractions, a double below 2^43 µs keeps
    # more than half a nanosecond.
    whole = np.floor(values)
    return whole.astype(np.int64) * 1000 + np.rint((values - whole) * 1000).astype(np.int64)
