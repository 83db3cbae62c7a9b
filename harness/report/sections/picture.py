"""One step as lanes of characters: what ran when, on the host's threads and the device's streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from harness.report.document import Line, Picture, Styled
from harness.report.units import crop, duration, pad, shorten
from harness.report.words import IDLE
from harness.trace import Trace
from harness.trace.file.reader import Kind
from harness.trace.measure.device_time import CAUSES, SYNCHRONIZE, device_sets, gaps
from harness.trace.measure.intervals import Spans, union
from harness.trace.measure.launches import Work, device_work
from harness.trace.measure.steps import Steps, steps
from harness.trace.schema import IdleCause, WindowReport

Shares = NDArray[np.float64]

LABEL = 17
WIDEST = 140
STREAMS_SHOWN = 6
THREADS_SHOWN = 4
LEVELS = " ▁▂▃▄▅▆▇█"
OTHER_STEP = "▒"
WAITING = "░"
LETTER: dict[IdleCause, str] = {
    "host_late": "h",
    "sync": "s",
    "input": "i",
    "launch": "l",
    "dependency": "d",
    "unattributed": "?",
}
PHASE_STYLES = ("blue", "cyan")


class Interval(NamedTuple):
    """What is drawn: ns."""

    start: int
    end: int
    step: int
    """Position in the window; -1 for the whole trace."""


def picture(trace: Trace, report: WindowReport) -> Picture | None:
    """The window's most ordinary step, from its first call on the host to its last event on the device, or from
    the end of the step before where the host was far ahead. The whole trace where there are no steps; None where
    nothing ran in it."""
    if not len(trace):
        return None
    scene = _Scene(trace, report)
    return None if scene.is_empty else Picture(scene.draw)


class _Scene:
    def __init__(self, trace: Trace, report: WindowReport) -> None:
        self._trace = trace
        self._report = report
        self._work = device_work(trace)
        self._steps = steps(trace, self._work)
        self._owner = self._steps.of(self._work.launched_at)
        self.interval = _median_step(trace, self._work, self._steps, self._owner)

    @property
    def is_empty(self) -> bool:
        trace = self._trace
        at = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
        return not np.any((trace.ts[at] < self.interval.end) & (trace.end[at] > self.interval.start))

    def draw(self, width: int) -> list[Line]:
        """Lanes for this width, one character as long as the next."""
        columns = max(min(width, WIDEST) - LABEL, 8)
        edges = np.linspace(self.interval.start, self.interval.end, columns + 1).astype(np.int64)
        legend: dict[str, str] = {}
        lanes = [
            *self._title(columns, width),
            _axis(columns, self.interval.end - self.interval.start),
            *self._phases(edges),
            *self._threads(edges, legend),
            *self._streams(edges, legend),
        ]
        words = [f"{LEVELS[4]}{LEVELS[8]} busy share", *(f"{mark} {meaning}" for mark, meaning in legend.items())]
        return [*lanes, *_flow(words, min(width, WIDEST), "   ", "dim")]

    def _title(self, columns: int, width: int) -> Iterator[Line]:
        length = (self.interval.end - self.interval.start) / 1000
        scale = f"{duration(length)}, {duration(length / columns)} a character"
        if self.interval.step < 0:
            words = [f"The whole trace: {scale}"]
        else:
            words = [f"Step {self._steps.number[self.interval.step]}, of median duration: {scale}"]
            begun = (self.interval.start - int(self._steps.start[self.interval.step])) / 1000
            if begun > 0:
                words.append(f"(the host began it {duration(begun)} earlier)")
        yield from _flow(words, width, " ", "")

    def _phases(self, edges: NDArray[np.int64]) -> Iterator[Line]:
        """Named spans that divide the step, side by side on the step's thread."""
        if self.interval.step < 0:
            return
        trace, named = self._trace, {phase.name for phase in self._report.phases}
        display, label = trace.labels
        start, end = self._steps.start[self.interval.step], self._steps.end[self.interval.step]
        at = trace.of(Kind.ANNOTATION)
        inside = (trace.ts[at] >= start) & (trace.end[at] <= end) & (trace.dur[at] < end - start)
        inside &= trace.ts[at] >= self.interval.start
        spans = [i for i in at[inside].tolist() if display[label[i]] in named]
        lane = [" "] * (len(edges) - 1)
        styles = [""] * len(lane)
        for count, event in enumerate(sorted(spans, key=lambda i: int(trace.ts[i]))):
            first = int(np.searchsorted(edges, trace.ts[event], "right")) - 1
            last = max(int(np.searchsorted(edges, trace.end[event], "left")), first + 1)
            for place, character in enumerate(_bracket(display[label[event]], last - first), first):
                if place < len(lane):
                    lane[place], styles[place] = character, PHASE_STYLES[count % 2]
        if spans:
            yield _lane("phases", lane, styles)

    def _threads(self, edges: NDArray[np.int64], legend: dict[str, str]) -> Iterator[Line]:
        """Operators and runtime calls of the threads that worked most."""
        trace = self._trace
        at = trace.of(Kind.OPERATOR, Kind.RUNTIME, Kind.ANNOTATION)
        at = at[(trace.ts[at] < self.interval.end) & (trace.end[at] > self.interval.start)]
        calls = at[trace.kind[at] != Kind.ANNOTATION]
        waits = calls[(trace.kind[calls] == Kind.RUNTIME) & trace.named(calls, SYNCHRONIZE.search)]
        main = self._main_thread()
        lanes = []
        for thread in np.unique(trace.thread[calls]).tolist():
            mine = calls[trace.thread[calls] == thread]
            busy = _covered(union(trace.ts[mine], trace.end[mine]), edges)
            waiting = waits[trace.thread[waits] == thread]
            lanes.append((thread, busy, _covered(union(trace.ts[waiting], trace.end[waiting]), edges)))
        lanes.sort(key=lambda lane: (lane[0] != main, -float(lane[1].sum())))
        for thread, busy, waiting_share in lanes[:THREADS_SHOWN]:
            stuck = waiting_share >= np.maximum(busy / 2, 0.01)
            if stuck.any():
                legend[WAITING] = "waiting for the device"
            characters = [WAITING if s else _level(b) for b, s in zip(busy.tolist(), stuck.tolist(), strict=True)]
            yield _lane(
                self._thread_name(thread, main), characters, ["yellow" if s else "white" for s in stuck.tolist()]
            )
        if len(lanes) > THREADS_SHOWN:
            yield [Styled(f"{len(lanes) - THREADS_SHOWN} more host threads", "dim")]

    def _main_thread(self) -> int:
        if self.interval.step < 0:
            return -1
        at = self._trace.of(Kind.ANNOTATION)
        own = at[self._trace.ts[at] == self._steps.start[self.interval.step]]
        return int(self._trace.thread[own[0]]) if len(own) else -1

    def _thread_name(self, thread: int, main: int) -> str:
        if thread == main:
            return "host, main"
        trace = self._trace
        operators = trace.of(Kind.OPERATOR)
        operators = operators[trace.thread[operators] == thread]
        if trace.named(operators, lambda name: name.startswith("autograd::engine")).any():
            return "host, autograd"
        return f"host, {trace.threads[thread].tid}"

    def _streams(self, edges: NDArray[np.int64], legend: dict[str, str]) -> Iterator[Line]:
        """Each device's streams, and below them why none of them ran."""
        work = self._work
        inside = (work.start < self.interval.end) & (work.end > self.interval.start)
        for device in work.devices:
            lanes = []
            for stream in np.unique(work.stream[inside & (work.device == device)]).tolist():
                chosen = inside & (work.device == device) & (work.stream == stream)
                lanes.append((stream, self._stream(chosen, edges)))
            lanes.sort(key=lambda lane: -float(lane[1][0].sum()))
            for stream, (busy, own, styles) in lanes[:STREAMS_SHOWN]:
                foreign = (busy > 0) & (own < busy / 2)
                if foreign.any():
                    legend[OTHER_STEP] = "work of another step"
                characters = [
                    OTHER_STEP if f else _level(b) for b, f in zip(busy.tolist(), foreign.tolist(), strict=True)
                ]
                yield _lane(f"GPU {device} stream {stream}", characters, styles)
            if len(lanes) > STREAMS_SHOWN:
                yield [Styled(f"{len(lanes) - STREAMS_SHOWN} more streams", "dim")]
            reasons = self._reasons(device, edges, legend)
            if reasons.strip():
                yield _lane("  idle because", list(reasons), ["red"] * len(reasons))

    def _stream(self, chosen: NDArray[np.bool_], edges: NDArray[np.int64]) -> tuple[Shares, Shares, list[str]]:
        """Busy share, the part of it that is this step's work, and the style of what it mostly is."""
        work = self._work.where(chosen)
        mine = (self._owner[chosen] == self.interval.step) | (self.interval.step < 0)
        sets = device_sets(work)
        kinds = np.stack([_covered(spans, edges) for spans in (sets.compute, sets.communication, sets.memcpy)])
        styles = np.array(["green", "magenta", "cyan"])[kinds.argmax(axis=0)]
        own = _covered(union(work.start[mine], work.end[mine]), edges)
        return _covered(sets.busy, edges), own, styles.tolist()

    def _reasons(self, device: int, edges: NDArray[np.int64], legend: dict[str, str]) -> str:
        """A letter where the device is idle for most of a character, by the reason of the gap."""
        mine = self._work.on(device)
        sets = device_sets(mine)
        found = gaps(self._trace, mine, sets, device)
        main = found.parts.argmax(axis=1)
        by_reason = np.stack(
            [
                _covered(Spans(found.start[main == place], found.end[main == place]), edges)
                for place in range(len(CAUSES))
            ]
        )
        idle = by_reason.sum(axis=0) >= 0.5
        characters = []
        for place, is_idle in enumerate(idle.tolist()):
            cause = CAUSES[int(by_reason[:, place].argmax())]
            if is_idle:
                legend[LETTER[cause]] = IDLE[cause]
            characters.append(LETTER[cause] if is_idle else " ")
        return "".join(characters)


