"""Nesting against torch's own algorithm, spelled out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.trace.measure.calls import nest

spans = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 25), st.integers(0, 12)), max_size=24)


def torchs_parents(start: list[int], end: list[int], lane: list[int]) -> dict[int, int]:
    """`EventList._populate_cpu_children`, on places of the sorted spans."""
    parents: dict[int, int] = {}
    open_spans: list[int] = []
    for i in range(len(start)):
        if i and lane[i] != lane[i - 1]:
            open_spans = []
        while open_spans:
            above = open_spans[-1]
            if start[i] >= end[above] or end[i] > end[above]:
                open_spans.pop()
            else:
                parents[i] = above
                break
        open_spans.append(i)
    return parents


@given(spans)
def test_callers_are_those_that_torch_finds_crossing_and_empty_spans_included(
    rows: list[tuple[int, int, int]],
):
    lane, start, length = (
        (np.array(column, np.int64) for column in zip(*rows, strict=True)) if rows else 3 * (np.zeros(0, np.int64),)
    )
    end = start + length
    calls = nest(start, end, lane)
    order = calls.event
    expected = torchs_parents(start[order].tolist(), end[order].tolist(), lane[order].tolist())
    assert {i: p for i, p in enumerate(calls.parent.tolist()) if p >= 0} == expected
    for i, parent in expected.items():
        assert calls.depth[i] == calls.depth[parent] + 1
    assert sorted(order.tolist()) == list(range(len(rows)))


@given(spans)
def test_sums_hold_everything_beneath(rows: list[tuple[int, int, int]]):
    if not rows:
        return
    lane, start, length = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    calls = nest(start, start + length, lane)
    own = np.arange(1, len(rows) + 1)
    total = calls.sums(own)
    assert np.array_equal(total - own, calls.child_sums(total))
    assert total[calls.parent < 0].sum() == own.sum()


def test_spans_of_two_threads_never_nest():
    calls = nest(np.array([0, 1]), np.array([10, 2]), np.array([0, 1]))
    assert calls.parent.tolist() == [-1, -1]
