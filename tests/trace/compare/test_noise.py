"""The statistics of few windows, against tables and against scipy."""

import math
import random

import numpy as np
import pytest
from scipy import special

from harness.trace.compare.noise import Estimate, difference, holm, p_value, quantile, spread


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [(2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (100, 1.9840)],  # tables of Student's t, 0.975
)
def test_quantiles_are_students(freedom: float, expected: float) -> None:
    found = quantile(0.975, freedom)
    assert found == pytest.approx(expected, rel=0.05)
    assert found >= expected * 0.999  # never narrower
    assert p_value(found, freedom) == pytest.approx(0.05, rel=1e-6)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    draw = random.Random(3)
    held = 0
    for _ in range(2000):
        sides = []
        for count in (5, 9):
            values = [draw.gauss(10.0, 1.0) for _ in range(count)]
            mean = sum(values) / count
            deviation = math.sqrt(sum((v - mean) ** 2 for v in values) / (count - 1))
            sides.append(Estimate(mean, deviation / math.sqrt(count), count - 1))
        found = difference(*sides, 0.95)
        held += found.low <= 0 <= found.high
    assert held / 2000 == pytest.approx(0.95, abs=0.02)


def test_noise_that_is_not_known_proves_nothing() -> None:
    found = difference(Estimate(1.0, 0.0, 0), Estimate(100.0, 0.0, 4), 0.95)
    assert (found.low, found.high, found.p) == (-math.inf, math.inf, 1.0)


def test_holm_stops_at_the_first_that_may_be_chance() -> None:
    assert holm([0.04, 0.001, 0.03], 0.05) == [False, True, False]
    assert holm([0.01, 0.001, 0.02], 0.05) == [True, True, True]
    assert holm([], 0.05) == []


def test_one_slow_step_moves_no_spread() -> None:
    assert spread([10.0, 10.1, 9.9, 10.0, 99.0]) == pytest.approx(0.148, abs=0.01)


FREEDOMS = [1 + step / 7 for step in range(7 * 9)] + [10.0, 33.3, 100.0, 1e3, 1e4, 1e6]
"""Welch's degrees of freedom are no whole numbers."""


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_an_interval_is_never_too_narrow_and_little_too_wide(freedom: float) -> None:
    ratio = quantile(0.975, freedom) / special.stdtrit(freedom, 0.975)
    assert ratio >= 1 - 1e-4
    assert ratio <= 1.0115 if freedom >= 3 else ratio <= 1.041 if freedom >= 2 else ratio <= 1.39


@pytest.mark.parametrize("freedom", FREEDOMS)
def test_p_values_are_those_of_scipy_to_what_is_stated(freedom: float) -> None:
    for t in np.linspace(0, 40, 200).tolist():
        exact = 2 * special.stdtr(freedom, -t)
        assert p_value(t, freedom) == p_value(-t, freedom) == pytest.approx(exact, abs=0.004 if freedom >= 2 else 0.016)


@pytest.mark.parametrize("freedom", [1.0, 1.3, 2.5, 7.7, 1e4])
def test_a_p_value_and_a_quantile_undo_each_other(freedom: float) -> None:
    for probability in (0.9, 0.975, 0.995):
        assert p_value(quantile(probability, freedom), freedom) == pytest.approx(2 * (1 - probability), rel=1e-6)
