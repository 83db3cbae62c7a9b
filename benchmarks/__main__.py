"""Run every benchmark, one after the other."""

from __future__ import annotations

import subprocess
import sys

BENCHMARKS = (
    "loop_tax",
    "read_trace",
    "window_stall",
    "long_job",
    "board",
    "windows_tab",
    "timeline",
    "scale",
    "ranks",
    "faults",
)

for name in BENCHMARKS:
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=True)
