"""A trace file as columns."""

from __future__ import annotations

import enum
import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from isal import igzip
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
    try:
        return bytes(igzip.decompress(raw))  # type: ignore[no-untyped-call]
    except (igzip.BadGzipFile, EOFError, OSError) as error:
        raise TraceError(f"{path}: damaged gzip: {error}") from error


_NO_ARGUMENTS = Arguments()
_NO_ALLOCATION = AllocatorArguments()
_CODE_OF_CATEGORY = {category: int(kind) for category, kind in KIND_OF_CATEGORY.items()}


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
    by_type: dict[type, list[Any]] = {}
    for event in document.traceEvents:
        by_type.setdefault(type(event), []).append(event)
    complete: list[Complete] = [e for t, events in by_type.items() if issubclass(t, Complete) for e in events]
    instants = [
        e for t, events in by_type.items() if issubclass(t, Instant) for e in events if e.name == "[memory]"
    ]
    counts: Counter[str] = Counter()
    for events in by_type.values():
        counts.update([event.cat for event in events])

    other = int(Kind.OTHER)
    kind = np.array([_CODE_OF_CATEGORY.get(e.cat, other) for e in complete], np.int8)
    arguments = [event.args or _NO_ARGUMENTS for event in complete]
    name, names = _interned([e.name for e in complete])
    thread, allocating_thread, threads = _threads(complete, instants)
    signature, signatures = _signatures(arguments)
    duration = _nanoseconds([e.dur for e in complete])
    negative = int(np.count_nonzero(duration < 0))
    if negative:
        warnings = (*warnings, f"{negative} events of negative duration count as empty")
    return Trace(
        source=source,
        file_bytes=file_bytes,
        json_bytes=json_bytes,
        categories=dict(counts),
        names=tuple(names),
        threads=threads,
        thread_names={
            Thread(e.pid, e.tid): e.args.name
            for e in by_type.get(Metadata, [])
            if e.name == "thread_name" and e.args is not None
        },
        signatures=signatures,
        kind=kind,
        name=name,
        thread=thread,
        ts=_nanoseconds([e.ts for e in complete]),
        dur=np.maximum(duration, 0),
        external=_ints([a.external_id or a.external_id_2021 for a in arguments]),
        correlation=_ints([a.correlation for a in arguments]),
        signature=signature,
        allocations=_allocations(instants, allocating_thread),
        devices=tuple(document.deviceProperties),
        distributed=document.distributedInfo,
        harness=document.harness,
        torch_version=document.torch_version
        or (document.harness.torch_version if document.harness is not None else None),
        lost_events=lost_events,
        warnings=warnings,
        **_device_columns(kind, complete, arguments),
        **_operator_columns(kind, arguments),
        **_python_columns(kind, arguments),
    )


def _ints(values: list[int]) -> Ints:
    return np.array(values, np.int64)


def _nanoseconds(microseconds: list[float] | list[Decimal]) -> Ints:
    if microseconds and isinstance(microseconds[0], Decimal):
        return np.array([int(value * 1000) for value in microseconds], np.int64)
    # np.rint of a double below 2^43 µs is exact: its error, under half a nanosecond, is rounded away.
    return np.rint(np.array(microseconds, np.float64) * 1000).astype(np.int64)


def _interned(values: list[Any]) -> tuple[Ints, list[Any]]:
    """Index of each value among the distinct ones, and those in order of appearance."""
    distinct = list(dict.fromkeys(values))
    index = dict(zip(distinct, range(len(distinct)), strict=True))
    return np.array([index[value] for value in values], np.int64), distinct


