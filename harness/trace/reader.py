"""A trace file as columns."""

from __future__ import annotations

import enum
import gc
import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from harness.trace.decode import (
    NOTHING,
    AllocatorArguments,
    Arguments,
    Complete,
    DeviceProperties,
    DistributedInfo,
    Document,
    HarnessFacts,
    Instant,
    Metadata,
    decode,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class TraceError(ValueError):
    """This is no trace that can be read. One line: what was wrong, where, and what to do."""


class Kind(enum.IntEnum):
    """What a complete event is. Up to RUNTIME they run on the host, from KERNEL to MEMSET on a device."""

    OPERATOR = 0
    ANNOTATION = 1
    PYTHON = 2
    RUNTIME = 3
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    DEVICE_ANNOTATION = 7
    OVERHEAD = 8
    OTHER = 9


# Categories of torch 1.8 to today. ROCm files say cuda_runtime or hip_runtime, by version.
KIND_OF_CATEGORY = {
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.PYTHON,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "Runtime": Kind.RUNTIME,
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "Memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "Memset": Kind.MEMSET,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "overhead": Kind.OVERHEAD,
}


class Thread(NamedTuple):
    """A host thread, or a lane of device events."""

    pid: int | str
    tid: int | str


class Signature(NamedTuple):
    """The undecoded arguments of an operator call: JSON of dimensions, types and concrete values."""

    dims: bytes
    types: bytes
    concrete: bytes


@dataclass(frozen=True, slots=True)
class Allocations:
    """Allocator events (`[memory]`) in order of time; columns of one length m."""

    ts: Ints
    """ns"""
    thread: Ints
    bytes: Ints
    """Allocated, or freed where negative."""
    device_type: Ints
    """torch's `DeviceType`: 0 CPU, 1 CUDA, 6 HIP, 12 XPU, 20 PrivateUse1."""
    device: Ints
    allocated: Ints
    """Bytes that the allocator of this device had handed out afterwards; -1 when the file does not say."""
    reserved: Ints


@dataclass(frozen=True)
class Trace:
    """Complete events (`ph` X) of one file in file order, as columns of one length n, times in int64 ns."""

    source: Path
    file_bytes: int
    json_bytes: int
    categories: dict[str, int]
    """Events by category, of every phase; `unknown` for none."""
    names: tuple[str, ...]
    threads: tuple[Thread, ...]
    thread_names: dict[Thread, str]
    signatures: tuple[Signature, ...]
    kind: NDArray[np.int8]
    """`Kind`"""
    name: Ints
    """Index into `names`."""
    thread: Ints
    """Index into `threads`."""
    ts: Ints
    dur: Ints
    external: Ints
    """`External id`: on an operator its own id, elsewhere that of the operator that caused it; 0 for none."""
    correlation: Ints
    """Joins a launch with what it launched; -1 for none."""
    device: Ints
    """Of device events; -1 on the host."""
    stream: Ints
    bytes: Ints
    """Of copies and memsets."""
    blocks_per_sm: NDArray[np.float64]
    """Of kernels: blocks of the grid over multiprocessors; -1 where the file does not say."""
    signature: Ints
    """Index into `signatures`; -1 without shapes."""
    sequence: Ints
    """Autograd's sequence number, shared by a forward operator and its backward; -1 for none."""
    forward_thread: Ints
    """Torch's number of the thread that ran the forward operator, on backward operators; 0 for none."""
    python_id: Ints
    python_parent: Ints
    """`python_id` of the caller; 0 for none."""
    allocations: Allocations
    devices: tuple[DeviceProperties, ...] = ()
    distributed: DistributedInfo | None = None
    harness: HarnessFacts | None = None
    torch_version: str | None = None
    lost_events: int = 0
    """Events that the file holds but that could not be read."""
    warnings: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.ts)

    @cached_property
    def end(self) -> Ints:
        """ts + dur, ns."""
        return self.ts + self.dur

    @cached_property
    def on_device(self) -> Bools:
        """Work of a device: kernels, copies, memsets; annotations are not."""
        return (self.kind >= Kind.KERNEL) & (self.kind <= Kind.MEMSET)

    @cached_property
    def start(self) -> int:
        """ns of the first host or device event: the zero of all `start_us` of a report."""
        return int(self.ts.min()) if len(self) else 0

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], Ints]:
        """Names as tables show them, `ProfilerStep*` for every step, and the index of each event's."""
        table: dict[str, int] = {}
        of_name = [
            table.setdefault("ProfilerStep*" if name.startswith("ProfilerStep#") else name, len(table))
            for name in self.names
        ]
        return tuple(table), np.array(of_name, np.int64)[self.name]

    def of(self, *kinds: Kind) -> Ints:
        """Indices of the events of these kinds, in file order."""
        if len(kinds) == 1:
            return self._by_kind[kinds[0]]
        return np.sort(np.concatenate([self._by_kind[kind] for kind in kinds]))

    @cached_property
    def _by_kind(self) -> list[Ints]:
        order = np.argsort(self.kind, kind="stable")
        return np.split(order, np.searchsorted(self.kind[order], np.arange(1, len(Kind))))

    def named(self, at: Ints, matches: Callable[[str], object]) -> Bools:
        """Which of the events `at` have a name that `matches`; each distinct name is asked once."""
        present = np.zeros(len(self.names), bool)
        present[self.name[at]] = True
        for name in np.flatnonzero(present).tolist():
            present[name] = bool(matches(self.names[name]))
        return present[self.name[at]]


