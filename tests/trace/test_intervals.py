"""Unions and overlaps against a count of every nanosecond."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.trace.measure.intervals import totals_by_group, union

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def columns(spans: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    start = np.array([s for s, _ in spans], np.int64)
    return start, start + np.array([d for _, d in spans], np.int64)


def seconds(spans: list[tuple[int, int]]) -> set[int]:
    return {t for start, length in spans for t in range(start, start + length)}


@given(intervals)
def test_a_union_covers_each_moment_once(spans: list[tuple[int, int]]):
    found = union(*columns(spans))
    assert found.total == len(seconds(spans))
    assert np.all(found.start < found.end)
    assert np.all(found.start[1:] > found.end[:-1])


@given(intervals, intervals)
def test_an_overlap_is_the_moments_in_both(one: list[tuple[int, int]], other: list[tuple[int, int]]):
    a, b = union(*columns(one)), union(*columns(other))
    assert a.overlap(b) == b.overlap(a) == len(seconds(one) & seconds(other))


@given(intervals, st.integers(-5, 90), st.integers(0, 40))
def test_within_counts_what_a_window_holds(spans: list[tuple[int, int]], start: int, length: int):
    found = union(*columns(spans)).within(np.array([start]), np.array([start + length]))
    assert found[0] == len(seconds(spans) & set(range(start, start + length)))


@given(intervals)
def test_spans_and_their_gaps_fill_the_time_between_first_and_last(spans: list[tuple[int, int]]):
    found = union(*columns(spans))
    if len(found.start):
        assert found.total + found.gaps().total == found.end[-1] - found.start[0]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 60), st.integers(0, 20)), max_size=12))
def test_groups_are_unions_of_their_own(rows: list[tuple[int, int, int]]):
    start, end = columns([(s, d) for _, s, d in rows])
    group = np.array([g for g, _, _ in rows], np.int64)
    expected = [len(seconds([(s, d) for g, s, d in rows if g == wanted])) for wanted in range(3)]
    assert totals_by_group(start, end, group, 3).tolist() == expected
