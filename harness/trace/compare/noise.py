"""How far a time scatters, and whether two of them differ: statistics of a few windows of a few steps each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of many normal values."""
_NORMAL = NormalDist()


class Estimate(NamedTuple):
    """A value, its standard error, and the degrees of freedom from which the error is known; 0: it is not."""

    value: float
    error: float
    freedom: float


class Difference(NamedTuple):
    """Of two estimates, the second less the first, by Welch's test."""

    value: float
    low: float
    high: float
    """Ends of the interval that holds the true difference with the confidence asked for."""
    p: float
    """How often noise alone makes as large a difference; 1 where the noise is not known."""


def spread(values: Sequence[float]) -> float:
    """Standard deviation by the median absolute deviation, which one slow step does not move."""
    if len(values) < 2:
        return 0.0
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def variance(values: Sequence[float]) -> float:
    """Of a sample; 0 of one value. (That of `statistics` is exact and a hundred times as slow.)"""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def difference(before: Estimate, after: Estimate, confidence: float) -> Difference:
    """Welch's interval and p-value, two-sided; an infinite interval where one of the errors is unknown."""
    apart = after.value - before.value
    if not before.freedom or not after.freedom:
        return Difference(apart, -math.inf, math.inf, 1.0)
    error = math.hypot(before.error, after.error)
    if not error:
        return Difference(apart, apart, apart, 0.0 if apart else 1.0)
    freedom = error**4 / (before.error**4 / before.freedom + after.error**4 / after.freedom)
    reach = quantile(0.5 + confidence / 2, freedom) * error
    return Difference(apart, apart - reach, apart + reach, p_value(apart / error, freedom))


# Wallace (1959), "Bounds on normal approximations to Student's and the chi-square distributions", in place of
# scipy.special, whose import takes as long as all of `harness compare`. It errs towards noise: ends of a 95 % interval
# lie too far out, by 4 % at two degrees of freedom, 1 % at three and less beyond, 39 % at one; too near by no more than
# 1 in 10,000. p-values are right to 0.004 from two degrees on, to 0.016 at one.
def p_value(t: float, freedom: float) -> float:
    """Two-sided, of Student's t."""
    scale = (8 * freedom + 1) / (8 * freedom + 3)
    return 2 * (1 - _NORMAL.cdf(scale * math.sqrt(freedom * math.log1p(t * t / freedom))))


def quantile(probability: float, freedom: float) -> float:
    """Of Student's t, for a probability above a half."""
    z = _NORMAL.inv_cdf(probability) * (8 * freedom + 3) / (8 * freedom + 1)
    exponent = z * z / freedom
    return math.sqrt(freedom * math.expm1(exponent)) if exponent < 700 else math.inf


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which of them are no chance at this level for all of them together (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    found = [False] * len(p_values)
    for place, number in enumerate(order):
        if p_values[number] > level / (len(p_values) - place):
            break
        found[number] = True
    return found
