"""Kernels, copies and streams: what ran on the device, beside what, and for whom."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from harness.trace.file.columns import Kind, Trace
from harness.trace.measure.intervals import Spans, union
from harness.trace.measure.launches import Work
from harness.trace.schema import Copy, DeviceWork, HostActivity, Kernel, Serialization, Stream

Ints = NDArray[np.int64]
SMALL_KERNELS_SHOWN = 5


def kernels(trace: Trace, work: Work) -> list[Kernel]:
    """Device events by name, longest total first."""
    groups, row = np.unique(trace.name[work.event], return_inverse=True)
    duration = work.end - work.start
    total, longest = np.zeros(len(groups), np.int64), np.zeros(len(groups), np.int64)
    np.add.at(total, row, duration)
    np.maximum.at(longest, row, duration)
    count = np.bincount(row, minlength=len(groups))
    first = np.zeros(len(groups), np.int64)
    first[row[::-1]] = np.arange(len(row))[::-1]
    launcher = _main_launchers(trace, work, row, duration, len(groups))
    rows = [
        Kernel(
            name=trace.names[groups[i]],
            kind=_kind(work, int(first[i])),
            count=int(count[i]),
            total_us=int(total[i]) / 1000,
            mean_us=int(total[i]) / int(count[i]) / 1000,
            max_us=int(longest[i]) / 1000,
            operator=launcher[i],
        )
        for i in range(len(groups))
    ]
    return sorted(rows, key=lambda kernel: -kernel.total_us)


def _kind(work: Work, place: int) -> DeviceWork:
    if work.communication[place]:
        return "communication"
    kinds: dict[int, DeviceWork] = {Kind.MEMCPY: "memcpy", Kind.MEMSET: "memset"}
    return kinds.get(int(work.kind[place]), "compute")


def _main_launchers(trace: Trace, work: Work, row: Ints, weight: Ints, groups: int) -> list[str | None]:
    """For each group of device events the name of the operator with the largest weight in it."""
    display, label = trace.labels
    launched = work.operator >= 0
    best: list[str | None] = [None] * groups
    most = [-1] * groups
    keys, which = np.unique(row[launched] * len(display) + label[work.operator[launched]], return_inverse=True)
    sums = np.zeros(len(keys), np.int64)
    np.add.at(sums, which, weight[launched])
    for key, time in zip(keys.tolist(), sums.tolist(), strict=True):
        group, name = divmod(key, len(display))
        if time > most[group]:
            best[group], most[group] = display[name], time
    return best


_DIRECTION = re.compile(r"HtoD|DtoH|DtoD|PtoP|HtoH|HostToDevice|DeviceToHost|DeviceToDevice", re.IGNORECASE)
_SHORT = {"hosttodevice": "HtoD", "devicetohost": "DtoH", "devicetodevice": "DtoD"}


def copies(trace: Trace, work: Work) -> list[Copy]:
    """Copies by name, and how much of each was hidden behind a kernel of the same device."""
    chosen = work.where(work.kind == Kind.MEMCPY)
    duration = chosen.end - chosen.start
    hidden = np.zeros(len(duration), np.int64)
    for device in chosen.devices:
        running = work.where((work.device == device) & (work.kind == Kind.KERNEL))
        mine = chosen.device == device
        hidden[mine] = union(running.start, running.end).within(chosen.start[mine], chosen.end[mine])
    groups, row = np.unique(trace.name[chosen.event], return_inverse=True)
    launcher = _main_launchers(trace, chosen, row, duration, len(groups))
    rows = []
    for i, group in enumerate(groups.tolist()):
        mine = row == i
        name = trace.names[group]
        rows.append(
            Copy(
                name=name,
                direction=_direction(name),
                pageable="pageable" in name.lower(),
                count=int(np.count_nonzero(mine)),
                bytes=int(trace.bytes[chosen.event[mine]].sum()),
                time_us=int(duration[mine].sum()) / 1000,
                hidden_us=int(hidden[mine].sum()) / 1000,
                operator=launcher[i],
            )
        )
    return sorted(rows, key=lambda copy: -copy.time_us)


def _direction(name: str) -> Literal["HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "other"]:
    found = _DIRECTION.search(name)
    word = _SHORT.get(found[0].lower(), found[0]) if found else "other"
    for known in ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH"):
        if word.lower() == known.lower():
            return known
    return "other"


def streams(work: Work) -> list[Stream]:
    """Events and busy time of every stream."""
    rows = []
    for device, stream in sorted(set(zip(work.device.tolist(), work.stream.tolist(), strict=True))):
        mine = (work.device == device) & (work.stream == stream)
        busy = union(work.start[mine], work.end[mine]).total
        rows.append(
            Stream(
                device=device,
                stream=stream,
                events=int(np.count_nonzero(mine)),
                busy_us=busy / 1000,
            )
        )
    return rows


def serialization(trace: Trace, work: Work) -> Serialization | None:
    """Kernels that ran alone though there was room for more. None without kernels.

    Small is a grid of fewer blocks than the device has multiprocessors (`blocks per SM` below 1): the rest of
    the device stood empty. Whether the data would have let two run together, no trace tells.
    """
    if not np.any(work.kind == Kind.KERNEL):
        return None
    concurrent = waited = waiters = small_time = small_count = 0
    by_name: dict[int, int] = {}
    for device in work.devices:
        mine = work.on(device)
        overlapping = _twice(mine.start, mine.end)
        concurrent += overlapping.total
        blocks = trace.blocks_per_sm[mine.event]
        small = (mine.kind == Kind.KERNEL) & ~mine.communication & (blocks >= 0) & (blocks < 1)
        alone = (mine.end - mine.start) - overlapping.within(mine.start, mine.end)
        chosen = small & (alone > 0)
        small_time += int(alone[chosen].sum())
        small_count += int(np.count_nonzero(chosen))
        for name, time in zip(trace.name[mine.event[chosen]].tolist(), alone[chosen].tolist(), strict=True):
            by_name[name] = by_name.get(name, 0) + time
        wait = _waits_for_other_streams(mine)
        waited += int(wait.sum())
        waiters += int(np.count_nonzero(wait))
    top = sorted(by_name.items(), key=lambda item: -item[1])[:SMALL_KERNELS_SHOWN]
    return Serialization(
        concurrent_us=concurrent / 1000,
        serial_small_us=small_time / 1000,
        serial_small_count=small_count,
        waiting_streams_us=waited / 1000,
        waiting_streams_count=waiters,
        kernels=[HostActivity(name=trace.names[name], time_us=time / 1000) for name, time in top],
    )


def _twice(start: Ints, end: Ints) -> Spans:
    """Where at least two of the intervals, in order of start, overlap."""
    if len(start) < 2:
        return Spans(start[:0], end[:0])
    reached = np.maximum.accumulate(end)
    return union(start[1:], np.minimum(end[1:], reached[:-1]))


def _waits_for_other_streams(work: Work) -> Ints:
    """ns that each event, enqueued and first in its own stream, saw other streams work before it started.

    From the time when it was launched and its stream was free until its start, whatever works is another's.
    """
    wait = np.zeros(len(work.event), np.int64)
    order = np.argsort(work.stream, kind="stable")
    bounds = np.flatnonzero(np.diff(work.stream[order])) + 1
    if not len(bounds):
        return wait
    busy = union(work.start, work.end)
    for mine in np.split(order, bounds):
        before = np.concatenate(([0], np.maximum.accumulate(work.end[mine])[:-1]))
        ready = np.maximum(work.launched_at[mine], before)
        held = (work.launched_at[mine] >= 0) & (ready < work.start[mine])
        wait[mine[held]] = busy.within(ready[held], work.start[mine[held]])
    return wait
