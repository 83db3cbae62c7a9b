"""From a trace file to what the Perfetto UI shows without losing any of it.

::

    file ──> events ──> rows ──> lanes ──┐
      └────> harness.trace ──> findings ─┴─> perfetto ──> timeline.pftrace.gz, timeline.json
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from harness.errors import UsageError
from harness.timeline import perfetto
from harness.timeline.arrows import arrows
from harness.timeline.drawing import Drawn, Texts, Tracks
from harness.timeline.events import Events, read_events
from harness.timeline.findings import HOST, Marks, Overlay, findings
from harness.timeline.lanes import nested
from harness.timeline.perfetto import Unit
from harness.timeline.rows import Rank, Row, Slices, device_group, rows
from harness.trace import Trace, read
from harness.trace.file.collector import without_collector
from harness.trace.file.columns import Kind

Ints = NDArray[np.int64]

MAX_JSON_BYTES = 2**30
"""Three million events, which take a browser minutes."""

TIMELINE = "timeline.pftrace.gz"
FACTS = "timeline.json"
STEPS, IDLE = "steps", "idle"
"""Rows of findings, and the categories of their slices."""
_GZIP = 31  # zlib's word for a gzip header and the largest window
_HOST_GROUP = "CPU"


class Facts(msgspec.Struct, kw_only=True):
    """What is to be known of a prepared timeline."""

    title: str
    slices: int
    """All that are drawn, those of the findings included."""
    file_slices: int
    """Of the file."""
    arrows: int
    moved: int
    """Slices that cross others of their thread, and stand on lanes of their own."""
    clipped: int
    """Python frames that end early, where they cross others."""
    lost: int
    """Events of the file that cannot be read."""
    notes: list[str]
    """What was wrong with the file."""
    start: int
    """ns: when the window's first event began, on the timeline's clock: the zero of a report's `start_us`."""
    clock: int
    """ns: what the timeline's clock is ahead of the file's."""
    spots: dict[str, dict[str, tuple[int, int]]]
    """By kind (step, kernel, operator) and name: start and duration, ns, on the timeline's clock."""


@without_collector()
def prepare(source: Path, folder: Path, *, max_json_bytes: int = MAX_JSON_BYTES) -> Facts:
    """Write the timeline of a trace file into `folder`: `timeline.pftrace.gz` and what is to be known of it.

    Raises:
        TraceError: where the file holds no trace, or more than `max_json_bytes` of JSON.
    """
    trace = read(source, max_json_bytes=max_json_bytes)
    events = read_events(source, max_json_bytes)
    timeline = _Timeline(trace, events, findings(trace))
    packer = isal_zlib.compressobj(1, isal_zlib.DEFLATED, _GZIP)
    with (folder / TIMELINE).open("wb") as file:
        for block in timeline.blocks():
            file.write(packer.compress(block))
        file.write(packer.flush())
    facts = timeline.facts()
    (folder / FACTS).write_bytes(msgspec.json.encode(facts))
    return facts


def main(source: str, folder: str) -> None:
    """Prepare one trace, in a process that can be lost; an error's last line on stderr is for who has asked."""
    try:
        prepare(Path(source), Path(folder))
    except UsageError as error:
        sys.exit(str(error))


