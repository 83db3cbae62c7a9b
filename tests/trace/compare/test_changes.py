"""What has changed in a run's life, since when, and what is no change."""

from __future__ import annotations

from typing import get_args

import pytest
from msgspec.structs import replace

from harness.report.words import SINCE, since
from harness.trace.compare.changes import Changes
from harness.trace.schema import VerdictLabel
from tests.trace.compare.windows import cpu_window, judged


def test_a_verdict_near_a_tie_has_to_be_confirmed_and_an_undetermined_one_changes_nothing() -> None:
    changes = Changes()
    said = [
        [since(change) for change in changes.take(report, step)]
        for step, report in enumerate(
            [
                judged(0, "compute-bound"),
                judged(1, "memory-bound", 0.51),
                judged(2, "compute-bound", 0.51),
                judged(3, "undetermined", 0.9),
                judged(4, "memory-bound", 0.51),
                judged(5, "memory-bound", 0.52),
            ]
        )
    ]
    assert [len(found) for found in said] == [0, 0, 0, 0, 0, 1]
    assert said[5][0].startswith("since step 4 ")


def test_an_operator_that_grows_is_said_once_with_the_step_at_which_it_began() -> None:
    changes = Changes()
    said: list[str] = []
    for number in range(12):
        slow = 400.0 if number >= 6 else 0.0
        wobble = 10.0 * (number % 3)
        report = cpu_window(100 * number, {"aten::mm": 1000 + wobble, "aten::sort": 300 + wobble + slow})
        said += [since(change) for change in changes.take(report, 100 * number)]
    growth = [text for text in said if "aten::sort" in text]
    assert growth == ["since step 600 aten::sort takes 2.27 times the time: 310 µs → 705 µs a step"]
    assert not [text for text in said if "aten::mm" in text]


def test_what_creeps_up_is_said_once_it_has_added_up() -> None:
    changes = Changes()
    found = [
        change
        for number in range(60)
        for change in changes.take(cpu_window(number, {"aten::mm": 1000 * 1.01**number}), number)
    ]
    (first, *_) = [change for change in found if "aten::mm" in since(change)]
    # 1.01^k passes a quarter over the median of the first five windows, at 2, with k = 25.
    assert first.step == 25


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([1000, 1010, 990, 1005, 1000, 3000, 1000, 1000], id="one window alone"),
        pytest.param([1000, 1400, 700, 1000, 1300, 1500, 1600, 700], id="within its own noise"),
        pytest.param([1000, 1000, 1000, 1000, 1000, 1150, 1150, 1150], id="by less than a quarter"),
    ],
)
def test_what_is_no_change_is_not_said(times: list[float]) -> None:
    changes = Changes()
    assert not [c for step, us in enumerate(times) for c in changes.take(cpu_window(step, {"aten::mm": us}), step)]


def test_a_window_of_other_options_moves_no_reference() -> None:
    changes = Changes()
    for step in range(10):
        report = cpu_window(step, {"aten::mm": 9000.0 if step in (6, 7, 8) else 1000.0})
        trigger = "request" if step in (6, 7, 8) else "schedule"
        assert not changes.take(replace(report, window=replace(report.window, trigger=trigger)), step)


def test_every_verdict_has_its_sentence() -> None:
    assert set(SINCE) | {"undetermined"} == set(get_args(VerdictLabel))
