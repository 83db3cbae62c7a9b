"""What to open of a timeline for what a report says: a gap, a step, a kernel, an operator.

A report counts µs from the first event of its window, and knows its kernels by name; the timeline has a clock of its
own. So a link says what the report says, and the server, which has read the trace, where that is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from harness.errors import UsageError
from harness.timeline.prepare import IDLE, STEPS, Facts
from harness.trace.schema import Gap, Kernel, Operator, Step

_NAMED: tuple[Literal["step", "kernel", "operator"], ...] = ("step", "kernel", "operator")
_FURTHEST = 2**62


class Spot(msgspec.Struct, frozen=True):
    """A time on the timeline's clock, in ns, and what tells its slice from others of that time, where it is known."""

    ts: str
    """A decimal number: JavaScript's own numbers hold no nanoseconds."""
    dur: str
    pid: str | None = None
    tid: str | None = None
    category: str | None = None


def gap(found: Gap) -> dict[str, str]:
    """Arguments of `view.html`, beside those that name the file, that show an idle gap."""
    return {"start_us": repr(found.start_us), "duration_us": repr(found.duration_us)}


def step(found: Step) -> dict[str, str]:
    """Those that show a step."""
    return {"step": str(found.number)}


def kernel(found: Kernel) -> dict[str, str]:
    """Those that show the longest call of a kernel, copy or memset."""
    return {"kernel": found.name}


def operator(found: Operator) -> dict[str, str]:
    """Those that show the longest call of an operator, or of the kernel that a row of a device is."""
    return {"operator": found.name}


def spot(arguments: Mapping[str, str], facts: Facts) -> Spot | None:
    """Where `arguments` of `view.html` point to; None where they point nowhere.

    They are those of a link above, or `ts`, `dur` (ns, on the file's clock), `pid` and `tid`.

    Raises:
        UsageError: where they name what is not in the trace, or are no numbers.
    """
    for kind in _NAMED:
        name = arguments.get(kind)
        if name is not None:
            found = facts.spots[kind].get(name) or _of_torchs_table(kind, name, facts)
            if found is None:
                raise UsageError(f"the trace has no {kind} {name[:200]}")
            return Spot(str(found[0]), str(found[1]), category=STEPS if kind == "step" else None)
    if "start_us" in arguments:
        start, duration = (_nanoseconds(arguments, name, 1000.0) for name in ("start_us", "duration_us"))
        return Spot(str(facts.start + start), str(duration), category=IDLE)
    if "ts" in arguments:
        ts, dur = (_nanoseconds(arguments, name, 1) for name in ("ts", "dur"))
        return Spot(str(facts.clock + ts), str(dur), arguments.get("pid"), arguments.get("tid"))
    return None


def _of_torchs_table(kind: str, name: str, facts: Facts) -> tuple[int, int] | None:
    """Its rows of operators hold kernels too."""
    return facts.spots["kernel"].get(name) if kind == "operator" else None


def _nanoseconds(arguments: Mapping[str, str], name: str, scale: float) -> int:
    value = arguments.get(name, "0")
    try:
        found = round(float(value) * scale) if isinstance(scale, float) else int(value)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{name}={value[:40]}: must be a number") from error
    if abs(found) > _FURTHEST:
        raise UsageError(f"{name}={value[:40]}: lies beyond any trace")
    return found
