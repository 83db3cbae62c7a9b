"""How much of a job's time its windows may take."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.logdir.findings import findings_in
from harness.logdir.layout import step_of_window
from harness.logdir.scan import windows_in

GRACE_S = 60.0
"""A job that has run for less is not held to its budget: a percentage of a minute is less than one window costs, and
a short job wants the windows that its schedule promises. What they cost is counted all the same."""


SLOWEST = 10.0
"""Times a step of the job that recording one is taken to add at most, by the median of several."""
SLOWEST_ALONE = 1.0
"""The same of one step or two, whose median tells nothing of a step that is slow for a reason of its own; recording
with all options takes 0.4 to 1.0."""
RECOVERY_S = 6 * 3600.0
"""A job whose windows have cost too much waits so long for the next one at most: a stall that was none of the
profiler's, as of a machine that slept, must not end the profiling of a job for weeks. Windows are bounded while they
are recorded, and none costs as much as 1 % of this."""
PRICED_BY = 5
"""Windows whose median cost is the most that the next one is expected to cost; where the latest cost less, that."""


@dataclass
class Account:
    """What an earlier life of the job has used. Seconds."""

    ran_s: float = 0.0
    spent_s: float = 0.0
    latest_s: float = 0.0
    """The cost of the latest window."""


class OverheadBudget:
    """Holds the share of the job's time that is spent on windows under a limit.

    The next window may begin once the job has run long enough to pay for it as well, at the price of the latest.
    Every second counts: those of windows that the job paid for in its first minute, and in earlier lives.

    Args:
        limit: A fraction; None allows everything.
        account: Of the job's earlier lives.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, limit: float | None, account: Account | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.limit = limit
        account = account or Account()
        self._ran_before_s = account.ran_s
        self._spent_s = self._debt_s = 0.0
        self._costs_s = deque([account.latest_s], maxlen=PRICED_BY)
        self._clock = clock
        self._began = clock()
        self.charge(account.spent_s)

    def begin(self) -> None:
        """The job's first step begins; what was before it is not its time."""
        self._began = self._clock()

    def spend(self, cost_s: float) -> None:
        """A window has cost this much."""
        self._costs_s.append(cost_s)
        self.charge(cost_s)

    def charge(self, seconds: float) -> None:
        """Something besides the window itself, as showing what it found, has taken this long; less than nothing
        takes back what is counted twice."""
        self._spent_s += seconds
        self._debt_s += seconds
        if self.limit is not None:
            self._debt_s = min(self._debt_s, self.limit * (max(self._ran_s, GRACE_S) + RECOVERY_S))

    @property
    def overhead(self) -> float:
        """The share of the job's time so far."""
        ran_s = self._ran_s
        return self._spent_s / ran_s if ran_s > 0 else 0.0

    def allows_a_window(self) -> bool:
        """Whether another one can be paid for."""
        return self.wait_s == 0.0

    @property
    def wait_s(self) -> float:
        """How long it is until another one can be paid for, in seconds; 0 where it can now, infinity where never."""
        ran_s = self._ran_s
        if self.limit is None or ran_s < GRACE_S:
            return 0.0
        price_s = min(self._costs_s[-1], statistics.median(self._costs_s))
        if not self.limit:
            return math.inf if self._debt_s + price_s else 0.0
        # One that costs more than a whole recovery pays for comes after that all the same.
        due_s = min((self._debt_s + price_s) / self.limit, self._debt_s / self.limit + RECOVERY_S)
        return max(0.0, due_s - ran_s)

    @property
    def _ran_s(self) -> float:
        return self._ran_before_s + self._clock() - self._began


class _Window(msgspec.Struct):
    cost_us: float | None = None
    passed_over: dict[str, int] = {}


class _StepTime(msgspec.Struct):
    unprofiled_median_us: float | None = None


class _Findings(msgspec.Struct):
    """What of ``window.json`` is asked here."""

    schema_version: int
    window: _Window
    step_time: _StepTime


def added_us(usual: float, recorded: Sequence[float]) -> float:
    """What recording has added to steps that took so long, and usually take ``usual``, in all; in µs.

    By their median, of two the faster one, and never more than :data:`SLOWEST` or :data:`SLOWEST_ALONE` times a step:
    a step that is slow for a reason of its own, as an evaluation in it, is not on this account.
    """
    if not recorded:
        return 0.0
    most = SLOWEST if len(recorded) > 2 else SLOWEST_ALONE
    return len(recorded) * min(statistics.median_low(recorded) - usual, most * usual)


def account_of(profile: Path, first_step: int) -> Account:
    """What a job that goes on from ``first_step`` has used, as its published windows tell.

    It ran for its steps, at the median pace of its windows' unprofiled ones, and for what its windows cost.
    """
    found = list(_findings(profile, first_step))
    costs = [each.window.cost_us / 1e6 for each in found if each.window.cost_us is not None]
    paces = [each.step_time.unprofiled_median_us for each in found if each.step_time.unprofiled_median_us]
    pace_s = statistics.median(paces) / 1e6 if paces else 0.0
    return Account(ran_s=first_step * pace_s + sum(costs), spent_s=sum(costs), latest_s=costs[-1] if costs else 0.0)


def passed_over_before(profile: Path, first_step: int) -> dict[str, int]:
    """The cycles without a window up to the newest one before ``first_step``, by reason, as that one tells."""
    found = list(_findings(profile, first_step))
    return found[-1].window.passed_over if found else {}


def _findings(profile: Path, before: int) -> Iterator[_Findings]:
    for path in windows_in(profile):
        step = step_of_window(path.name)
        if step is not None and step < before and (found := findings_in(path, _Findings)) is not None:
            yield found
