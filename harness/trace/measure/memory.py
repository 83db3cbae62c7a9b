"""Peaks and totals of the allocators, from `[memory]` events."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Allocations, Trace
from harness.trace.measure.operators import CPU_DEVICE_TYPES, HostCalls
from harness.trace.schema import Memory, MemoryCurve, MemoryPool

Ints = NDArray[np.int64]


def memory(trace: Trace, innermost: Callable[[int, int], str | None]) -> Memory | None:
    """Peaks and totals of every allocator; None without allocator events that carry totals.

    innermost(thread, t): the operator that a thread is in at t (ns), by name.
    """
    pools = [_pool(trace, key, at, innermost) for key, at in _pools(trace.allocations).items()]
    if not pools:
        return None
    level = _level(trace.allocations)
    kind = "device" if any(pool.device_type == "device" for pool in pools) else "cpu"
    return Memory(
        peak_allocated_bytes=int(level.max()),
        peak_reserved_bytes=sum(pool.peak_reserved_bytes for pool in pools if pool.device_type == kind),
        pools=pools,
    )


def peak_during(trace: Trace, host: HostCalls) -> Ints:
    """Most bytes allocated at any time during each host call, one value for each event of the trace; -1 where
    it is unknown. Devices only if any allocator event is a device's, all of them together."""
    peak = np.full(len(trace), -1, np.int64)
    ts, level = trace.allocations.ts, _level(trace.allocations)
    if not len(level) or not len(host.event):
        return peak
    first = np.searchsorted(ts, trace.ts[host.event], "left")
    last = np.searchsorted(ts, trace.end[host.event], "right")
    padded = np.concatenate((level, level[-1:]))  # level[i] holds before event i, level[i + 1] after it
    # reduceat takes [first, last + 1) of the levels: that before the call, and those after its events.
    bounds = np.stack((first, last + 1), axis=1).ravel()
    peak[host.event] = np.maximum.reduceat(padded, bounds)[::2]
    return peak


def _pools(allocations: Allocations) -> dict[tuple[str, int], Ints]:
    """Allocator events with totals, by allocator."""
    on_cpu = np.isin(allocations.device_type, CPU_DEVICE_TYPES)
    known = allocations.allocated >= 0
    pools = {("cpu", -1): np.flatnonzero(on_cpu & known)}
    for index in np.unique(allocations.device[~on_cpu & known]).tolist():
        pools["device", index] = np.flatnonzero(~on_cpu & known & (allocations.device == index))
    return {key: at for key, at in pools.items() if len(at)}


def _level(allocations: Allocations) -> Ints:
    """Bytes allocated before the first event and after each, m + 1 of them: of the devices together, or of
    the CPU where there are none. Empty without totals."""
    pools = _pools(allocations)
    kind = "device" if any(key[0] == "device" for key in pools) else "cpu"
    total = np.zeros(len(allocations.ts) + 1, np.int64)
    chosen = [at for key, at in pools.items() if key[0] == kind]
    for at in chosen:
        before = max(int(allocations.allocated[at[0]] - allocations.bytes[at[0]]), 0)
        levels = np.concatenate(([before], allocations.allocated[at]))
        total += np.repeat(levels, np.diff(np.concatenate(([0], at + 1, [len(total)]))))
    return total if chosen else total[:0]


def _pool(trace: Trace, key: tuple[str, int], at: Ints, innermost: Callable[[int, int], str | None]) -> MemoryPool:
    allocations = trace.allocations
    allocated, size = allocations.allocated[at], allocations.bytes[at]
    start = max(int(allocated[0] - size[0]), 0)
    top = int(allocated.argmax())
    when = int(allocations.ts[at[top]])
    return MemoryPool(
        device_type="cpu" if key[0] == "cpu" else "device",
        index=key[1],
        peak_allocated_bytes=max(int(allocated[top]), start),
        peak_reserved_bytes=int(allocations.reserved[at].max()),
        start_allocated_bytes=start,
        end_allocated_bytes=int(allocated[-1]),
        allocated_total_bytes=int(size[size > 0].sum()),
        peak_us=(when - trace.start) / 1000,
        peak_operator=innermost(int(allocations.thread[at[top]]), when),
    )


def memory_over_time(trace: Trace, points: int = 1500) -> list[MemoryCurve]:
    """What each allocator had handed out in the course of the window, the devices' first.

    Args:
        points: At most so many of each curve. Of the events that share a point the one with the highest level
            stands for them, so that no peak is lost.
    """
    allocations = trace.allocations
    curves = []
    for (kind, index), at in sorted(_pools(allocations).items(), key=lambda item: item[0][0] == "cpu"):
        level = allocations.allocated[at]
        bounds = np.unique(np.linspace(0, len(at), min(points, len(at)) + 1).astype(np.int64))
        chosen = [low + int(level[low:high].argmax()) for low, high in itertools.pairwise(bounds.tolist())]
        curves.append(
            MemoryCurve(
                device_type="cpu" if kind == "cpu" else "device",
                index=index,
                time_us=((allocations.ts[at[chosen]] - trace.start) / 1000).tolist(),
                allocated_bytes=level[chosen].tolist(),
                reserved_bytes=allocations.reserved[at[chosen]].tolist(),
            )
        )
    return curves
