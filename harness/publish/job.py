"""What the training process hands over with a raw trace."""

from __future__ import annotations

import msgspec

from harness.publish.retention import Keep


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a window took from the job, in microseconds."""

    warmup_extra_us: float | None = None
    """Of its warm-up steps, against the unprofiled median; None where that is not known."""
    active_extra_us: float | None = None
    """Of its recorded steps."""
    start_us: float = 0.0
    """Torch's profiler starts, before the first warm-up step."""
    begin_us: float = 0.0
    """Recording begins."""
    stop_us: float = 0.0
    """Recording ends; the device's own work, for which the loop waits there, is no part of it."""
    export_us: float = 0.0
    """The raw file is written."""

    @property
    def stalls_us(self) -> dict[str, float]:
        """How long the loop stood still, and where."""
        return {name: getattr(self, name) for name in ("start_us", "begin_us", "stop_us", "export_us")}

    @property
    def total_us(self) -> float:
        """All of it. Steps that happened to be faster than the median pay nothing back."""
        extra = max(0.0, self.warmup_extra_us or 0.0) + max(0.0, self.active_extra_us or 0.0)
        return extra + sum(self.stalls_us.values())


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded window that waits to be published."""

    version: int = 1
    first_step: int
    steps: int
    partial: bool
    unprofiled_step_us: float | None
    profiled_steps_us: list[float]
    cost: Cost
    raw_bytes: int
    """Size of the raw trace."""
    max_trace_bytes: int | None = None
    """A raw trace above it is dropped."""
    keep: Keep = Keep()
    ranks: list[int] = []
    """The other ranks that record it too."""
    absent_ranks: list[int] = []
    """Ranks that should record it too and have no profiler."""
    ranks_timeout_s: float = 0.0
    """How long it waits for their traces, from when it is first looked at."""
    upload: str | None = None
    """An fsspec address to which the run's windows are copied."""
