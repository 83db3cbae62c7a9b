"""Which of several numbers stands for a window."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harness.trace.figures import busiest, busy, is_unprofiled, step_us
from harness.trace.schema import StepTime
from tests.trace.compare.windows import GPU, report_of


@pytest.mark.parametrize(
    ("profiled", "unprofiled", "expected"),
    [(10.0, 8.0, 8.0), (10.0, None, 10.0), (None, 8.0, 8.0), (None, None, None), (10.0, 0.0, 10.0), (0.0, None, None)],
)
def test_a_step_takes_what_it_takes_without_the_profiler_where_that_is_known(
    profiled: float | None, unprofiled: float | None, expected: float | None
) -> None:
    """No step takes no time: 0 is what a trace without steps may tell."""
    times = StepTime(profiled_median_us=profiled, unprofiled_median_us=unprofiled)
    assert step_us(times) == expected
    assert is_unprofiled(times) == (expected is not None and expected == unprofiled)


def test_the_device_that_is_busy_for_most_of_a_step_stands_for_the_window() -> None:
    report = report_of(GPU, 0)
    (one,) = report.device
    idler, busier = replace(one, index=1, busy_fraction=0.0), replace(one, index=2, busy_fraction=0.99)
    several = replace(report, device=[idler, one, busier])
    assert busiest(several) == busier
    assert busy(several) == 0.99
    assert busiest(replace(report, device=[])) is busy(replace(report, device=[])) is None
