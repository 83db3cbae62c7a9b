"""A trace as columns: what the findings are made of."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.decode import DeviceProperties, DistributedInfo, HarnessFacts

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


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


class Message(NamedTuple):
    """What a kernel of a collective says of itself; elements, -1 where it does not say."""

    collective: str
    sent: int
    received: int
    dtype: str
    group_size: int
    group: str
    """Name of the process group."""
    group_ranks: str
    """Its ranks, as a list; torch shortens long ones."""


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
    messages: tuple[Message, ...]
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
    message: Ints
    """Index into `messages`, of kernels; -1 for what is no collective, or does not say which."""
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