def _median_step(trace: Trace, work: Work, found: Steps, owner: NDArray[np.int64]) -> Interval:
    if not len(found.start):
        start, end = trace.start, int(trace.end.max())
        if len(work.start):
            start, end = min(start, int(work.start.min())), max(end, int(work.end.max()))
        return Interval(start, end, -1)
    step = int(np.argsort(found.duration, kind="stable")[len(found.duration) // 2])
    start, end = int(found.start[step]), int(work.end[owner == step].max(initial=found.end[step]))
    length = int(found.duration[step])
    # A host that is steps ahead of the device began this one long before the device did.
    return Interval(start if end - start <= 2 * length else end - length, end, step)


def _covered(spans: Spans, edges: NDArray[np.int64]) -> Shares:
    """Share of each character that the spans cover."""
    return spans.within(edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)


def _level(fraction: float) -> str:
    """Rounded up: what is there shows."""
    return LEVELS[min(int(np.ceil(fraction * 8 - 1e-9)), 8)]


def _lane(label: str, characters: list[str], styles: list[str]) -> Line:
    """A label, then runs of characters of one style."""
    line = [Styled(pad(shorten(label, LABEL - 1), LABEL), "bold")]
    begin = 0
    for place in range(1, len(characters) + 1):
        if place == len(characters) or styles[place] != styles[begin]:
            line.append(Styled("".join(characters[begin:place]), styles[begin]))
            begin = place
    return line


def _bracket(name: str, width: int) -> str:
    """`├forward────┤`"""
    if width <= 1:
        return "│"
    inner = width - 2
    shown = crop(name, inner) if inner >= 3 else ""
    return "├" + shown + "─" * (inner - cell_len(shown)) + "┤"


def _axis(columns: int, length: int) -> Line:
    """Times at even distances, each starting where it is."""
    count = 4 if columns >= 60 else 2
    line = ""
    for place in range(count):
        at = columns * place // count
        line = pad(line, at) + "╵" + duration(length / 1000 * place / count)
    return [Styled(" " * LABEL + crop(line, columns), "dim")]


def _flow(words: list[str], width: int, space: str, style: str) -> Iterator[Line]:
    """Words side by side, as many to a line as fit."""
    line = ""
    for word in words:
        if line and len(line) + len(space) + len(word) > width:
            yield [Styled(line, style)]
            line = ""
        line += (space if line else "") + word
    yield [Styled(line, style)]
