"""What the training process learns of a window once it stands in the logdir."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.trace.schema import WindowReport


@dataclass(frozen=True, kw_only=True)
class PublishedWindow:
    """A window that stands in the logdir, complete. Times are microseconds."""

    path: Path
    first_step: int
    """The global step at which recording began."""
    steps: int
    partial: bool
    """Cut short by a signal, an error or the end of the run."""
    unprofiled_step_us: float | None
    """Median of the steps just before it, without the profiler."""
    profiled_steps_us: list[float]
    stalls_us: dict[str, float]
    """How long the loop stood still: ``start_us`` (the warm-up begins), ``begin_us`` (recording begins), ``stop_us``
    and ``export_us`` (the window's end)."""
    cost_us: float
    """All that the window took from the job: its stalls, and the extra time of its warm-up and recorded steps."""
    report: WindowReport | None
    """The findings; None where they could not be made, and :attr:`error` says why."""
    error: str | None = None

    @property
    def stall_us(self) -> float:
        """How long the loop stood still for this window, in all."""
        return sum(self.stalls_us.values())
