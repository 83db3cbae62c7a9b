"""Bytes of a kineto trace to typed events.

One typed pass of msgspec, tagged by `ph`, so that flow and metadata events (a third of a file) cost little
and complete events arrive as small structs. Nested arguments that few need stay undecoded (`Raw`).
A file that this schema refuses is damaged or odd, and goes to repair and salvage.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, Union

import msgspec
from msgspec import Raw, field

NOTHING = Raw()


class Arguments(msgspec.Struct, gc=False):
    """The arguments of complete events that findings are made of."""

    external_id: int = field(default=0, name="External id")
    external_id_2021: int = field(default=0, name="external id")
    correlation: int = -1
    device: int = -1
    stream: int | str = -1
    bytes: int = 0
    blocks_per_sm: float = field(default=-1.0, name="blocks per SM")
    input_dims: Raw = field(default=NOTHING, name="Input Dims")
    input_types: Raw = field(default=NOTHING, name="Input type")
    concrete_inputs: Raw = field(default=NOTHING, name="Concrete Inputs")
    call_stack: Raw = field(default=NOTHING, name="Call stack")
    sequence: int = field(default=-1, name="Sequence number")
    forward_thread: int = field(default=0, name="Fwd thread id")
    python_id: int = field(default=0, name="Python id")
    python_parent_id: int | None = field(default=0, name="Python parent id")


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """A span: `ph` X. `ts` and `dur` are microseconds."""

    name: str = ""
    cat: str = "unknown"
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: Arguments | None = None


class AllocatorArguments(msgspec.Struct, gc=False):
    """What a `[memory]` instant carries; totals are missing before torch 1.10."""

    bytes: int = field(default=0, name="Bytes")
    device_type: int = field(default=0, name="Device Type")
    device_index: int = field(default=-1, name="Device Id")
    allocated: int = field(default=-1, name="Total Allocated")
    reserved: int = field(default=-1, name="Total Reserved")


class Instant(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """A point in time: allocator events are instants named `[memory]`."""

    name: str = ""
    cat: str = "unknown"
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
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


_COUNTED = tuple(_counted(phase) for phase in "sftBEIbneCPRNODcv")


class DeviceProperties(msgspec.Struct):
    id: int = 0
    name: str = ""
    total_memory: int | None = field(default=None, name="totalGlobalMem")
    major: int | None = field(default=None, name="computeMajor")
    minor: int | None = field(default=None, name="computeMinor")
    multiprocessors: int | None = field(default=None, name="numSms")


class DistributedInfo(msgspec.Struct):
    rank: int = 0
    world_size: int = 1
    backend: str | None = None


class HarnessFacts(msgspec.Struct):
    """The top-level key `harness`, written by `harness.record`."""

    version: int = 1
    harness_version: str | None = None
    torch_version: str | None = None
    first_step: int | None = None
    steps: int | None = None
    partial: bool = False
    unprofiled_step_us: float | None = None
    schedule: dict[str, Any] | None = None
    rank: int | None = None
    world_size: int | None = None
    cost: dict[str, Any] | None = None
    trigger: str | None = None
    cause: str | None = None


class Document(msgspec.Struct):
    """A whole file."""

    traceEvents: list[Any] = []
    deviceProperties: list[DeviceProperties] = []
    distributedInfo: DistributedInfo | None = None
    harness: HarnessFacts | None = None
    torch_version: str | None = None
    warnings: tuple[str, ...] = ()


# The header is decoded field by field: one that is not as expected costs a warning, not the file.
_HEADER: dict[str, Any] = {
    "deviceProperties": list[DeviceProperties],
    "distributedInfo": DistributedInfo | None,
    "harness": HarnessFacts | None,
    "torch_version": str | None,
}


class _ExactComplete(Complete, gc=False, tag_field="ph", tag="X"):
    ts: Decimal = Decimal(0)  # type: ignore[assignment]


class _ExactInstant(Instant, gc=False, tag_field="ph", tag="i"):
    ts: Decimal = Decimal(0)  # type: ignore[assignment]


def _decoders(*events: Any) -> tuple[msgspec.json.Decoder[Any], msgspec.json.Decoder[Any]]:
    """Decoders of a whole object, and of the bare list that older tools write."""
    event_list = list[Union[(*events, Metadata, *_COUNTED)]]  # type: ignore[valid-type]
    fields: list[Any] = [("traceEvents", event_list)]
    fields += [(name, Raw, NOTHING) for name in _HEADER]
    document = msgspec.defstruct("UndecodedHeader", fields)
    return msgspec.json.Decoder(document), msgspec.json.Decoder(event_list)


_FAST = _decoders(Complete, Instant)
_EXACT = _decoders(_ExactComplete, _ExactInstant)
_EPOCH_WITH_FRACTION = re.compile(rb'"ts": ?[1-9][0-9]{13,}\.[0-9]')


def decode(data: bytes) -> Document:
    """Events and metadata of a trace file's bytes (JSON, decompressed).

    Timestamps arrive as floats where a double holds them to the nanosecond: below 2^43 µs, which is every
    file with a `baseTimeNanoseconds` (at most three months of µs). Files of torch 2.3 and earlier that count
    nanoseconds from 1970 decode to `Decimal`, since a double there holds only a quarter of a microsecond.

    Raises msgspec.MsgspecError where the bytes are no JSON, or not of this shape.
    """
    document_decoder, list_decoder = _EXACT if _EPOCH_WITH_FRACTION.search(data, 0, 1 << 16) else _FAST
    if data[:64].lstrip()[:1] == b"[":
        return Document(traceEvents=list_decoder.decode(data))
    undecoded = document_decoder.decode(data)
    return header(undecoded.traceEvents, {name: bytes(getattr(undecoded, name)) for name in _HEADER})


def header(events: list[Any], fields: dict[str, bytes]) -> Document:
    """A document of decoded events and the JSON of its header fields; empty for a field that is missing."""
    known: dict[str, Any] = {}
    warnings = []
    for name, raw in fields.items():
        try:
            if raw:
                known[name] = msgspec.json.decode(raw, type=_HEADER[name])
        except msgspec.MsgspecError as error:
            warnings.append(f"{name} of the file is not as expected and was left out: {error}")
    return Document(traceEvents=events, warnings=tuple(warnings), **known)
