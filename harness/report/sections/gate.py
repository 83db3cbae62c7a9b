"""Whether a comparison keeps to a limit, and what is said where it does not: ``harness compare --fail-over``."""

from __future__ import annotations

import re
from typing import NamedTuple

from harness.errors import UsageError
from harness.report.words import doubt, sentence
from harness.trace.compare.comparison import Comparison, culprits, regressions, undecided

_LIMIT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%?)\s*")


class Gate(NamedTuple):
    """What ``fail_over`` has come to."""

    kept: bool
    lines: list[str]
    """What has grown by more than the limit, and why; and what may have, for all that is known."""


def gate(found: Comparison, limit: float | None) -> Gate:
    """What has grown by more than the limit; without one nothing has."""
    if limit is None:
        return Gate(True, [])
    grown = regressions(found, limit)
    named = [f"  {sentence(row)}" for row in culprits(found)] if any(row.group == "step" for row in grown) else []
    over = [f"{sentence(row)}, over the limit of {100 * limit:g} %" for row in grown]
    return Gate(not grown, [*over, *named, *(doubt(row, limit) for row in undecided(found, limit))])


def limit_of(text: str) -> float:
    """The share that ``5%`` or ``0.05`` is.

    Raises:
        UsageError: where it is none above zero.
    """
    match = _LIMIT.fullmatch(text)
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not value:
        raise UsageError(f"--fail-over {text}: must be a share above zero, as 5% or 0.05")
    return value
