"""From a trace file to columns."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from harness.trace.columns import KIND_OF_CATEGORY, Allocations, Kind, Signature, Thread, Trace
from harness.trace.decode import (
    NOTHING,
    AllocatorArguments,
    Arguments,
    Complete,
    Document,
    Instant,
    Metadata,
    decode,
)
from harness.trace.errors import TraceError
from harness.trace.files import MAX_JSON_BYTES, contents, what_it_is
from harness.trace.salvage import salvage

__all__ = ["Allocations", "Kind", "Signature", "Thread", "Trace", "TraceError", "columns", "read"]

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def read(path: str | os.PathLike[str], *, max_json_bytes: int = MAX_JSON_BYTES) -> Trace:
    """Columns of a kineto trace, `.json` or gzip-compressed, of torch 1.8 to today.

    A damaged file is repaired and read as far as it goes; `lost_events` and `warnings` tell what that cost.

    Raises TraceError, of one line, when the path cannot be read, holds no trace, or holds more than
    `max_json_bytes` of JSON, decompressed.
    """
    path = Path(path)
    with _no_collection():
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


@contextmanager
def _no_collection() -> Iterator[None]:
    """Millions of young objects that hold no cycle make the collector walk all of them again and again: a
    third of the reading time on 45,000 events."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
    astray = _astray(column["ts"], column["dur"])
    if astray.any():
        column = {name: values[~astray] for name, values in column.items()}
        lost = int(np.count_nonzero(astray))
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
        **(column | {"kind": np.minimum(column["kind"], Kind.OTHER), "dur": np.maximum(column["dur"], 0)}),
        allocations=allocations,
        devices=tuple(document.header.deviceProperties),
        distributed=document.header.distributedInfo,
        harness=facts,
        torch_version=document.header.torch_version or (facts.torch_version if facts is not None else None),
        lost_events=lost_events,
        warnings=tuple(notes),
    )


def _astray(ts: Ints, dur: Ints) -> Bools:
    """Events whose time cannot be theirs: more than a day from the middle of the window or longer than a
    day, or at or before zero with a second of nothing until the next. Kept, they would stretch every span."""
    if not len(ts):
        return np.zeros(0, bool)
    astray = dur > _DAY
    if int(ts.max()) - int(ts.min()) > _DAY:
        astray |= np.abs(ts - int(np.median(ts))) > _DAY
    if ts.min() <= 0 < ts.max():
        astray |= (ts <= 0) & (ts + np.maximum(dur, 0) < ts[ts > 0].min() - _SECOND)
    return astray


_RAWS = tuple[Raw, Raw, Raw]
_json = msgspec.json.Encoder().encode
_lines = msgspec.json.Encoder().encode_lines


class _Rows:
    """Columns of complete events as they grow."""

    def __init__(self) -> None:
        self.categories, self.names = _numbering(), _numbering()
        self.threads, self.signatures = _numbering(), _numbering()
        self._parts: list[dict[str, NDArray[Any]]] = []

    def add(self, events: list[Complete]) -> None:
        categories, names, threads = self.categories, self.names, self.threads
        arguments = [e.args or _NO_ARGUMENTS for e in events]
        category = _ints([categories[e.cat] for e in events])
        kind = np.array([_CODE_OF_CATEGORY.get(name, Kind.OTHER) for name in categories], np.int8)[category]
        part: dict[str, NDArray[Any]] = {
            "category": category,
            "kind": kind,
            "name": _ints([names[e.name] for e in events]),
            "thread": _ints([threads[e.pid, e.tid] for e in events]),
            "ts": _nanoseconds([e.ts for e in events]),
            "dur": _nanoseconds([e.dur for e in events]),
            "external": _ints([a.external_id or a.external_id_2021 for a in arguments], 0),
            "correlation": _ints([a.correlation for a in arguments]),
        }
        # What only some kinds have is taken from those.
        n = len(events)
        at = np.flatnonzero(kind <= Kind.ANNOTATION)
        some = [arguments[i] for i in at.tolist()]
        part["signature"] = _scattered(n, at, self._signatures(some), -1)
        part["sequence"] = _scattered(n, at, [a.sequence for a in some], -1)
        part["forward_thread"] = _scattered(n, at, [a.forward_thread for a in some], 0)
        at = np.flatnonzero(kind == Kind.PYTHON)
        some = [arguments[i] for i in at.tolist()]
        part["python_id"] = _scattered(n, at, [a.python_id for a in some], 0)
        part["python_parent"] = _scattered(n, at, [a.python_parent_id or 0 for a in some], 0)
        # Device and stream come from the event's lane where its arguments lack them.
        at = np.flatnonzero((kind >= Kind.KERNEL) & (kind <= Kind.DEVICE_ANNOTATION))
        some = [arguments[i] for i in at.tolist()]
        lanes = [events[i] for i in at.tolist()]
        pairs = list(zip(some, lanes, strict=True))
        device = [_digits(a.device if a.device >= 0 else e.pid) for a, e in pairs]
        stream = [_digits(a.stream if a.stream != -1 else e.tid) for a, e in pairs]
        part["device"] = _scattered(n, at, device, -1)
        part["stream"] = _scattered(n, at, stream, -1)
        part["bytes"] = _sizes(_scattered(n, at, [a.bytes for a in some], 0))
        blocks = part["blocks_per_sm"] = np.full(n, -1.0)
        blocks[at] = [a.blocks_per_sm for a in some]
        self._parts.append(part)

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
        return {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}


def _scattered(length: int, at: Ints, values: list[int], missing: int) -> Ints:
    column = np.full(length, missing, np.int64)
    if values:
        column[at] = _ints(values, missing)
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
    ts = _nanoseconds([event.ts for event in events])
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


def _nanoseconds(microseconds: list[float] | list[Decimal]) -> Ints:
    if microseconds and isinstance(microseconds[0], Decimal):
        furthest = Decimal(_FURTHEST_US)
        return np.array(
            [int(max(-furthest, min(t, furthest)) * 1000) if t.is_finite() else 0 for t in microseconds],
            np.int64,
        )
    # np.rint of a double below 2^43 µs is exact: its error, under half a nanosecond, is rounded away.
    values = np.array(microseconds, np.float64)
    if len(values) and not np.abs(values).max() < _FURTHEST_US:
        values = np.clip(np.nan_to_num(values, nan=0.0), -_FURTHEST_US, _FURTHEST_US)
    return np.rint(values * 1000).astype(np.int64)
