"""Why cycles of the schedule had no window: what the recorder counts, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping

BUDGET, PUBLISHER, OTHER, ASKED, EARLIER = "budget", "publisher", "other profiler", "asked for", "earlier"
_REASONS = {
    BUDGET: "could not be paid for (max_overhead)",
    PUBLISHER: "for a publisher that was behind",
    OTHER: "for another profiler in the process",
    ASKED: "for a window that was asked for",
    EARLIER: "in earlier lives of the job",
}


def in_words(cycles: Mapping[str, int]) -> str:
    """How many cycles had no window, and why: ``3 cycles without a window: 3 could not be paid for``."""
    number = sum(cycles.values())
    reasons = ", ".join(f"{count:,} {_REASONS.get(reason, reason)}" for reason, count in cycles.items())
    return f"{number:,} {'cycle' if number == 1 else 'cycles'} without a window: {reasons}"
