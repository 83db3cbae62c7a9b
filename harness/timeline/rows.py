"""The rows of the timeline: which events stand on which, what they are called, and in what order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from harness.timeline.events import Events
from harness.trace.file.columns import Kind, Thread
from harness.trace.measure.launches import COMMUNICATION, telling

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

PROFILER = "Profiler"
MARKS = "marks"
"""Of the profiler, which file them under threads that there are not: one row of that name below the group."""
_WIDEST_INDEX = 9


class Rank(IntEnum):
    """Where rows of each kind stand within their group."""

    FINDINGS = 0
    ROWS = 1
    MEMORY = 2


@dataclass
class Slices:
    """What stands on a row, as columns of one length; times in ns."""

    start: Ints
    end: Ints
    name: Ints
    """Index into the names of the timeline; `category` likewise."""
    category: Ints
    arguments: Sequence[object]
    """JSON objects as buffers; empty for none."""
    is_instant: Bools
    flexible: Bools
    """May end early where they cross another."""


@dataclass
class Row:
    group: str
    name: str
    rank: tuple[int, ...]
    """Among the rows of its group."""
    at: Ints
    """Which events, in file order."""
    description: str = ""
    stream: tuple[int, int] | None = field(default=None)
    """Device and stream, of the rows of devices."""


def rows(events: Events, device_names: Mapping[int, str]) -> list[Row]:
    """The rows of a file: those of each process, its own thread first; those of each device, streams by number, what
    they compute below the spans that they compute it for; then what the profiler says of itself."""
    kinds = _places(events)
    key = events.thread * len(_Place) + kinds
    order = np.argsort(key, kind="stable")
    found = []
    for at in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
        if len(at):
            thread = events.threads[int(events.thread[at[0]])]
            found.append(_row(events, thread, _Place(int(kinds[at[0]])), at, device_names))
    return _distinct(found)


def device_group(index: int, names: Mapping[int, str], highest: int) -> str:
    """The group of a device's rows. Groups are sorted by name."""
    number = f"{index:02d}" if highest > _WIDEST_INDEX else str(index)
    return f"GPU {number} · {names[index]}" if names.get(index) else f"GPU {number}"


class _Place(IntEnum):
    HOST = 0
    DEVICE = 1
    SPANS = 2
    PROFILER = 3


def _places(events: Events) -> Ints:
    """Where each event belongs. What is of no known kind stands with the rest of its thread."""
    places = np.full(len(events.ts), _Place.PROFILER, np.int64)
    places[events.kind <= Kind.RUNTIME] = _Place.HOST
    places[(events.kind >= Kind.KERNEL) & (events.kind <= Kind.MEMSET)] = _Place.DEVICE
    places[events.kind == Kind.DEVICE_ANNOTATION] = _Place.SPANS
    for place in (_Place.DEVICE, _Place.HOST):
        theirs = np.unique(events.thread[places == place])
        places[(places == _Place.PROFILER) & np.isin(events.thread, theirs)] = place
    return places


def _row(events: Events, thread: Thread, place: _Place, at: Ints, device_names: Mapping[int, str]) -> Row:
    described = f"pid {thread.pid}, tid {thread.tid}"
    if place is _Place.HOST:
        process = events.labels.get(("process_name", Thread(thread.pid, 0)), "")
        own = thread.tid == thread.pid
        return Row(
            group=" ".join(filter(None, ("CPU ·", process or "process", str(thread.pid)))),
            name=_thread_name(events, thread, own),
            rank=(Rank.ROWS, not own, _first(events.ts[at])),
            at=at,
            description=described,
        )
    if place is _Place.PROFILER and events.is_instant[at].all():
        return Row(PROFILER, MARKS, (Rank.ROWS, -1), at)
    if place is _Place.PROFILER:
        name = _text(thread.tid) or _text(thread.pid) or events.categories[int(events.category[at[0]])]
        return Row(PROFILER, name, (Rank.ROWS, _first(events.ts[at])), at, described)
    device, stream = _digits(thread.pid), _digits(thread.tid)
    what = "spans" if place is _Place.SPANS else _purpose(events, at)
    return Row(
        group=device_group(device, device_names, max(device_names, default=device)),
        name=f"stream {stream} {what}",
        rank=(Rank.ROWS, stream, place is not _Place.SPANS),
        at=at,
        description=described,
        stream=(device, stream),
    )


def _first(ts: Ints) -> int:
    return int(ts.min())


def _text(lane: int | str) -> str:
    return lane if isinstance(lane, str) else ""


def _thread_name(events: Events, thread: Thread, own: bool) -> str:
    """As the file calls it, with its number, which tells it from others of that name."""
    known = events.labels.get(("thread_name", thread), "").strip()
    short = re.fullmatch(rf"thread {re.escape(str(thread.tid))} \((.*)\)", known)
    name = f"thread {thread.tid}"
    if own:
        return f"{name} · main"
    label = short[1] if short else known
    return f"{name} · {label}" if label else name


def _purpose(events: Events, at: Ints) -> str:
    """What takes most of a stream's time."""
    communicates = np.array(
        [COMMUNICATION.search(telling(events.names[i])) is not None for i in np.unique(events.name[at])]
    )
    of_name = dict(zip(np.unique(events.name[at]).tolist(), communicates.tolist(), strict=True))
    talks = np.array([of_name[i] for i in events.name[at].tolist()], bool)
    copies = events.kind[at] == Kind.MEMCPY
    time = {
        "compute": int(events.dur[at][~talks & ~copies].sum()),
        "communication": int(events.dur[at][talks & ~copies].sum()),
        "copies": int(events.dur[at][copies].sum()),
    }
    return max(time, key=lambda what: time[what])


def _digits(lane: int | str) -> int:
    found = re.search(r"[0-9]{1,18}", str(lane))
    return int(found[0]) if found else 0


def _distinct(found: list[Row]) -> list[Row]:
    """Rows of one name would be drawn as one."""
    taken: dict[tuple[str, str], int] = {}
    for row in (row for row in found if row.name != MARKS):
        count = taken[row.group, row.name] = taken.get((row.group, row.name), 0) + 1
        if count > 1:
            row.name = f"{row.name} ({count})"
    return found
