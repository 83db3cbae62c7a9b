"""The names of a run's curves: tags in its event files, and keys of its manifest's ``metrics``.

Who writes curves and who reads them share this file and nothing else.
"""

from __future__ import annotations

# Training, evaluation and speed.
LOSS = "train/loss"
LEARNING_RATE = "train/lr"
GRADIENT_NORM = "train/grad_norm"
EVAL = "eval/"
"""Before what evaluation measures: :data:`EVAL_LOSS`, a task's own metrics."""
EVAL_LOSS = f"{EVAL}loss"
EVAL_ACCURACY = f"{EVAL}accuracy"
STEP_MS = "perf/step_time_ms"
DATA_WAIT_MS = "perf/data_wait_ms"
_PER_SECOND = ("perf/", "_per_second")

# Memory of the job.
ALLOCATED_MIB = "memory/allocated_mib"
PEAK_ALLOCATED_MIB = "memory/peak_allocated_mib"
RESERVED_MIB = "memory/reserved_mib"

# One point a window.
WINDOW_STEP_MS = "window/step_ms_"
"""Before ``unprofiled`` and ``profiled``."""
WINDOW_STEP_MS_UNPROFILED = f"{WINDOW_STEP_MS}unprofiled"
WINDOW_STEP_MS_PROFILED = f"{WINDOW_STEP_MS}profiled"
WINDOW_BUSY = "window/device_busy"
WINDOW_EXPOSED = "window/exposed_"
"""Before what is exposed."""
WINDOW_EXPOSED_COPIES_MS = f"{WINDOW_EXPOSED}copies_ms"
WINDOW_EXPOSED_COMMUNICATION_MS = f"{WINDOW_EXPOSED}communication_ms"
WINDOW_PEAK = "window/peak_"
"""Before the kind of memory."""
WINDOW_PEAK_ALLOCATED_MIB = f"{WINDOW_PEAK}allocated_mib"
WINDOW_PEAK_RESERVED_MIB = f"{WINDOW_PEAK}reserved_mib"
WINDOW_COST_MS = "window/cost_ms"
WINDOW_STALL_MS = "window/stall_ms"
WINDOW_OVERHEAD = "window/overhead"
WINDOW_LOST_EVENTS = "window/lost_events"
VERDICT = "window/verdict"
VERDICT_CONFIDENCE = "window/verdict_confidence"
IDLE = "idle/"
"""Before a reason."""
OPERATORS = "operators/"
"""Before a name; so are the next two."""
PHASES = "phases/"
PHASES_ON_DEVICE = "phases_device/"

# Several ranks.
WAITING = "ranks/waiting_"
"""Before ``most`` and ``mean``."""
WAITING_MOST = f"{WAITING}most"
WAITING_MEAN = f"{WAITING}mean"
STRAGGLER = "ranks/straggler"
COMPUTE_IMBALANCE = "ranks/compute_imbalance"
MEMORY_IMBALANCE = "ranks/memory_imbalance"
BUS_GB_PER_S = "ranks/bus_gb_per_s/"
"""Before a kind of collective."""

# Text.
FINDINGS_TEXT = "window/findings"
CHANGES_TEXT = "window/changes"


def per_second(unit: str) -> str:
    """The throughput in ``samples``, ``tokens`` or a task's own unit."""
    return unit.join(_PER_SECOND)


def unit_of(tag: str) -> str | None:
    """What a throughput counts; None for any other tag."""
    begin, end = _PER_SECOND
    return tag[len(begin) : -len(end)] if tag.startswith(begin) and tag.endswith(end) else None


def memory_of(part: str) -> str:
    """A part of what the job's memory is made of: ``optimizer state``, ``activations and rest``."""
    return f"memory/{part.replace(' ', '_')}_mib"
