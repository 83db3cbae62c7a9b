"""Bytes of a kineto trace to typed events.

Typed decoding by msgspec, tagged by `ph`, so that flow and metadata events (a third of a file) cost little
and complete events arrive as small structs. Nested arguments that few need stay undecoded (`Raw`). Some
hundred events at a time: while their columns are taken they are still in the processor's cache, and the next
ones reuse their memory, which makes reading twice as fast and keeps it within the size of the file.
A file that this schema refuses is damaged or odd, and goes to `salvage.py`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, Union

import msgspec
from msgspec import Raw, field

NOTHING = Raw(b"[]")
"""Of an argument that an event lacks."""


# Fields stand in the order in which kineto writes them, which is where msgspec looks first.
class Arguments(msgspec.Struct, gc=False):
    """The arguments of complete events that findings are made of."""

    external_id: int = field(default=0, name="External id")
    concrete_inputs: Raw = field(default=NOTHING, name="Concrete Inputs")
    input_types: Raw = field(default=NOTHING, name="Input type")
    input_dims: Raw = field(default=NOTHING, name="Input Dims")
    sequence: int = field(default=-1, name="Sequence number")
    forward_thread: int = field(default=0, name="Fwd thread id")
    device: int = -1
    stream: int | str = -1
    correlation: int = -1
    bytes: int = 0
    blocks_per_sm: float = field(default=-1.0, name="blocks per SM")
    python_id: int = field(default=0, name="Python id")
    python_parent_id: int | None = field(default=0, name="Python parent id")
    external_id_2021: int = field(default=0, name="external id")
    collective: str = field(default="", name="Collective name")
    sent: int = field(default=-1, name="In msg nelems")
    received: int = field(default=-1, name="Out msg nelems")
    group_size: int = field(default=0, name="Group size")
    dtype: str = ""
    group: str = field(default="", name="Process Group Name")
    group_ranks: str = field(default="", name="Process Group Ranks")


class Complete(msgspec.Struct, gc=False, kw_only=True, tag_field="ph", tag="X"):
    """A span: `ph` X. `ts` and `dur` are microseconds; an event without them is damaged."""

    cat: str = "unknown"
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float
    dur: float
    args: Arguments | None = None


class AllocatorArguments(msgspec.Struct, gc=False):
    """What a `[memory]` instant carries; totals are missing before torch 1.10."""

    bytes: int = field(default=0, name="Bytes")
    device_type: int = field(default=0, name="Device Type")
    device_index: int = field(default=-1, name="Device Id")
    allocated: int = field(default=-1, name="Total Allocated")
    reserved: int = field(default=-1, name="Total Reserved")


class Instant(msgspec.Struct, gc=False, kw_only=True, tag_field="ph", tag="i"):
    """A point in time: allocator events are instants named `[memory]`."""

    name: str = ""
    cat: str = "unknown"
    pid: int | str = 0
    tid: int | str = 0
    ts: float
    args: AllocatorArguments | None = None


class _Label(msgspec.Struct, gc=False):
    name: str = ""


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """A process or thread name."""

    name: str = ""
    cat: str = "unknown"
    pid: int | str = 0
    tid: int | str = 0
    args: _Label | None = None


def _counted(phase: str) -> Any:
    """An event of which only the category is kept."""
    return msgspec.defstruct(f"Phase_{phase}", [("cat", str, "unknown")], gc=False, tag_field="ph", tag=phase)


_COUNTED = tuple(_counted(phase) for phase in "BEICPSTFMbnestfpNODVvRc()" if phase != "M")


Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class DeviceProperties(msgspec.Struct):
    id: Whole = 0
    name: str = ""
    total_memory: Whole | None = field(default=None, name="totalGlobalMem")
    major: Whole | None = field(default=None, name="computeMajor")
    minor: Whole | None = field(default=None, name="computeMinor")
    multiprocessors: Whole | None = field(default=None, name="numSms")


class DistributedInfo(msgspec.Struct):
    rank: Whole = 0
    world_size: Whole = 1
    backend: str | None = None


class HarnessFacts(msgspec.Struct):
    """The top-level key `harness`, written by `harness.record`."""

    version: int = 1
    harness_version: str | None = None
    torch_version: str | None = None
    first_step: Whole | None = None
    steps: Whole | None = None
    partial: bool = False
    cut_short: str | None = None
    passed_over: dict[str, Whole] = {}
    unprofiled_step_us: Annotated[float, msgspec.Meta(ge=0)] | None = None
    schedule: dict[str, Any] | None = None
    rank: Whole | None = None
    world_size: Whole | None = None
    cost: dict[str, Any] | None = None
    trigger: str | None = None
    cause: str | None = None


class Header(msgspec.Struct):
    """What a file says beside its events."""

    deviceProperties: list[DeviceProperties] = []
    distributedInfo: DistributedInfo | None = None
    harness: HarnessFacts | None = None
    torch_version: str | None = None
    warnings: tuple[str, ...] = ()


class Document(NamedTuple):
    """A whole file. `batches` are lists of events that are decoded as they are asked for, and may raise what
    `decode` raises."""

    batches: Iterable[list[Any]]
    header: Header


# The header is decoded field by field: one that is not as expected costs a warning, not the file.
_HEADER: dict[str, Any] = {
    "deviceProperties": list[DeviceProperties],
    "distributedInfo": DistributedInfo | None,
    "harness": HarnessFacts | None,
    "torch_version": str | None,
}


class _ExactComplete(Complete, gc=False, kw_only=True, tag_field="ph", tag="X"):
    ts: Decimal  # type: ignore[assignment]


class _ExactInstant(Instant, gc=False, kw_only=True, tag_field="ph", tag="i"):
    ts: Decimal  # type: ignore[assignment]


class Decoders(NamedTuple):
    """Of a whole object, of a list of events (older tools write nothing else) and of one event; the last two
    also with numbers that were written as strings."""

    document: msgspec.json.Decoder[Any]
    events: msgspec.json.Decoder[list[Any]]
    event: msgspec.json.Decoder[Any]
    loose_events: msgspec.json.Decoder[list[Any]]
    loose_event: msgspec.json.Decoder[Any]


def decoders_of(event: Any) -> Decoders:
    """Those of a file whose events are of this type: a struct, or a union of structs tagged by `ph`."""
    # Any: `list[event]` of a computed union is beyond a type checker.
    events: Any = list[event]
    document = msgspec.defstruct(
        "UndecodedHeader", [("traceEvents", events), *((name, Raw, NOTHING) for name in _HEADER)]
    )
    return Decoders(
        msgspec.json.Decoder(document),
        msgspec.json.Decoder(events),
        msgspec.json.Decoder(event),
        msgspec.json.Decoder(events, strict=False),
        msgspec.json.Decoder(event, strict=False),
    )


_FAST = decoders_of(Union[(Complete, Instant, Metadata, *_COUNTED)])
_EXACT = decoders_of(Union[(_ExactComplete, _ExactInstant, Metadata, *_COUNTED)])
_EPOCH_WITH_FRACTION = re.compile(rb'"ts": ?"?[1-9][0-9]{13,}\.[0-9]')


def decoders(data: bytes, fast: Decoders = _FAST, exact: Decoders = _EXACT) -> Decoders:
    """Those that keep this file's timestamps to the nanosecond.

    A double does below 2^43 µs, which is every file with a `baseTimeNanoseconds` (at most three months of
    µs). Files of torch 2.3 and earlier count nanoseconds from 1970, of which a double holds only a quarter of
    a microsecond: theirs become `Decimal`.
    """
    return exact if _EPOCH_WITH_FRACTION.search(data, 0, 1 << 16) else fast


def decode(data: bytes, chosen: Decoders | None = None) -> Document:
    """Events and metadata of a trace file's bytes (JSON, decompressed), by those that fit the file unless given.

    Raises msgspec.MsgspecError, or RecursionError, where the bytes are no JSON or not of this shape: at once
    or with one of the batches.
    """
    chosen = chosen or decoders(data)
    begin = EVENTS_BEGIN.search(data)
    if begin is None and LIST_BEGINS.match(data):
        return Document([chosen.events.decode(data)], Header())
    edges = list(_edges(data, begin.end())) if begin is not None else []
    if begin is None or not edges:
        undecoded = chosen.document.decode(data)
        return Document([undecoded.traceEvents], header(_fields(undecoded)))
    # What stands before the events and what stands after them are documents with fewer events.
    before = chosen.document.decode(data[: begin.end()] + b"]}")
    after = chosen.document.decode(b'{"traceEvents":[' + data[edges[-1] :])
    blocks = itertools.pairwise([begin.end(), *edges])
    batches = (chosen.events.decode(b"[" + data[low:high].rstrip(b", \t\r\n") + b"]") for low, high in blocks)
    return Document(itertools.chain(batches, [after.traceEvents]), header(_fields(before) | _fields(after)))


EVENTS_BEGIN = re.compile(rb'"traceEvents"\s*:\s*\[')
LIST_BEGINS = re.compile(rb"\s*\[")
# In JSON, this cannot stand in a string: its quotes would be escaped.
_NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"ph"\s*:)')
_BATCH_BYTES = 1 << 18


def _edges(data: bytes, begin: int) -> Iterator[int]:
    """Where batches of events end and the next begin, the last of them before the last batch."""
    while found := _NEXT_EVENT.search(data, begin + _BATCH_BYTES):
        begin = found.end()
        yield begin


def _fields(undecoded: Any) -> dict[str, Raw]:
    fields = {name: getattr(undecoded, name) for name in _HEADER}
    return {name: raw for name, raw in fields.items() if raw is not NOTHING}


def header(fields: Mapping[str, Raw]) -> Header:
    """The header from the JSON of its fields, of which others are left out."""
    known: dict[str, Any] = {}
    warnings = []
    for name, expected in _HEADER.items():
        try:
            if name in fields:
                known[name] = msgspec.json.decode(fields[name], type=expected)
        except msgspec.MsgspecError as error:
            warnings.append(f"{name} of the file is not as expected and was left out: {error}")
    return Header(warnings=tuple(warnings), **known)
