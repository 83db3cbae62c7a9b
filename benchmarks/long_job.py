"""A job of hours pressed into minutes: hundreds of windows of a small model, against the same loop without a profiler.

The step: an MLP of three layers on a batch of 256, SGD. The two loops take turns in phases of the same number of
steps; the bare one begins when the publisher has nothing left to do, and its time is not the profiled job's, nor is
that of counting what lies on disk. Windows are denser than the budget allows, so that it is the budget which spaces
them; the minute of grace that a job has before it is held to its budget is pressed into a second.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn import functional

from benchmarks.table import Row, arguments, show
from harness.logdir.layout import TRACE_SUFFIX
from harness.models import MLP
from harness.record import Keep, Profiler, PublishedWindow, Schedule, TraceOptions, budget

CUDA = torch.cuda.is_available()
PHASES = 10
AROUND = 10
"""Steps just before a window and just after it that are compared."""
MIB = 1024**2


class Loop:
    """The training step."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        device = "cuda" if CUDA else "cpu"
        self._model = MLP(in_channels=1, image_size=16, num_classes=10, hidden=[512, 512]).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._inputs = torch.randn(256, 256, device=device)
        self._labels = torch.randint(10, (256,), device=device)

    def step(self) -> None:
        functional.cross_entropy(self._model(self._inputs), self._labels).backward()
        self._optimizer.step()
        self._optimizer.zero_grad()
        if CUDA:
            torch.cuda.synchronize()


@dataclass
class Clock:
    """Time of the profiled job alone."""

    _passed: float = 0.0
    _since: float | None = None

    def __call__(self) -> float:
        return self._passed + (0.0 if self._since is None else time.monotonic() - self._since)

    def go(self) -> None:
        self._since = time.monotonic()

    def halt(self) -> bool:
        """Stop it; whether it was going."""
        was_going = self._since is not None
        self._passed, self._since = self(), None
        return was_going


@dataclass
class Seen:
    """What is measured while the profiled loop runs."""

    limit: int
    clock: Clock
    published: int = 0
    counting_s: float = 0.0
    most_bytes: int = 0
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    def window(self, window: PublishedWindow) -> None:
        running = self.clock.halt()
        started = time.perf_counter()
        self.published += 1
        traces = window.path.parent.glob(f"*/*{TRACE_SUFFIX}.gz")
        self.most_bytes = max(self.most_bytes, sum(trace.stat().st_size for trace in traces))
        self.counting_s += time.perf_counter() - started
        if running:
            self.clock.go()


def profiled(loop: Loop, profiler: Profiler, seen: Seen, windows: int) -> tuple[int, float]:
    """Train until ``windows`` more have been recorded; steps and seconds."""
    steps = recorded = 0
    recent: list[float] = []
    since_window, was_in_window = AROUND, False
    started = time.perf_counter()
    while recorded < windows:
        profiler.begin_step()
        if profiler.in_window and not was_in_window:
            seen.before += recent[-AROUND:]
        began = time.perf_counter()
        loop.step()
        took = time.perf_counter() - began
        inside = profiler.in_window
        profiler.end_step()
        steps += 1
        was_in_window = profiler.in_window
        if inside:
            recorded += not was_in_window
            since_window = 0
        else:
            since_window += 1
            if since_window <= AROUND:
                seen.after.append(took)
            recent = [*recent[-AROUND:], took]
    return steps, time.perf_counter() - started


def bare(loop: Loop, steps: int) -> float:
    started = time.perf_counter()
    for _ in range(steps):
        loop.step()
    return time.perf_counter() - started


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def run(folder: Path, windows: int, wait: int, limit: float, disk_mib: float) -> list[Row]:
    loop, clock = Loop(), Clock()
    seen = Seen(limit=int(disk_mib * MIB), clock=clock)
    with_profiler = without = 0.0
    steps = 0
    resident: list[float] = []
    bare(loop, 200)
    profiler = Profiler(
        folder / "logs",
        "job",
        Schedule(wait=wait, warmup=1, active=3),
        TraceOptions(record_shapes=True),
        on_window=seen.window,
        max_overhead=limit,
        keep=Keep(bytes=seen.limit),
        clock=clock,
    )
    with profiler:
        for _ in range(PHASES):
            clock.go()
            counted_s = seen.counting_s
            made, took = profiled(loop, profiler, seen, windows // PHASES)
            took -= seen.counting_s - counted_s
            clock.halt()
            while profiler.figures["profiler/waiting"]:
                profiler.poll()
                time.sleep(0.01)
            with_profiler, without, steps = with_profiler + took, without + bare(loop, made), steps + made
            resident.append(resident_mib())
        figures = profiler.figures
    tail = statistics.median(seen.after) / statistics.median(seen.before)
    return [
        Row(name="slowdown against the bare loop", value=(with_profiler / without - 1) * 100, unit="%"),
        Row(name="budget", value=limit * 100, unit="%"),
        Row(name="overhead, as the profiler measures it", value=figures["profiler/overhead"] * 100, unit="%"),
        Row(name="cycles passed over for the budget", value=figures["profiler/skipped"], unit="cycles"),
        Row(name="windows published", value=seen.published, unit="windows"),
        Row(name="steps", value=steps, unit="steps"),
        Row(name="job", value=with_profiler, unit="s"),
        Row(name="resident memory, growth after the first tenth", value=resident[-1] - resident[0], unit="MiB"),
        Row(name="traces on disk, at most", value=seen.most_bytes / MIB, unit="MiB"),
        Row(name="limit of traces on disk", value=disk_mib, unit="MiB"),
        Row(
            name="a step after a window",
            value=statistics.median(seen.after) * 1e6,
            unit="µs",
            ratio=tail,
            versus="before it",
        ),
    ]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--windows", type=int, default=500, help="(default: %(default)s)")
    parser.add_argument("--wait", type=int, default=40, help="steps between two windows (default: %(default)s)")
    parser.add_argument("--budget", type=float, default=0.03, help="profiler.max_overhead (default: %(default)s)")
    parser.add_argument("--disk-mib", type=float, default=1.0, help="profiler.keep.bytes (default: %(default)s)")
    options = parser.parse_args()
    torch.set_num_threads(1)
    budget.GRACE_S = 1.0
    with tempfile.TemporaryDirectory(prefix="long_job.") as folder:
        rows = run(Path(folder), options.windows, options.wait, options.budget, options.disk_mib)
    show(f"A long job: {options.windows} windows", rows, options.json)


if __name__ == "__main__":
    main()
