"""Slices of one thread, whatever they are, become well bracketed lanes, and none is lost."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.timeline.lanes import Nested, nested

Spans = list[tuple[int, int, bool]]
spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 15), st.booleans()), max_size=40)


def lanes_of(slices: Spans) -> Nested:
    start, dur, flexible = (np.array([slice[i] for slice in slices], np.int64) for i in range(3))
    return nested(start, start + dur, flexible.astype(bool))


def drawn(slices: Spans) -> list[tuple[int, int, int, int]]:
    """What a reader that knows brackets alone makes of it: slice, start, end, lane."""
    brackets = lanes_of(slices).brackets
    stacks: dict[int, list[tuple[int, int]]] = {}
    clock: dict[int, int] = {}
    found = []
    for event, is_end, ts, lane in zip(*(column.tolist() for column in brackets), strict=True):
        assert ts >= clock.get(lane, 0), "time runs forward on each lane"
        clock[lane] = ts
        stack = stacks.setdefault(lane, [])
        if is_end:
            opened, start = stack.pop()
            assert opened == event, "the slice that began last ends first"
            found.append((event, start, ts, lane))
        else:
            stack.append((event, ts))
    assert not any(stacks.values())
    return sorted(found)


@given(spans)
def test_every_slice_is_drawn_once_where_it_began(slices: Spans) -> None:
    found = drawn(slices)
    assert [event for event, *_ in found] == list(range(len(slices)))
    assert [start for _, start, *_ in found] == [start for start, _, _ in slices]


@given(spans)
def test_only_flexible_slices_end_early_and_as_many_as_are_counted(slices: Spans) -> None:
    early = 0
    for (_, start, end, _), (begins, dur, flexible) in zip(drawn(slices), slices, strict=True):
        assert start <= end <= begins + dur
        early += end < begins + dur
        assert flexible or end == begins + dur
    assert lanes_of(slices).clipped == early


@given(spans)
def test_a_slice_leaves_its_thread_only_where_it_would_cross_another(slices: Spans) -> None:
    found = drawn(slices)
    assert lanes_of(slices).moved == sum(lane > 0 for *_, lane in found)
    own = [(start, start + dur) for start, dur, _ in slices]
    crossing = Counter(
        i
        for i, (start, end) in enumerate(own)
        for other, until in own
        if start < other < end < until or other < start < until < end
    )
    for event, *_, lane in found:
        assert lane == 0 or crossing[event]


def test_overlapping_kernels_keep_their_times_on_two_lanes() -> None:
    assert drawn([(0, 10, False), (5, 10, False)]) == [(0, 0, 10, 0), (1, 5, 15, 1)]


def test_a_python_frame_that_opens_a_span_ends_where_the_span_begins() -> None:
    assert drawn([(0, 6, True), (5, 10, False)]) == [(0, 0, 5, 0), (1, 5, 15, 0)]


def test_python_frames_that_close_a_span_end_with_it_and_with_each_other() -> None:
    assert drawn([(0, 10, False), (8, 6, True), (9, 4, True)]) == [(0, 0, 10, 0), (1, 8, 10, 0), (2, 9, 10, 0)]


def test_python_frames_of_two_threads_under_one_number_are_not_cut() -> None:
    assert drawn([(0, 10, True), (5, 10, True)]) == [(0, 0, 10, 0), (1, 5, 15, 1)]


def test_an_empty_slice_stands_after_the_slice_that_ends_there() -> None:
    assert drawn([(0, 5, False), (5, 0, False), (5, 5, False)]) == [(0, 0, 5, 0), (1, 5, 5, 0), (2, 5, 10, 0)]
