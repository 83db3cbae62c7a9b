"""The collectives of one rank: what each moves, when it ran, and what ran beside it.

On a device they are kernels, which say themselves what they are (`Collective name`, `In msg nelems`, torch 2.2 and
later) or else by their name alone. Gloo's and MPI's run on threads of the host, as annotations with the shape of what
they move, if shapes were recorded.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Message, Trace
from harness.trace.measure.flops import DTYPES
from harness.trace.measure.intervals import Spans, union
from harness.trace.measure.launches import Work, telling
from harness.trace.measure.operators import COLLECTIVE_PREFIXES, communicates, shapes
from harness.trace.measure.steps import Steps

Ints = NDArray[np.int64]

# In the order in which they are asked for: `_reduce_scatter_base` is no reduce.
KINDS = {
    "all_reduce": re.compile(r"all_?reduce|cross_device_reduce"),
    "reduce_scatter": re.compile(r"reduce_?scatter"),
    "all_gather": re.compile(r"all_?gather"),
    "all_to_all": re.compile(r"all_?to_?all"),
    "broadcast": re.compile(r"broadcast"),
    "barrier": re.compile(r"barrier"),
    "send_recv": re.compile(r"send|recv"),
    "gather": re.compile(r"gather"),
    "scatter": re.compile(r"scatter"),
    "reduce": re.compile(r"reduce"),
}
OTHER = "other"
# Element sizes by the names that kernels give (`Float`); annotations name types as operators do (`float`).
_SIZE_OF_DTYPE = {
    "Byte": 1,
    "Char": 1,
    "Bool": 1,
    "Short": 2,
    "Int": 4,
    "Long": 8,
    "Half": 2,
    "BFloat16": 2,
    "Float": 4,
    "Double": 8,
    "ComplexFloat": 8,
    "ComplexDouble": 16,
}
_MOST_BYTES = 2**50
# `nccl:` annotations are the time to enqueue what a kernel does.
_ON_HOST = tuple(prefix for prefix in COLLECTIVE_PREFIXES if prefix in ("gloo:", "mpi:", "ucc:"))


class Sort(NamedTuple):
    """Collectives that do the same: of one kind and size, in one group of ranks."""

    kind: str
    bytes: int
    """The larger of what a rank puts in and what it gets out, nccl-tests' size; -1 where the trace does not say."""
    group_size: int
    """Ranks; 0 where the trace does not say."""
    group: str
    """Tells groups apart."""


@dataclass(frozen=True)
class Collectives:
    """Collectives that the window's steps launched, in the order in which they were issued; times in ns."""

    sorts: tuple[Sort, ...]
    sort: Ints
    """Index into `sorts`."""
    step: Ints
    """Number of the step that launched it; -1 without steps."""
    start: Ints
    end: Ints
    compute: Spans
    """When the rank computed: kernels of the same device, or operators of the host."""

    @property
    def hidden(self) -> Ints:
        """Of each, how long something was computed beside it."""
        return self.compute.within(self.start, self.end)


def collectives(trace: Trace, work: Work, steps: Steps) -> Collectives:
    """Those of the device that communicates most, else those of the host."""
    chosen = work.communication & (work.launched_at >= 0)
    if len(steps.start):
        chosen &= steps.of(work.launched_at) >= 0
    if chosen.any():
        return _of_device(trace, work, chosen, steps)
    return _of_host(trace, steps)


def _of_device(trace: Trace, work: Work, chosen: NDArray[np.bool_], steps: Steps) -> Collectives:
    time = {d: int((work.end - work.start)[chosen & (work.device == d)].sum()) for d in work.devices}
    device = max(time, key=lambda d: time[d])
    computing = (work.device == device) & ~work.communication & (work.kind != Kind.MEMCPY)
    at = np.flatnonzero(chosen & (work.device == device))
    at = at[np.argsort(work.launched_at[at], kind="stable")]
    world = _world_size(trace)
    sorts: dict[Sort, int] = {}
    known: dict[tuple[int, int], int] = {}
    pairs = zip(trace.name[work.event[at]].tolist(), trace.message[work.event[at]].tolist(), strict=True)
    sort = []
    for pair in pairs:
        if pair not in known:
            name, message = pair
            found = _told(trace.messages[message]) if message >= 0 else _named(telling(trace.names[name]), world)
            known[pair] = sorts.setdefault(found, len(sorts))
        sort.append(known[pair])
    return Collectives(
        sorts=tuple(sorts),
        sort=np.array(sort, np.int64),
        step=_numbers(steps, work.launched_at[at]),
        start=work.start[at],
        end=work.end[at],
        compute=union(work.start[computing], work.end[computing]),
    )