def read(path: str | os.PathLike[str]) -> Trace:
    """Columns of a kineto trace, `.json` or gzip-compressed, of torch 1.8 to today.

    Raises TraceError, of one line, when the path cannot be read or holds no trace.
    """
    path = Path(path)
    raw = _file_bytes(path)
    data = _decompressed(raw, path)
    with _no_collection():
        try:
            document = decode(data)
        except msgspec.MsgspecError as error:
            raise TraceError(f"{path}: not a trace that can be read: {error}") from error
        return columns(document, source=path, file_bytes=len(raw), json_bytes=len(data))


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


def _file_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error


def _decompressed(raw: bytes, path: Path) -> bytes:
    if raw[:2] != b"\x1f\x8b":
        return raw
    members = []
    try:
        while raw[:2] == b"\x1f\x8b":
            member = isal_zlib.decompressobj(wbits=_GZIP)
            members.append(member.decompress(raw))
            if not member.eof:
                raise TraceError(f"{path}: gzip ends early, after {sum(map(len, members))} bytes of the trace")
            raw = member.unused_data
    except isal_zlib.error as error:  # type: ignore[misc]  # a class, whatever isal's stub says
        raise TraceError(f"{path}: damaged gzip: {error}") from error
    return members[0] if len(members) == 1 else b"".join(members)


_GZIP = 31  # zlib: a gzip header and the largest window
_NO_ARGUMENTS = Arguments()
_NO_ALLOCATION = AllocatorArguments()
_CODE_OF_CATEGORY = {category: int(kind) for category, kind in KIND_OF_CATEGORY.items()}


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
    for chunk in _chunks(document.traceEvents):
        for kind_of_event in dict.fromkeys(map(type, chunk)):
            events: list[Any] = [event for event in chunk if event.__class__ is kind_of_event]
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
    warnings = (*document.warnings, *warnings)
    kinds = np.array([_CODE_OF_CATEGORY.get(c, Kind.OTHER) for c in rows.categories], np.int8)
    kind = kinds[column["category"]]
    counts.update(dict(zip(rows.categories, np.bincount(column["category"]).tolist(), strict=True)))
    allocations = _allocations(allocating, rows.threads)
    threads = tuple(Thread(*pair) for pair in rows.threads)
    duration = column["dur"]
    negative = int(np.count_nonzero(duration < 0))
    if negative:
        warnings = (*warnings, f"{negative} events of negative duration count as empty")
    facts = document.harness
    return Trace(
        source=source,
        file_bytes=file_bytes,
        json_bytes=json_bytes,
        categories=dict(counts),
        names=tuple(rows.names),
        threads=threads,
        thread_names=thread_names,
        signatures=tuple(Signature(*key) for key in rows.signatures),
        kind=kind,
        name=column["name"],
        thread=column["thread"],
        ts=column["ts"],
        dur=np.maximum(duration, 0),
        external=column["external"],
        correlation=column["correlation"],
        signature=column["signature"],
        sequence=column["sequence"],
        forward_thread=column["forward_thread"],
        **_device_columns(rows, column["thread"], threads),
        **_python_columns(rows, len(kind)),
        allocations=allocations,
        devices=tuple(document.deviceProperties),
        distributed=document.distributedInfo,
        harness=facts,
        torch_version=document.torch_version or (facts.torch_version if facts is not None else None),
        lost_events=lost_events,
        warnings=warnings,
    )


# Events of one chunk stay in the cache while every column is taken from them, and their lists are reused; a
# pass over all events for each column takes twice as long.
_CHUNK = 2048
_DEVICE_CATEGORIES = frozenset(
    category for category, kind in KIND_OF_CATEGORY.items() if Kind.KERNEL <= kind <= Kind.DEVICE_ANNOTATION
)


def _chunks(events: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(events), _CHUNK):
        yield events[start : start + _CHUNK]


