"""The experiments on this machine's device, each with its windows read back: what ran, how fast, what bounds it.

``lab5_cnn``, ``text_transformer`` in bf16, and ``matmul_sweep`` from 64 to 8192, run by ``harness train`` as a user
would; a row is the last window of a run. With ``--keep DIR`` the runs stay there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from harness.logdir.manifest import read_manifest
from harness.logdir.scan import find_runs, windows
from harness.trace import analyze, read

JOBS = (
    ["experiment=lab5_cnn"],
    ["experiment=text_transformer", "trainer.precision=bf16", "trainer.max_steps=400", "profiler.repeat=2"],
    ["-m", "experiment=matmul_sweep"],
)


class Measured(msgspec.Struct, kw_only=True):
    """One run's last window. Times are microseconds."""

    run: str
    windows: int
    verdict: str
    step_us: float | None
    """Median of the unprofiled steps before it."""
    busy_fraction: float | None
    """Device busy in a step, against the unprofiled step time."""
    host_us: float
    """Host time of all operators, a step."""
    device_us: float
    """Device time of all kernels and copies, a step."""
    tflop_per_s: float | None
    """FLOPs of the window's known operators, over the unprofiled step time."""
    stop_stall_us: float
    """How long the loop stood still for the profiler's start and the recording's begin, as the trace tells."""


def measure(run: Path) -> Measured:
    """Read the newest window of ``run`` back."""
    found = windows(run)
    (trace,) = found[-1].glob("*.pt.trace.json*")
    report = analyze(read(trace))
    steps = max(1, report.window.steps)
    step_us = report.step_time.unprofiled_median_us
    busy_us = sum(step.device_busy_us for step in report.steps) / steps
    cost = json.loads(trace.read_bytes())["harness"]["cost"]
    return Measured(
        run=read_manifest(run).id,
        windows=len(found),
        verdict=report.verdict.label,
        step_us=step_us,
        busy_fraction=busy_us / step_us if step_us else None,
        host_us=report.totals.cpu_time_us / steps,
        device_us=report.totals.device_time_us / steps,
        tflop_per_s=report.totals.flops / steps / step_us / 1e6 if report.totals.flops and step_us else None,
        stop_stall_us=cost["start_us"] + cost["begin_us"],
    )


def main() -> None:
    import argparse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows there")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="the logdir to write to, in place of a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        logdir = options.keep or Path(temporary) / "logs"
        for job in JOBS:
            subprocess.run([sys.executable, "-m", "harness.train", *job, f"logdir={logdir}"], check=True)
        rows = sorted(map(measure, (run.path for run in find_runs(logdir))), key=lambda row: row.run)
    table = Table(box=None, header_style="bold")
    for heading in ("run", "verdict", "step µs", "device busy", "host µs", "device µs", "TFLOP/s", "windows"):
        table.add_column(heading, justify="left" if heading in ("run", "verdict") else "right", overflow="fold")
    for row in rows:
        table.add_row(
            row.run,
            row.verdict,
            "" if row.step_us is None else f"{row.step_us:,.1f}",
            "" if row.busy_fraction is None else f"{row.busy_fraction:.1%}",
            f"{row.host_us:,.1f}",
            f"{row.device_us:,.1f}",
            "" if row.tflop_per_s is None else f"{row.tflop_per_s:,.1f}",
            str(row.windows),
        )
    Console(width=160).print(table)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2))


if __name__ == "__main__":
    main()
