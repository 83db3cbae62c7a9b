"""Where windows lie, against torch's own schedule."""

from __future__ import annotations

import pytest
import torch.profiler
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerAction

from harness.record import Schedule
from harness.schedule import Window

schedules = st.builds(
    Schedule,
    wait=st.integers(0, 7),
    warmup=st.integers(0, 4),
    active=st.integers(1, 4),
    repeat=st.integers(0, 4),
    skip_first=st.integers(0, 9),
    skip_first_wait=st.booleans(),
)


def torch_windows(schedule: Schedule, steps: int) -> list[Window]:
    """The complete windows among ``steps`` steps, read off what torch's schedule says of each."""
    action = torch.profiler.schedule(
        wait=schedule.wait,
        warmup=schedule.warmup,
        active=schedule.active,
        repeat=schedule.repeat,
        skip_first=schedule.skip_first,
        skip_first_wait=schedule.skip_first_wait,
    )
    found: list[Window] = []
    warmup: int | None = None
    first: int | None = None
    for step in range(steps):
        said = action(step)
        if said is ProfilerAction.WARMUP:
            warmup = step if warmup is None else warmup
        elif said in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE):
            first = step if first is None else first
        if said is ProfilerAction.RECORD_AND_SAVE:
            assert first is not None
            found.append(Window(warmup=first if warmup is None else warmup, first=first, end=step + 1))
            warmup = first = None
    return found


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@settings(max_examples=400, deadline=None)
@given(schedule=schedules)
def test_the_next_window_is_the_one_that_torchs_schedule_records_next(schedule: Schedule) -> None:
    windows = torch_windows(schedule, steps=120)
    for step in range(60):
        expected = next((window for window in windows if window.warmup >= step), None)
        assert schedule.next_window(step) == expected, step


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
@settings(max_examples=200, deadline=None)
@given(schedule=schedules, step=st.integers(0, 200))
def test_the_schedule_given_to_torch_is_torchs_own(schedule: Schedule, step: int) -> None:
    theirs = torch.profiler.schedule(
        wait=schedule.wait,
        warmup=schedule.warmup,
        active=schedule.active,
        repeat=schedule.repeat,
        skip_first=schedule.skip_first,
        skip_first_wait=schedule.skip_first_wait,
    )
    assert schedule.to_torch()(step) is theirs(step)


@pytest.mark.parametrize(
    ("field", "value"),
    [("wait", -1), ("warmup", -1), ("active", 0), ("active", -1), ("repeat", -1), ("skip_first", -1)],
)
def test_an_impossible_count_is_named_with_its_value(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must be at least [01], not {value}$"):
        Schedule(**{"wait": 1, "warmup": 1, "active": 1, field: value})
