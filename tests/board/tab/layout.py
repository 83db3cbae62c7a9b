"""Runs of many windows, made from recorded traces, as the publisher lays them out."""

from __future__ import annotations

import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from harness.trace import WindowReport, analyze, analyze_window, read

TRACES = Path(__file__).parents[2] / "traces"
STARTED = "2026-11-29T10:00:00.000+00:00"


def recorded(name: str) -> Path:
    """The recorded trace of this name."""
    return TRACES / f"{name}.pt.trace.json.gz"


@cache
def report(name: str) -> WindowReport:
    """The findings of a recorded trace."""
    return analyze(read(recorded(name)))


@cache
def across(*names: str) -> WindowReport:
    """The findings across ranks of a window that these recorded traces are, the lowest rank's first."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"host_{rank}.1.pt.trace.json.gz" for rank, _ in enumerate(names)]
        for path, name in zip(paths, names, strict=True):
            shutil.copy(recorded(name), path)
        return analyze_window(paths)


def manifest(run: Path, **changes: Any) -> None:
    """Write ``run.json``."""
    run.mkdir(parents=True, exist_ok=True)
    facts: dict[str, Any] = {
        "id": "/".join(run.parts[-2:]),
        "status": "completed",
        "step": 0,
        "max_steps": 100_000,
        "started": STARTED,
        "updated": STARTED,
        "command": "harness train",
        "overrides": [],
        "choices": {},
        "device": "NVIDIA H200",
    }
    (run / "run.json").write_text(json.dumps(facts | changes))


def window(
    run: Path,
    step: int,
    trace: str,
    *,
    slower: float = 1.0,
    keep: bool = True,
    ranks: Sequence[str] = (),
    told: bool = True,
) -> Path:
    """Publish one window: findings and trace in a directory that appears whole.

    Args:
        trace: The recorded trace that it is.
        slower: All its times are so many times as long, and the step without the profiler is known.
        keep: The trace file is there too, not the findings alone.
        ranks: Recorded traces of other ranks, beside it.
        told: The findings are across ranks where there are several, not of one trace alone.
    """
    final = run / "profile" / f"window_{step:08d}"
    building = run / f".{final.name}"
    building.mkdir(parents=True)
    found = _slower(msgspec.to_builtins(across(trace, *ranks) if ranks and told else report(trace)), slower)
    found["window"] |= {"first_step": step, "cost_us": 41_000.0 * slower, "trigger": "schedule"}
    profiled = found["step_time"]["profiled_median_us"]
    found["step_time"]["unprofiled_median_us"] = found["step_time"]["unprofiled_median_us"] or (profiled or 0) * 0.8
    names = [f"host_{rank}.{10**18 + step}.pt.trace.json.gz" for rank, _ in enumerate([trace, *ranks])]
    found["source"] = names[0]
    for rank, name in zip(found["ranks"]["ranks"] if found["ranks"] else [], names, strict=False):
        rank["source"] = name
    (building / "window.json").write_bytes(msgspec.json.encode(found))
    for name, one in zip(names, [trace, *ranks] if keep else [], strict=False):
        shutil.copy(recorded(one), building / name)
    final.parent.mkdir(parents=True, exist_ok=True)
    building.rename(final)
    return final


def long_run(run: Path, count: int, *, every: int = 200, keep: int = 3) -> None:
    """A job whose loop waited for input for a while: ``count`` windows, the newest ``keep`` with their traces."""
    noise = random.Random(count)
    manifest(run, step=count * every, max_steps=count * every, status="completed")
    for number in range(count):
        share = number / count
        trace = "input_slow_loader" if 0.35 <= share < 0.55 else "eager_transformer_mem"
        slower = noise.gauss(1.0, 0.02) * (1.35 if share >= 0.75 else 1.0)
        window(run, (number + 1) * every, trace, slower=slower, keep=number >= count - keep)


def _slower(value: Any, factor: float) -> Any:
    """Every time, `..._us`, multiplied."""
    if isinstance(value, list):
        return [_slower(item, factor) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: item * factor if key.endswith("_us") and isinstance(item, int | float) else _slower(item, factor)
        for key, item in value.items()
    }
