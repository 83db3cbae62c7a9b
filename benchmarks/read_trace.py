"""How long it takes to read a trace file and to find everything in it, beside what others need to read it.

The files are windows of a small transformer that trains on the CPU, recorded here with shapes, as `.json.gz`.
The yardstick is msgspec's typed decode of the decompressed bytes into plain structs: what reading costs before
anything is found. Once with the fields that every analysis needs, once with the shapes as well. The others:
torch-tb-profiler 0.4.3 from file to views, in one process, and traceinsight (HolisticTraceAnalysis) from file
to data frame, where it is installed.

Memory is the peak of a fresh process over what its imports take. The file of three million events is the
largest recorded window, ten times in a row.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from isal import igzip

from benchmarks.small_transformer import record
from benchmarks.table import Row, against, arguments, interleaved, show
from harness.trace import analyze, read

EVENTS_A_STEP = 2_150
SIZES = (4_000, 30_000, 100_000, 300_000)
TYPED = "msgspec typed decode"
FINDINGS = "full findings"
# What a contender may take for its share of the rounds; the slow ones get fewer.
SECONDS_EACH = 30.0


class Arguments(msgspec.Struct):
    """Ids and places: what links events."""

    external_id: int | None = msgspec.field(default=None, name="External id")
    correlation: int | None = None
    device: int | None = None
    stream: int | None = None
    bytes: int | None = None


class Shaped(Arguments):
    """Ids and shapes."""

    dims: list[Any] | None = msgspec.field(default=None, name="Input Dims")
    types: list[str] | None = msgspec.field(default=None, name="Input type")
    concrete: list[str] | None = msgspec.field(default=None, name="Concrete Inputs")


class Event(msgspec.Struct):
    """The fields of a trace event."""

    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    id: int | None = None
    args: Arguments | None = None


class ShapedEvent(Event):
    args: Shaped | None = None


class File(msgspec.Struct):
    traceEvents: list[Event]


class ShapedFile(msgspec.Struct):
    traceEvents: list[ShapedEvent]


MEASURE_MEMORY = """
import re, sys
from pathlib import Path
from harness.trace import analyze, read

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

before = peak()
report = analyze(read(sys.argv[1]))
print((peak() - before) / report.totals.json_bytes)
"""


def recorded(folder: Path, events: int) -> Path:
    path = folder / f"{events}.pt.trace.json.gz"
    record(path, math.ceil(events / EVENTS_A_STEP))
    return path


def repeated(path: Path, times: int) -> Path:
    """A file of the same window, `times` in a row: later, and with ids of its own, each time."""
    text = igzip.decompress(path.read_bytes())
    begin = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    end = text.rindex(b"]")
    timestamps = [float(ts) for ts in re.findall(rb'"ts": ([\d.]+)', text)]
    span = max(timestamps) - min(timestamps) + 1000
    ids = max(int(number) for number in re.findall(rb'"External id": (\d+)', text)) + 1
    result = path.with_name(f"{times}_times_{path.name}")
    with igzip.open(result, "wb", compresslevel=1) as file:
        file.write(text[:begin])
        for turn in range(times):
            file.write(b"," if turn else b"")
            later = re.sub(
                rb'"(ts|External id)": ([\d.]+)',
                lambda found, turn=turn: (  # type: ignore[misc]
                    b'"ts": %.3f' % (float(found[2]) + turn * span)
                    if found[1] == b"ts"
                    else b'"External id": %d' % (int(found[2]) + turn * ids)
                ),
                text[begin:end],
            )
            file.write(later)
        file.write(text[end:])
    return result


def torch_tb_profiler(path: Path) -> None:
    """What the plugin's process does for each file."""
    from torch_tb_profiler.profiler.data import DistributedRunProfileData, RunProfileData
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    with tempfile.TemporaryDirectory() as cache:
        data = RunProfileData.parse("worker", None, str(path), cache)
        RunGenerator("worker", None, data).generate_run_profile()
        DistributedRunProfileData(data)


def traceinsight(path: Path) -> None:
    from hta.trace_analysis import TraceAnalysis

    TraceAnalysis(trace_files={0: str(path)}, trace_dir=str(path.parent))


def contenders(path: Path) -> dict[str, Callable[[], object]]:
    text = igzip.decompress(path.read_bytes())
    found: dict[str, Callable[[], object]] = {
        FINDINGS: lambda: analyze(read(path)),
        "read alone": lambda: read(path),
        TYPED: lambda: msgspec.json.Decoder(File).decode(text),
        f"{TYPED} with shapes": lambda: msgspec.json.Decoder(ShapedFile).decode(text),
        "torch-tb-profiler load": lambda: torch_tb_profiler(path),
    }
    if importlib.util.find_spec("hta"):
        found["traceinsight load"] = lambda: traceinsight(path)
    return found


def timed(call: Callable[[], object]) -> float:
    with _silence():
        started = time.perf_counter()
        call()
        return (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def measured(path: Path, rounds: int, *, peers: bool) -> list[Row]:
    """Rows of one file."""
    report = analyze(read(path))
    size = f"{report.totals.events:,} events, {report.totals.json_bytes / 2**20:.1f} MiB"
    calls = contenders(path)
    ours = {FINDINGS, "read alone", TYPED, f"{TYPED} with shapes"}
    fast = {name: lambda call=call: timed(call) for name, call in calls.items() if name in ours}
    values = interleaved(fast, rounds)
    for name, call in calls.items() if peers else ():
        if name not in ours:
            first = timed(call)
            again = min(rounds, int(SECONDS_EACH * 1000 / first))
            values[name] = [timed(call) for _ in range(again)] or [first]
    rows = against(values, TYPED, "ms")
    memory = float(subprocess.check_output([sys.executable, "-c", MEASURE_MEMORY, str(path)]))
    rows.append(Row(name="peak memory over the JSON", value=memory, unit="times"))
    named = [
        msgspec.structs.replace(row, name=f"{row.name} ({size})", versus=row.versus and f"{row.versus} ({size})")
        for row in rows
    ]
    show(size, rows, None)
    return named


def growth(path: Path, times: int) -> list[Row]:
    """Time for each event of a file `times` as large, against the file itself."""
    large = repeated(path, times)
    each = {}
    for name, file in (("the window", path), (f"{times} times the window", large)):
        started = time.perf_counter()
        report = analyze(read(file))
        each[f"{name}, {report.totals.events:,} events"] = [
            (time.perf_counter() - started) * 1e6 / report.totals.events
        ]
    rows = against(each, next(iter(each)), "µs an event")
    memory = float(subprocess.check_output([sys.executable, "-c", MEASURE_MEMORY, str(large)]))
    rows.append(Row(name=f"peak memory over the JSON, {times} times", value=memory, unit="times"))
    show("Growth", rows, None)
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each (default: %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave out torch-tb-profiler and traceinsight")
    parser.add_argument("--no-growth", action="store_true", help="leave out the file of three million events")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for events in SIZES:
            path = recorded(Path(folder), events)
            rows += measured(path, options.rounds, peers=not options.no_peers)
        if not options.no_growth:
            rows += growth(path, 10)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2))


if __name__ == "__main__":
    main()
