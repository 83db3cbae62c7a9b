"""Today's traces in the words of 2023, which are all that the plugin's parser understands.

The file stays as it is: this is done to its decoded events, on their way into the parser. Which operator launched
what is told by `harness.trace`, so the plugin's tables and the report agree.
"""

from __future__ import annotations

import html
from bisect import bisect_right
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.board.official.call_stacks import call_stacks
from harness.trace.errors import TraceError
from harness.trace.file.collector import without_collector
from harness.trace.file.columns import Kind, Thread, Trace
from harness.trace.file.contents import contents, what_it_is
from harness.trace.file.decode import decode
from harness.trace.file.reader import astray, columns, nanoseconds
from harness.trace.file.salvage import salvage
from harness.trace.measure.launches import Work, device_work, operator_of
from harness.trace.measure.operators import host_calls
from harness.trace.measure.steps import PART_OF_A_STEP, PROFILER_STEP, steps

Event = dict[str, Any]
Ints = NDArray[np.int64]

COLLECTIVES = ("nccl:", "gloo:")
"""Backends of whose collectives the plugin draws a Distributed view; the first that occurs."""

_DEVICE = {Kind.KERNEL: "kernel", Kind.MEMCPY: "gpu_memcpy", Kind.MEMSET: "gpu_memset"}
_TYPES = {"Float": "float", "Half": "c10::Half", "BFloat16": "c10::BFloat16", "Long": "long int", "Int": "int"}


class Loaded(NamedTuple):
    """A file twice: as it stands, and as columns, whose rows are the complete events in order."""

    document: dict[str, Any]
    """The file's object without its events."""
    complete: list[Event]
    instants: list[Event]
    """Allocator events."""
    trace: Trace


@without_collector()
def normalised(path: Path) -> dict[str, Any]:
    """A trace file as the plugin's parser takes it.

    Raises:
        TraceError: of one line, where the file holds no trace.
    """
    loaded = _load(path)
    events = _Events(loaded)
    document = loaded.document | {"traceEvents": events.all()}
    properties = document.get("deviceProperties")
    if isinstance(properties, list):
        # The page shows these as HTML.
        document["deviceProperties"] = [
            {key: html.escape(value) if isinstance(value, str) else value for key, value in device.items()}
            for device in properties
            if isinstance(device, dict)
        ]
    return document


def _load(path: Path) -> Loaded:
    found = contents(path)
    lost = 0
    try:
        whole = msgspec.json.decode(found.json)
        typed = decode(found.json)
        typed = typed._replace(batches=list(typed.batches))
        events = whole if isinstance(whole, list) else whole.pop("traceEvents")
        document = {} if isinstance(whole, list) else whole
    except (msgspec.MsgspecError, RecursionError, KeyError, AttributeError) as error:
        salvaged = salvage(found.json)
        if salvaged is None:
            raise TraceError(path, what_it_is(found.json)) from error
        typed, lost = salvaged.document, salvaged.lost_events
        typed = typed._replace(batches=list(typed.batches))
        events = [msgspec.json.decode(msgspec.json.encode(event)) for batch in typed.batches for event in batch]
        document = msgspec.to_builtins(typed.header)
    complete = [event for event in events if event.get("ph") == "X"]
    keep = ~astray(*(nanoseconds([event[key] for event in complete]) for key in ("ts", "dur")))
    if not keep.all():
        complete = [event for event, kept in zip(complete, keep.tolist(), strict=True) if kept]
    instants = [event for event in events if event.get("ph") == "i" and event.get("name") == "[memory]"]
    trace = columns(typed, source=path, lost_events=lost)
    if len(trace) != len(complete):
        raise TraceError(path, f"{len(complete)} events of it were counted and {len(trace)} read")
    return Loaded(document, complete, instants, trace)


