"""The events of a trace file with all their arguments, which the findings do without."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from harness.trace.errors import TraceError
from harness.trace.file.collector import without_collector
from harness.trace.file.columns import KIND_OF_CATEGORY, Kind, Thread
from harness.trace.file.contents import contents, what_it_is
from harness.trace.file.decode import decode, decoders, decoders_of
from harness.trace.file.reader import astray, nanoseconds
from harness.trace.file.salvage import salvage

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NO_ARGUMENTS = Raw(b"")
_MOST_ARGUMENTS = 1 << 24  # bytes; nobody reads more of one slice
_LONGEST_NUMBER = 18
_NAMES = ("process_name", "process_labels", "thread_name")


class _Event(msgspec.Struct, gc=False):
    """An event of any phase. What it lacks of its time is no number, which JSON cannot say."""

    ph: str
    cat: str = "unknown"
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = math.nan
    dur: float = math.nan
    id: int | str = 0
    args: Raw = NO_ARGUMENTS


class _ExactEvent(_Event, gc=False):
    ts: Decimal = Decimal("nan")  # type: ignore[assignment]


class _Label(msgspec.Struct):
    name: str = ""
    labels: str = ""


_DECODERS = (decoders_of(_Event), decoders_of(_ExactEvent))
_arguments = msgspec.json.Decoder(_Label, strict=False)


class Flow(NamedTuple):
    """One end of an arrow."""

    starts: bool
    key: tuple[str, int | str]
    """Category and id: what both ends of an arrow share."""
    thread: int
    ts: int
    """ns"""


class Events(NamedTuple):
    """Slices and instants in file order, as columns of one length; times in ns."""

    names: list[str]
    categories: list[str]
    threads: list[Thread]
    labels: dict[tuple[str, Thread], str]
    """By kind of metadata (`process_name`, `process_labels`, `thread_name`) and what it names."""
    is_instant: Bools
    kind: NDArray[np.int8]
    """`Kind`; OTHER for instants."""
    name: Ints
    """Index into `names`; `category` and `thread` likewise."""
    category: Ints
    thread: Ints
    ts: Ints
    dur: Ints
    arguments: list[Raw]
    """JSON objects; `NO_ARGUMENTS` for none."""
    flows: list[Flow]
    hidden: dict[str, int]
    """Events of phases that a timeline of torch's does not know, by phase."""

    @property
    def end(self) -> Ints:
        return self.ts + self.dur


@without_collector()
def read_events(path: Path, max_json_bytes: int) -> Events:
    """What is to be drawn of a file, repaired and read as far as it goes where it is damaged. Allocator events are
    not in it: their totals are drawn as curves.

    Raises:
        TraceError: as `harness.trace.read` does.
    """
    found = contents(path, max_json_bytes)
    chosen = decoders(found.json, *_DECODERS)
    try:
        return _columns(decode(found.json, chosen).batches)
    except (msgspec.MsgspecError, RecursionError) as error:
        salvaged = salvage(found.json, chosen)
        if salvaged is None:
            raise TraceError(path, what_it_is(found.json)) from error
        return _columns(salvaged.document.batches)


def _columns(batches: Iterable[list[_Event]]) -> Events:
    columns = _Columns()
    for batch in batches:
        columns.add(batch)
    return columns.events()


class _Columns:
    """Columns as they grow. A batch of events is let go of before the next one is decoded."""

    def __init__(self) -> None:
        self._names, self._categories, self._pairs = _numbering(), _numbering(), _numbering()
        self._parts: list[list[NDArray[Any]]] = []
        self._arguments: list[Raw] = []
        self._flows: list[tuple[bool, tuple[str, int | str], int, int]] = []
        self._labels: dict[tuple[str, Thread], str] = {}
        self._hidden: dict[str, int] = {}

    def add(self, batch: list[_Event]) -> None:
        drawn: list[_Event] = []
        flows: list[_Event] = []
        for event in batch:
            phase = event.ph
            timed = event.ts == event.ts
            if phase == "X":
                if timed and event.dur == event.dur:
                    drawn.append(event)
            elif phase in "iI":
                if timed and event.name != "[memory]":
                    drawn.append(event)
            elif phase in "sf":
                if timed:
                    flows.append(event)
            elif phase == "M":
                _name(event, self._labels)
            elif phase != "t":
                self._hidden[phase] = self._hidden.get(phase, 0) + 1
        names, categories, pairs = self._names, self._categories, self._pairs
        self._parts.append(
            [
                np.array([event.ph != "X" for event in drawn], bool),
                np.array([names[event.name] for event in drawn], np.int64),
                np.array([categories[event.cat] for event in drawn], np.int64),
                np.array([pairs[event.pid, event.tid] for event in drawn], np.int64),
                nanoseconds([event.ts for event in drawn]),
                np.maximum(nanoseconds([event.dur if event.ph == "X" else 0.0 for event in drawn]), 0),
            ]
        )
        self._arguments += [event.args if _has_arguments(event.args) else NO_ARGUMENTS for event in drawn]
        at = nanoseconds([event.ts for event in flows]).tolist()
        self._flows += [
            (event.ph == "s", (event.cat, event.id), pairs[event.pid, event.tid], ts)
            for event, ts in zip(flows, at, strict=True)
        ]

    def events(self) -> Events:
        """All that were added."""
        if not self._parts:
            self.add([])
        is_instant, name, category, pair, ts, dur = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        self._parts.clear()
        kept = ~astray(ts, dur)
        arguments = list(itertools.compress(self._arguments, kept.tolist()))
        is_instant, name, category, pair, ts, dur = (
            column[kept] for column in (is_instant, name, category, pair, ts, dur)
        )
        of_category = np.array([KIND_OF_CATEGORY.get(cat, Kind.OTHER) for cat in self._categories], np.int8)
        threads = _numbering()
        of_pair = np.array([threads[_thread(*both)] for both in self._pairs], np.int64)
        return Events(
            names=list(self._names),
            categories=list(self._categories),
            threads=list(threads),
            labels=self._labels,
            is_instant=is_instant,
            kind=np.where(is_instant, np.int8(Kind.OTHER), of_category[category] if len(category) else np.int8(0)),
            name=name,
            category=category,
            thread=of_pair[pair] if len(pair) else pair,
            ts=ts,
            dur=dur,
            arguments=arguments,
            flows=[Flow(starts, key, int(of_pair[both]), at) for starts, key, both, at in self._flows],
            hidden=self._hidden,
        )


def _has_arguments(arguments: Raw) -> bool:
    return 2 < len(memoryview(arguments)) < _MOST_ARGUMENTS


def _numbering() -> defaultdict[Any, int]:
    """Numbers values in order of appearance: reading one that is new gives it the next number."""
    following: Callable[[], int] = itertools.count().__next__
    return defaultdict(following)


def _thread(pid: int | str, tid: int | str) -> Thread:
    """Of numbers where both are, which files of 2021 write as text here and as numbers there."""
    return Thread(*(int(lane) if _is_number(lane) else lane for lane in (pid, tid)))


def _is_number(lane: int | str) -> bool:
    return isinstance(lane, str) and lane.isdecimal() and len(lane) <= _LONGEST_NUMBER


def _name(event: _Event, labels: dict[tuple[str, Thread], str]) -> None:
    if event.name not in _NAMES:
        return
    try:
        told = _arguments.decode(event.args)
    except msgspec.MsgspecError:
        return
    thread = _thread(event.pid, event.tid if event.name == "thread_name" else 0)
    labels[event.name, thread] = told.name or told.labels
