"""What the log says of windows that were not recorded."""

from __future__ import annotations

import math

from harness.schedule import Schedule


def over_budget(limit: float | None, wait_s: float) -> str:
    """That the next window has to wait until the job can pay for it."""
    when = "no window can be paid for" if math.isinf(wait_s) else f"the next one can be paid for in {_duration(wait_s)}"
    return f"windows may take {limit or 0:.2%} of the job's time (max_overhead), and {when}"


def no_window(schedule: Schedule, first_step: int, steps: int) -> str | None:
    """Why a loop of so many steps had none at all; None where its log has said so."""
    if not steps:
        return "no window was recorded: step() was never called; call it once at the end of each step"
    window = schedule.first_window(first_step)
    if window is None:
        return f"no window was recorded in {steps:,} steps: the schedule had no more of them"
    if first_step + steps <= window.first:
        return (
            f"no window was recorded: the loop ended with step {first_step + steps - 1:,}, and the first window would "
            f"have recorded steps {window.first:,} to {window.end - 1:,}; give a loop as short as this a smaller wait"
        )
    return None


def _duration(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:,.0f} {name}"
    return f"{seconds:,.0f} s"