class _Events:
    """The events of one file, rewritten."""

    def __init__(self, loaded: Loaded) -> None:
        self._complete, self._instants, self._trace = loaded.complete, loaded.instants, loaded.trace
        trace = loaded.trace
        self._work = device_work(trace)
        self._host = host_calls(trace)
        self._threads = {thread: number for number, thread in enumerate(trace.threads)}
        host = trace.of(Kind.OPERATOR, Kind.ANNOTATION, Kind.RUNTIME)
        self._begin = int(trace.ts[host].min()) if len(host) else trace.start
        backends = [prefix for prefix in COLLECTIVES if any(name.startswith(prefix) for name in trace.names)]
        self._collective = backends[0] if backends else None
        self._known = np.zeros(len(trace), bool)
        """Events that become operators, so that launches can be theirs."""

    def all(self) -> list[Event]:
        """Every event that the parser gets, in its words. Times are microseconds from the window's first event."""
        events = [*self._operators(), *self._annotations()]
        events += self._device_events_and_launches()
        events += self._python_functions()
        events += self._allocations()
        return events

    def _span(self, at: int, category: str, arguments: Event, *, start: int | None = None) -> Event:
        trace = self._trace
        start = int(trace.ts[at]) if start is None else start
        return {
            "ph": "X",
            "cat": category,
            "name": trace.names[trace.name[at]],
            "pid": int(trace.thread[at]),
            "tid": int(trace.thread[at]),
            "ts": self._us(start),
            "dur": (int(trace.end[at]) - start) / 1000,
            "args": arguments,
        }

    def _us(self, ns: int) -> float:
        return (ns - self._trace.start) / 1000

    def _arguments(self, at: int) -> Event:
        return dict(self._complete[at].get("args") or {})

    def _operators(self) -> list[Event]:
        found = self._trace.of(Kind.OPERATOR)
        self._known[found] = True
        stacks = call_stacks(self._trace)
        events = []
        for at in found.tolist():
            arguments = self._arguments(at)
            arguments.pop("external id", None)
            arguments["External id"] = at + 1
            if at in stacks:
                arguments.setdefault("Call stack", stacks[at])
            events.append(self._span(at, "cpu_op", arguments))
        return events

    def _annotations(self) -> list[Event]:
        """Steps, what torch itself marks inside them, and collectives. Other spans the plugin has no place for."""
        trace, events = self._trace, []
        messages, numbers = self._messages(), self._steps()
        for at in trace.of(Kind.ANNOTATION).tolist():
            name = trace.names[trace.name[at]]
            arguments = self._arguments(at) | {"External id": at + 1}
            if at in numbers:
                event = self._span(at, "user_annotation", arguments) | {"name": f"ProfilerStep#{numbers[at]}"}
            elif self._collective is not None and name.startswith(self._collective):
                event = self._span(at, "user_annotation", arguments | messages.get(at, {}))
                # As in torch's table nothing holds a collective: it has a thread of its own.
                event |= {"pid": len(trace.threads), "tid": len(trace.threads)}
            elif PART_OF_A_STEP.match(name):
                self._known[at] = True
                event = self._span(at, "cpu_op", arguments)
            else:
                continue
            events.append(event)
        return events

    def _steps(self) -> dict[int, int]:
        """Numbers of the annotations that are the window's steps."""
        trace = self._trace
        found = steps(trace, self._work)
        annotations = trace.of(Kind.ANNOTATION)
        if found.name == "ProfilerStep":
            chosen = annotations[trace.named(annotations, PROFILER_STEP.match)]
        else:
            chosen = annotations[trace.named(annotations, lambda name: name == found.name)]
        numbers = dict(zip(found.start.tolist(), found.number.tolist(), strict=True))
        return {at: numbers[start] for at in chosen.tolist() if (start := int(trace.ts[at])) in numbers}

    def _messages(self) -> dict[int, Event]:
        """Shape and type of what each collective sends: its `record_param_comms` holds them, the annotation not."""
        trace = self._trace
        holders = trace.of(Kind.OPERATOR)
        holders = holders[trace.named(holders, "record_param_comms".__eq__)]
        collectives = _ByThread(trace, self._collectives())
        found: dict[int, Event] = {}
        for at in holders.tolist():
            arguments = self._complete[at].get("args") or {}
            count, kind = arguments.get("In msg nelems"), _TYPES.get(str(arguments.get("dtype")))
            inside = collectives.after(int(trace.thread[at]), int(trace.ts[at]), int(trace.end[at]))
            if inside is not None and isinstance(count, int) and kind is not None:
                found[inside] = {"Input Dims": [[count]], "Input type": [kind]}
        return found

    def _collectives(self) -> Ints:
        annotations = self._trace.of(Kind.ANNOTATION)
        prefix = self._collective
        if prefix is None:
            return annotations[:0]
        return annotations[self._trace.named(annotations, lambda name: name.startswith(prefix))]

    def _device_events_and_launches(self) -> list[Event]:
        """Device events, and the runtime's calls, which tie them to operators.

        The parser finds a device event's launch by `correlation` and the launch's operator by `External id`, so
        both are written anew: an event's number in the file, plus one.
        """
        trace, work = self._trace, self._work
        calls = np.concatenate((trace.of(Kind.RUNTIME), self._overhead()))
        owner = np.full(len(trace), -1, np.int64)
        owner[calls] = operator_of(trace, trace.external[calls])
        launched = (work.launch >= 0) & (work.operator >= 0)
        owner[work.launch[launched]] = work.operator[launched]
        self._give_to_holders(owner, calls)
        events = []
        for at in calls.tolist():
            arguments = self._arguments(at)
            arguments.pop("external id", None)
            arguments |= {"External id": self._id(int(owner[at])), "correlation": at + 1}
            events.append(self._span(at, "runtime", arguments))
        return events + self._on_device(work)

    def _overhead(self) -> Ints:
        """The profiler's own time where it stands directly inside an operator, which does not count it as its own."""
        trace, host = self._trace, self._host
        inside = (trace.kind[host.event] == Kind.OVERHEAD) & (host.calls.parent >= 0)
        inside[inside] = trace.kind[host.event[host.calls.parent[inside]]] == Kind.OPERATOR
        found: Ints = host.event[inside]
        return found

    def _give_to_holders(self, owner: Ints, calls: Ints) -> None:
        """Calls that name no operator, or an annotation that is left out, are the innermost operator's that holds
        them, as in torch's table."""
        host = self._host
        place = np.full(len(self._trace), -1, np.int64)
        place[host.event] = np.arange(len(host.event))
        for at in calls[(owner[calls] < 0) | ~self._known[owner[calls]]].tolist():
            holder = int(place[at])
            while holder >= 0 and not self._known[host.event[holder]]:
                holder = int(host.calls.parent[holder])
            owner[at] = host.event[holder] if holder >= 0 else -1

    def _on_device(self, work: Work) -> list[Event]:
        trace, events = self._trace, []
        collectives = _ByThread(trace, self._collectives())
        for at, launch, operator, communicates in zip(
            work.event.tolist(), work.launch.tolist(), work.operator.tolist(), work.communication.tolist(), strict=True
        ):
            device = int(trace.device[at])
            correlation = launch + 1 if launch >= 0 else at + 1
            external = self._id(operator)
            if communicates and launch >= 0:
                holder = collectives.around(int(trace.thread[launch]), int(trace.ts[launch]))
                external = holder + 1 if holder is not None else external
            if launch < 0 and external:
                # The file lacks the launch, but names the operator: an empty call stands in for it.
                events.append(
                    self._span(operator, "runtime", {"External id": external, "correlation": correlation})
                    | {"name": "launch that the file lacks", "dur": 0.0}
                )
            arguments = self._arguments(at) | {"External id": external, "correlation": correlation, "device": device}
            arguments.pop("external id", None)
            event = self._span(at, _DEVICE[Kind(int(trace.kind[at]))], arguments)
            events.append(event | {"pid": device, "tid": int(trace.stream[at])})
        return events

    def _id(self, operator: int) -> int:
        return operator + 1 if operator >= 0 and self._known[operator] else 0

    def _python_functions(self) -> list[Event]:
        """Functions that ran before the window count from its beginning."""
        trace = self._trace
        return [
            self._span(at, "python_function", self._arguments(at), start=max(int(trace.ts[at]), self._begin))
            for at in trace.of(Kind.PYTHON).tolist()
            if trace.end[at] > self._begin
        ]

    def _allocations(self) -> list[Event]:
        times = nanoseconds([event["ts"] for event in self._instants]).tolist()
        return [
            event
            | {"ts": self._us(time), "tid": self._threads.get(Thread(event.get("pid", 0), event.get("tid", 0)), -1)}
            for event, time in sorted(zip(self._instants, times, strict=True), key=lambda pair: pair[1])
        ]


class _ByThread:
    """Spans that do not overlap on a thread, to be found by time."""

    def __init__(self, trace: Trace, spans: Ints) -> None:
        self._trace = trace
        self._starts: dict[int, list[int]] = defaultdict(list)
        self._spans: dict[int, list[int]] = defaultdict(list)
        for at in spans[np.argsort(trace.ts[spans], kind="stable")].tolist():
            self._starts[int(trace.thread[at])].append(int(trace.ts[at]))
            self._spans[int(trace.thread[at])].append(at)

    def around(self, thread: int, t: int) -> int | None:
        """The span that is open at `t` ns."""
        place = bisect_right(self._starts[thread], t) - 1
        if place < 0 or self._trace.end[self._spans[thread][place]] < t:
            return None
        return self._spans[thread][place]

    def after(self, thread: int, begin: int, end: int) -> int | None:
        """The first span that begins in `begin`..`end` ns."""
        place = bisect_right(self._starts[thread], begin - 1)
        if place >= len(self._starts[thread]) or self._starts[thread][place] > end:
            return None
        return self._spans[thread][place]
