"""Findings in words: what a label, a reason or a change is called, wherever it is shown."""

from __future__ import annotations

from harness.report.units import duration, printable, share, shorten, size
from harness.trace.compare.changes import Change, FurtherTimes, NewVerdict, Watched
from harness.trace.compare.comparison import MORE, SMALLEST, Row
from harness.trace.compare.groups import Group, Unit
from harness.trace.ranks.straggler import WHY_LATE
from harness.trace.schema import IdleCause, Straggler, VerdictLabel

MEANING: dict[VerdictLabel, str] = {
    "input-bound": "The device waits for the loop to fetch its next batch.",
    "sync-bound": "The device runs dry because the host waits for it, and only then queues more work.",
    "overhead-bound": "The device waits for the host, which takes longer to launch the work than the work takes.",
    "copy-bound": "Copies between host and device take the time, with nothing running beside them.",
    "communication-bound": "Communication with other ranks takes the time, with no computation beside it.",
    "compute-bound": "The device works all the time, and mostly on arithmetic.",
    "memory-bound": "The device works all the time, and mostly on moving data through its memory.",
    "device-bound": "The device works all the time; whether arithmetic or memory limits it cannot be told.",
    "cpu-bound": "No device is in use: the step is the host's own work.",
    "undetermined": "The trace does not tell what bounds the step.",
}
"""A verdict, by itself."""
SINCE: dict[VerdictLabel, str] = {
    "input-bound": "the loop waits for input",
    "sync-bound": "the device runs dry because the host waits for it",
    "overhead-bound": "the device waits for the host to launch its work",
    "copy-bound": "copies between host and device take the time",
    "communication-bound": "communication with other ranks takes the time",
    "compute-bound": "the device works all the time, mostly on arithmetic",
    "memory-bound": "the device works all the time, mostly on moving data through its memory",
    "device-bound": "the device works all the time",
    "cpu-bound": "the step is the host's own work",
}
"""A verdict, behind `since step 12,000`."""
IDLE: dict[IdleCause, str] = {
    "host_late": "host late",
    "sync": "synchronisation",
    "input": "input",
    "launch": "launch latency",
    "dependency": "between queued kernels",
    "unattributed": "unattributed",
}
"""Why a device is idle."""
WHAT: dict[Group, str] = {
    "step": "",
    "device": "the device's ",
    "phase": "phase ",
    "operator": "operator ",
    "kernel": "kernel ",
    "memory": "memory, ",
    "idle": "idle, ",
    "allocation": "memory of operator ",
}
"""A figure's group, before its name."""
WIDEST_NAME = 80


def straggler_sentence(found: Straggler) -> str:
    """Who is late, by how much, and why."""
    on = f" on {found.host}" if found.host else ""
    begin = f"Rank {found.rank}{on} is late: the others wait {duration(found.late_us)} a step for it"
    if found.reason is None:
        return f"{begin}. Nothing in its trace takes longer than in theirs."
    where = f", mostly in {found.where}" if found.where else ""
    return (
        f"{begin}, because of {WHY_LATE[found.reason]}, {duration(found.own_us)} a step against "
        f"{duration(found.others_us)}{where}."
    )


def since(change: Change) -> str:
    """What is not as it was, and since when: `since step 600 aten::sort takes 2.27 times the time: ...`."""
    begin = f"since step {change.step:,}"
    if isinstance(change, NewVerdict):
        return f"{begin} {SINCE[change.label]} ({change.label}; before: {change.before})"
    if isinstance(change, FurtherTimes):
        return f"{begin} {change.count} more times differ"
    name, level, now = _watched(change.what), change.before_us, change.now_us
    if not level:
        return f"{begin} there is {name}: {duration(now)} a step"
    if not now:
        return f"{begin} {name} is gone ({duration(level)} a step before)"
    ratio = now / level
    times = (
        f"{ratio:.3g} times the" if ratio >= 2 else f"{100 * abs(ratio - 1):.0f} % {'more' if ratio > 1 else 'less'}"
    )
    return f"{begin} {name} takes {times} time: {duration(level)} → {duration(now)} a step"


def _watched(what: Watched) -> str:
    name = shorten(printable(what.name), WIDEST_NAME)
    return {"phase": f"phase {name}", "operator": name}.get(what.kind, f"the {what.kind}")


def sentence(row: Row) -> str:
    """One change in words: `operator aten::mm is 31 % more: 1.2 ms → 1.57 ms (± 2.1 %)`."""
    what = f"{WHAT[row.group]}{figure(row)}"
    now, then = value(row.after, row.unit), value(row.before, row.unit)
    if row.outcome == "new":
        return f"{what} is new: {now}"
    if row.outcome == "gone":
        return f"{what} is gone: {then} before"
    return f"{what} is {percent(row) or row.outcome}: {then} → {now}{_noise(row)}"


def doubt(row: Row, limit: float) -> str:
    """That the limit may be passed all the same: `step: 31 % more may be noise, so a limit of 5 % decides little`."""
    known = "how far it scatters is not known" if row.high is None else f"{100 * row.high:.1f} % more may be noise"
    return f"{row.name}: {known}, so a limit of {100 * limit:g} % decides little; {MORE}"


def remark(row: Row) -> str:
    """What a comparison makes of a figure: `more`, `gone`, `within the noise`, `small`; nothing where both sides are
    alike."""
    if row.outcome == "unknown":
        return "noise unknown"
    if row.outcome != "same":
        return row.outcome
    if not row.more:
        return ""
    if row.low is not None and row.high is not None and row.low <= 0 <= row.high:
        return "within the noise"
    return "small" if is_small(row) else "may be chance"


def is_small(row: Row) -> bool:
    """Whether the difference is too small for a change, however certain."""
    return row.change is not None and abs(row.change) < SMALLEST.value


def is_worse(row: Row) -> bool:
    """Whether a change is for the worse: a device that is busy is the only thing of which more is better."""
    return row.outcome == "less" if row.name == "busy" else row.outcome in ("more", "new")


def figure(row: Row) -> str:
    """A figure's name as people read it."""
    return IDLE.get(row.name, row.name) if row.group == "idle" else row.name  # type: ignore[call-overload]


def interval(row: Row) -> str:
    """`+1.2 … +3.4 %`; nothing where the noise is not known."""
    return "" if row.low is None or row.high is None else f"{100 * row.low:+.1f} … {100 * row.high:+.1f} %"


def percent(row: Row) -> str:
    """`31.0 % more`."""
    return "" if row.change is None else f"{100 * abs(row.change):.1f} % {'more' if row.change > 0 else 'less'}"


def value(number: float | None, unit: Unit) -> str:
    """In its unit; nothing for what is not there."""
    return "" if number is None else {"us": duration, "bytes": size, "fraction": share}[unit](number)


def _noise(row: Row) -> str:
    if row.change is None or row.low is None or row.high is None or not row.noise:
        return ""
    return f" (± {100 * (row.high - row.low) / 2:.1f} %)"