class _Timeline:
    """Everything that is drawn."""

    def __init__(self, trace: Trace, events: Events, found: Overlay) -> None:
        self._trace, self._events, self._found = trace, events, found
        self._names, self._categories = Texts(events.names), Texts(events.categories)
        names = {device.id: device.name for device in trace.devices}
        self._rows = rows(events, names)
        self._groups = self._group_names(names)
        earliest = [int(ts.min()) for ts in (events.ts, *(curve.ts for curve in found.memory)) if len(ts)]
        self._clock = -min([*earliest, 0])
        self._slices = self._arrows = self._moved = self._clipped = 0

    def blocks(self) -> Iterator[bytes]:
        """The file, a megabyte or so at a time."""
        of_event, self._arrows = arrows(self._events)
        tracks = Tracks()
        drawn = Drawn()
        every = [
            (row, _of_file(self._events, row), [of_event.get(i, b"") for i in row.at.tolist()]) for row in self._rows
        ]
        every += [(row, slices, [b""] * len(slices.start)) for row, slices in self._of_findings()]
        for row, slices, flows in every:
            found = nested(slices.start, slices.end, slices.flexible)
            self._moved += found.moved
            self._clipped += found.clipped
            self._slices += len(slices.start) - int(np.count_nonzero(slices.is_instant))
            count = int(found.brackets.lane.max(initial=-1)) + 1
            uuids = np.array([tracks.add(row) for _ in range(count)], np.int64)
            drawn.add(slices, flows, found.brackets, uuids)
        curves = [
            (tracks.add(Row(self._groups[curve.device], curve.name, (Rank.MEMORY, i), _NOTHING), Unit.BYTES), curve)
            for i, curve in enumerate(self._found.memory)
        ]
        yield perfetto.tracks(tracks.described()) + perfetto.interned(self._names.all, self._categories.all, "args")
        for uuid, curve in curves:
            yield perfetto.counts(curve.ts + self._clock, uuid, curve.value)
        yield from drawn.blocks(self._clock)

    def facts(self) -> Facts:
        """After the last block."""
        hidden = [f"{count} events of phase {phase} are not drawn" for phase, count in self._events.hidden.items()]
        return Facts(
            title=self._trace.source.name,
            slices=self._slices,
            file_slices=int(np.count_nonzero(~self._events.is_instant)),
            arrows=self._arrows,
            moved=self._moved,
            clipped=self._clipped,
            lost=self._trace.lost_events,
            notes=[*self._trace.warnings, *hidden],
            start=self._trace.start + self._clock,
            clock=self._clock,
            spots={
                kind: {name: (start + self._clock, dur) for name, (start, dur) in of_kind.items()}
                for kind, of_kind in self._found.spots.items()
            },
        )

    def _group_names(self, names: dict[int, str]) -> dict[int, str]:
        """The groups that findings of the host and of each device belong to."""
        groups = {row.stream[0]: row.group for row in self._rows if row.stream is not None}
        host = max((row for row in self._rows if row.group.startswith(_HOST_GROUP)), key=_length, default=None)
        groups[HOST] = host.group if host is not None else _HOST_GROUP
        for curve in self._found.memory:
            groups.setdefault(curve.device, device_group(curve.device, names, max(names, default=0)))
        for marks in self._found.idle:
            groups.setdefault(marks.device, device_group(marks.device, names, max(names, default=0)))
        return groups

    def _of_findings(self) -> Iterator[tuple[Row, Slices]]:
        for marks, name in ((self._found.steps, STEPS), *((idle, IDLE) for idle in self._found.idle)):
            if len(marks.start):
                yield Row(self._groups[marks.device], name, (Rank.FINDINGS,), _NOTHING), self._of_marks(marks, name)

    def _of_marks(self, marks: Marks, category: str) -> Slices:
        count = len(marks.start)
        return Slices(
            start=marks.start,
            end=marks.end,
            name=np.array([self._names[name] for name in marks.names], np.int64),
            category=np.full(count, self._categories[category]),
            arguments=marks.arguments,
            is_instant=np.zeros(count, bool),
            flexible=np.zeros(count, bool),
        )


_NOTHING = np.zeros(0, np.int64)


def _length(row: Row) -> int:
    return len(row.at)


def _of_file(events: Events, row: Row) -> Slices:
    at = row.at
    return Slices(
        start=events.ts[at],
        end=events.end[at],
        name=events.name[at],
        category=events.category[at],
        arguments=[events.arguments[i] for i in at.tolist()],
        is_instant=events.is_instant[at],
        flexible=events.kind[at] == Kind.PYTHON,
    )
