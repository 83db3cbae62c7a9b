"""How much of a job's time its windows may take."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.files import read_regular
from harness.publish.staging import FINDINGS
from harness.run import step_of_window

GRACE_S = 60.0
"""A job that has run for less is not held to its budget: a percentage of a minute is less than one window costs, and
a short job wants the windows that its schedule promises. What they cost is counted all the same."""


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
        self._account = account or Account()
        self._clock = clock
        self._began = clock()

    def begin(self) -> None:
        """The job's first step begins; what was before it is not its time."""
        self._began = self._clock()

    def spend(self, cost_s: float) -> None:
        """A window has cost this much."""
        self._account.spent_s += cost_s
        self._account.latest_s = cost_s

    def charge(self, seconds: float) -> None:
        """Something besides the window itself, as showing what it found, has taken this long; less than nothing
        takes back what is counted twice."""
        self._account.spent_s += seconds

    @property
    def overhead(self) -> float:
        """The share of the job's time so far."""
        ran_s = self._ran_s
        return self._account.spent_s / ran_s if ran_s > 0 else 0.0

    def allows_a_window(self) -> bool:
        """Whether another one can be paid for."""
        ran_s = self._ran_s
        if self.limit is None or ran_s < GRACE_S:
            return True
        return self._account.spent_s + self._account.latest_s <= self.limit * ran_s

    @property
    def _ran_s(self) -> float:
        return self._account.ran_s + self._clock() - self._began


class _Window(msgspec.Struct):
    cost_us: float | None = None


class _StepTime(msgspec.Struct):
    unprofiled_median_us: float | None = None


class _Findings(msgspec.Struct):
    """What of ``window.json`` is asked here."""

    window: _Window
    step_time: _StepTime


def account_of(profile: Path, first_step: int) -> Account:
    """What a job that goes on from ``first_step`` has used, as its published windows tell.

    It ran for its steps, at the median pace of its windows' unprofiled ones, and for what its windows cost.
    """
    found = list(_findings(profile, first_step))
    costs = [each.window.cost_us / 1e6 for each in found if each.window.cost_us is not None]
    paces = [each.step_time.unprofiled_median_us for each in found if each.step_time.unprofiled_median_us]
    pace_s = statistics.median(paces) / 1e6 if paces else 0.0
    return Account(
        ran_s=first_step * pace_s + sum(costs),
        spent_s=sum(costs),
        latest_s=costs[-1] if costs else 0.0,
    )


def _findings(profile: Path, before: int) -> Iterator[_Findings]:
    for path in sorted(profile.glob(f"window_*/{FINDINGS}")):
        step = step_of_window(path.parent.name)
        if step is None or step >= before:
            continue
        try:
            yield msgspec.json.decode(read_regular(path), type=_Findings)
        except (OSError, msgspec.MsgspecError):
            continue