def _threads(complete: list[Complete], instants: list[Any]) -> tuple[Ints, Ints, tuple[Thread, ...]]:
    """Thread of every complete event and of every instant, and the threads."""
    pid, pids = _interned([e.pid for e in complete] + [e.pid for e in instants])
    tid, tids = _interned([e.tid for e in complete] + [e.tid for e in instants])
    pair = pid * max(len(tids), 1) + tid
    present = np.zeros(len(pids) * len(tids), bool)
    present[pair] = True
    pairs = np.flatnonzero(present)
    thread = (np.cumsum(present) - 1)[pair]
    threads = tuple(Thread(pids[p // len(tids)], tids[p % len(tids)]) for p in pairs.tolist())
    return thread[: len(complete)], thread[len(complete) :], threads


def _scattered(length: int, at: Ints, values: Any, fill: float, dtype: Any = np.int64) -> NDArray[Any]:
    column = np.full(length, fill, dtype)
    column[at] = values
    return column


def _device_columns(
    kind: NDArray[np.int8], events: list[Complete], arguments: list[Arguments]
) -> dict[str, NDArray[Any]]:
    n = len(events)
    at = np.flatnonzero((kind >= Kind.KERNEL) & (kind <= Kind.DEVICE_ANNOTATION))
    places = at.tolist()
    chosen = [arguments[i] for i in places]
    device = [a.device for a in chosen]
    stream = [a.stream for a in chosen]
    if -1 in device:
        device = [_index(events[i].pid) if d < 0 else d for i, d in zip(places, device, strict=True)]
    lanes = [_index(events[i].tid) if s == -1 else _index(s) for i, s in zip(places, stream, strict=True)]
    return {
        "device": _scattered(n, at, device, -1),
        "stream": _scattered(n, at, lanes, -1),
        "bytes": _scattered(n, at, [a.bytes for a in chosen], 0),
        "blocks_per_sm": _scattered(n, at, [a.blocks_per_sm for a in chosen], -1.0, np.float64),
    }


def _index(value: int | str) -> int:
    """A device or stream number; files of 2021 write lanes as `stream 7`."""
    if isinstance(value, int):
        return value
    digits = "".join(c for c in value if c.isdigit())
    return int(digits) if digits else 0


def _operator_columns(kind: NDArray[np.int8], arguments: list[Arguments]) -> dict[str, NDArray[Any]]:
    at = np.flatnonzero(kind == Kind.OPERATOR)
    chosen = [arguments[i] for i in at.tolist()]
    return {
        "sequence": _scattered(len(arguments), at, [a.sequence for a in chosen], -1),
        "forward_thread": _scattered(len(arguments), at, [a.forward_thread for a in chosen], 0),
    }


def _python_columns(kind: NDArray[np.int8], arguments: list[Arguments]) -> dict[str, NDArray[Any]]:
    at = np.flatnonzero(kind == Kind.PYTHON)
    chosen = [arguments[i] for i in at.tolist()]
    return {
        "python_id": _scattered(len(arguments), at, [a.python_id for a in chosen], 0),
        "python_parent": _scattered(len(arguments), at, [a.python_parent_id or 0 for a in chosen], 0),
    }


def _signatures(arguments: list[Arguments]) -> tuple[Ints, tuple[Signature, ...]]:
    places = [i for i, a in enumerate(arguments) if a.input_dims is not NOTHING]
    chosen = [arguments[i] for i in places]
    keys = [(bytes(a.input_dims), bytes(a.input_types), bytes(a.concrete_inputs)) for a in chosen]
    index, distinct = _interned(keys)
    return _scattered(len(arguments), _ints(places), index, -1), tuple(Signature(*key) for key in distinct)


def _allocations(events: list[Any], thread: Ints) -> Allocations:
    arguments = [event.args or _NO_ALLOCATION for event in events]
    ts = _nanoseconds([e.ts for e in events])
    order = np.argsort(ts, kind="stable")
    return Allocations(
        ts=ts[order],
        thread=thread[order],
        bytes=_ints([a.bytes for a in arguments])[order],
        device_type=_ints([a.device_type for a in arguments])[order],
        device=_ints([a.device_index for a in arguments])[order],
        allocated=_ints([a.allocated for a in arguments])[order],
        reserved=_ints([a.reserved for a in arguments])[order],
    )