class _Rows:
    """Columns of complete events as they grow. What only some events have is kept with their places."""

    def __init__(self) -> None:
        self.categories, self.names = _numbering(), _numbering()
        self.threads, self.signatures = _numbering(), _numbering()
        self.device: dict[int, Arguments] = {}
        self.python: dict[int, Arguments] = {}
        self._length = 0
        self._parts: list[dict[str, Ints]] = []

    def add(self, events: list[Complete]) -> None:
        start = self._length
        categories, names, threads, signatures = self.categories, self.names, self.threads, self.signatures
        arguments = [e.args or _NO_ARGUMENTS for e in events]
        category = [categories[e.cat] for e in events]
        self._parts.append(
            {
                "category": _ints(category),
                "name": _ints([names[e.name] for e in events]),
                "thread": _ints([threads[e.pid, e.tid] for e in events]),
                "ts": _nanoseconds([e.ts for e in events]),
                "dur": _nanoseconds([e.dur for e in events]),
                "external": _ints([a.external_id or a.external_id_2021 for a in arguments]),
                "correlation": _ints([a.correlation for a in arguments]),
                "sequence": _ints([a.sequence for a in arguments]),
                "forward_thread": _ints([a.forward_thread for a in arguments]),
                "signature": _ints(
                    [
                        -1
                        if a.input_dims is NOTHING
                        else signatures[bytes(a.input_dims), bytes(a.input_types), bytes(a.concrete_inputs)]
                        for a in arguments
                    ]
                ),
            }
        )
        self.python |= {i: a for i, a in enumerate(arguments, start) if a.python_id}
        device = {categories[c] for c in _DEVICE_CATEGORIES if c in categories}
        self.device |= {i: arguments[i - start] for i, c in enumerate(category, start) if c in device}
        self._length += len(events)

    def columns(self) -> dict[str, Ints]:
        if not self._parts:
            self.add([])
        return {name: np.concatenate([part[name] for part in self._parts]) for name in self._parts[0]}


def _scattered(length: int, at: Ints, values: Any, fill: float, dtype: Any = np.int64) -> NDArray[Any]:
    column = np.full(length, fill, dtype)
    column[at] = values
    return column


def _device_columns(rows: _Rows, thread: Ints, threads: tuple[Thread, ...]) -> dict[str, NDArray[Any]]:
    """Device and stream come from the event's lane where its arguments lack them."""
    n, at, arguments = len(thread), _ints(list(rows.device)), list(rows.device.values())
    lanes = [threads[lane] for lane in thread[at].tolist()]
    pairs = list(zip(arguments, lanes, strict=True))
    return {
        "device": _scattered(n, at, [_digits(a.device if a.device >= 0 else lane.pid) for a, lane in pairs], -1),
        "stream": _scattered(n, at, [_digits(a.stream if a.stream != -1 else lane.tid) for a, lane in pairs], -1),
        "bytes": _scattered(n, at, [a.bytes for a in arguments], 0),
        "blocks_per_sm": _scattered(n, at, [a.blocks_per_sm for a in arguments], -1.0, np.float64),
    }


def _python_columns(rows: _Rows, n: int) -> dict[str, NDArray[Any]]:
    at, arguments = _ints(list(rows.python)), list(rows.python.values())
    return {
        "python_id": _scattered(n, at, [a.python_id for a in arguments], 0),
        "python_parent": _scattered(n, at, [a.python_parent_id or 0 for a in arguments], 0),
    }


def _digits(lane: int | str) -> int:
    """Files of 2021 write lanes as `stream 7`."""
    if isinstance(lane, int):
        return lane
    digits = "".join(c for c in lane if c.isdigit())
    return int(digits) if digits else 0


def _allocations(events: list[Instant], threads: _Numbers) -> Allocations:
    arguments = [event.args or _NO_ALLOCATION for event in events]
    ts = _nanoseconds([event.ts for event in events])
    order = np.argsort(ts, kind="stable")
    return Allocations(
        ts=ts[order],
        thread=_ints([threads[event.pid, event.tid] for event in events])[order],
        bytes=_ints([a.bytes for a in arguments])[order],
        device_type=_ints([a.device_type for a in arguments])[order],
        device=_ints([a.device_index for a in arguments])[order],
        allocated=_ints([a.allocated for a in arguments])[order],
        reserved=_ints([a.reserved for a in arguments])[order],
    )


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _nanoseconds(microseconds: list[float] | list[Decimal]) -> Ints:
    if microseconds and isinstance(microseconds[0], Decimal):
        return np.array([int(value * 1000) for value in microseconds], np.int64)
    # np.rint of a double below 2^43 µs is exact: its error, under half a nanosecond, is rounded away.
    return np.rint(np.array(microseconds, np.float64) * 1000).astype(np.int64)