def _of_host(trace: Trace, steps: Steps) -> Collectives:
    at = trace.of(Kind.ANNOTATION)
    at = at[trace.named(at, lambda name: name.startswith(_ON_HOST))]
    at = at[np.argsort(trace.ts[at], kind="stable")]
    if len(steps.start):
        at = at[steps.of(trace.ts[at]) >= 0]
    world = _world_size(trace)
    sorts: dict[Sort, int] = {}
    sort = []
    for name, signature in zip(trace.name[at].tolist(), trace.signature[at].tolist(), strict=True):
        kind = kind_of(trace.names[name].partition(":")[2])
        size = _host_bytes(trace, signature)
        if kind == "all_gather" and size >= 0:
            size *= max(world, 1)
        found = Sort(kind, size, world, "")
        sort.append(sorts.setdefault(found, len(sorts)))
    return Collectives(
        sorts=tuple(sorts),
        sort=np.array(sort, np.int64),
        step=_numbers(steps, trace.ts[at]),
        start=trace.ts[at],
        end=trace.end[at],
        compute=host_compute(trace),
    )


def host_compute(trace: Trace) -> Spans:
    """When any thread of the host ran an operator that is no collective."""
    at = trace.of(Kind.OPERATOR)
    at = at[~trace.named(at, communicates)]
    return union(trace.ts[at], trace.end[at])


def _world_size(trace: Trace) -> int:
    if trace.distributed is not None:
        return trace.distributed.world_size
    return (trace.harness.world_size or 0) if trace.harness is not None else 0


def _numbers(steps: Steps, t: Ints) -> Ints:
    place = steps.of(t)
    return np.where(place >= 0, steps.number[place], -1) if len(steps.number) else place


def kind_of(name: str) -> str:
    """`all_reduce` for torch's `allreduce`, NCCL's `AllReduce` and gloo's `all_reduce`."""
    name = name.lower()
    return next((kind for kind, pattern in KINDS.items() if pattern.search(name)), OTHER)


def _told(message: Message) -> Sort:
    size = _SIZE_OF_DTYPE.get(message.dtype, 1 if message.dtype.startswith("Float8") else 0)
    elements = max(message.sent, message.received)
    return Sort(
        kind_of(message.collective),
        elements * size if size and elements >= 0 else -1,
        message.group_size,
        f"{message.group} {message.group_ranks}",
    )


def _named(name: str, world_size: int) -> Sort:
    return Sort(kind_of(name), -1, world_size, "")


def _host_bytes(trace: Trace, signature: int) -> int:
    """Of the tensors that an annotation names; gloo names what goes in."""
    if signature < 0:
        return -1
    try:
        types = msgspec.json.decode(trace.signatures[signature].types, type=list[str])
    except msgspec.MsgspecError:
        return -1
    dims = shapes(trace.signatures[signature])
    sizes = [DTYPES.get(dtype, 0) for dtype in types]
    if not sizes or len(dims) != len(sizes) or not all(sizes):
        return -1
    return min(sum(size * math.prod(shape) for size, shape in zip(sizes, dims, strict=True)), _MOST_BYTES)


def bus_factor(kind: str, group_size: int) -> float | None:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md): how often a byte of the
    size crosses a link, so that the result compares with the link's speed whatever the number of ranks."""
    if group_size < 1:
        return None
    if kind == "all_reduce":
        return 2 * (group_size - 1) / group_size
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return (group_size - 1) / group_size
    return 1.0 if kind in ("broadcast", "reduce", "send_recv") else None
