"""Findings across many ranks' traces: how long they take, how much memory, and whether they name the rank that is late.

The traces are one window of a small transformer that trains under DDP on gloo, recorded here, copied for each rank with
another rank in the header and a clock of its own, seconds off. One rank joins every collective a few milliseconds late.
Each measurement is a fresh process; its memory is the peak of the process that asks, and of each that reads.
"""

from __future__ import annotations

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from isal import igzip

from benchmarks.small_transformer import record
from benchmarks.table import Row, arguments, show

MEASURE = """
import resource, sys, time
from pathlib import Path
from harness.trace import analyze_window

if __name__ == "__main__":
    started = time.perf_counter()
    report = analyze_window(sorted(Path(sys.argv[1]).glob("*.pt.trace.json.gz")), processes=int(sys.argv[2]))
    seconds = time.perf_counter() - started
    own, each = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    ranks = report.ranks
    print(seconds, own * 1024, each * 1024, len(ranks.ranks), ranks.straggler and ranks.straggler.rank)
"""
LATE_US = 5000.0
EVENT = re.compile(rb'("ts": )(\d+)')


def copies(folder: Path, ranks: int, steps: int, late: int) -> float:
    """Writes one trace a rank; MiB of JSON of one."""
    recorded = folder / "recorded.json"
    record(recorded, steps, ddp=True)
    document = msgspec.json.decode(recorded.read_bytes())
    document["distributedInfo"] |= {"rank": "RANK", "world_size": ranks}
    on_time, too_late = (_joined(document, later) for later in (0.0, LATE_US))
    shift = random.Random(0)
    for rank in range(ranks):
        text = (too_late if rank == late else on_time).replace(b'"RANK"', str(rank).encode())
        seconds = shift.randrange(1, 10_000)
        moved = EVENT.sub(lambda found, s=seconds: b"%s%d" % (found[1], int(found[2]) + s * 10**6), text)  # type: ignore[misc]
        with igzip.open(folder / f"host{rank // 8}_{rank}.1.pt.trace.json.gz", "wb", compresslevel=1) as file:
            file.write(moved)
    return len(on_time) / 2**20


def _joined(document: dict[str, object], later_us: float) -> bytes:
    """The trace of a rank whose collectives begin so much later, and end when all others' do."""
    events: list[dict[str, object]] = document["traceEvents"]  # type: ignore[assignment]
    moved = [
        {**event, "ts": event["ts"] + later_us, "dur": event["dur"] + LATE_US - later_us}  # type: ignore[operator]
        if str(event.get("name", "")).startswith("gloo:")
        else event
        for event in events
    ]
    return msgspec.json.format(msgspec.json.encode({**document, "traceEvents": moved}), indent=0).replace(
        b'"ts":', b'"ts": '
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--ranks", type=int, default=64, help="traces in the window (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=10, help="steps of the window (default: %(default)s)")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2], help="that read (default: 1 2)")
    options = parser.parse_args()
    rows: list[Row] = []
    late = options.ranks * 2 // 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = copies(folder, options.ranks, options.steps, late)
        for processes in options.processes:
            command = [sys.executable, "-c", MEASURE, name, str(processes)]
            seconds, own, each, found, straggler = subprocess.check_output(command, text=True).split()
            what = f"{found} ranks, {size:.1f} MiB each, {processes} processes"
            first = rows[0] if rows else None
            ratio = float(seconds) / first.value if first is not None else None
            rows.append(Row(name=what, value=float(seconds), unit="s", ratio=ratio, versus=first and first.name))
            readers = 0 if processes == 1 else processes
            memory = (int(own) + readers * int(each)) / 2**30
            rows.append(Row(name=f"peak memory, {processes} processes", value=memory, unit="GiB"))
            print(f"{what}: rank {straggler} is late; it was made so: rank {late}")
    show("Findings across ranks", rows, options.json)


if __name__ == "__main__":
    main()
