"""Columns of files of every age and maker."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.trace import TraceError, analyze, read
from harness.trace.file.decode import decode
from harness.trace.file.reader import Kind, columns
from tests.trace.conftest import (
    EVERYONES,
    THIRD_PARTY,
    Write,
    allocation,
    annotation,
    kernel,
    op,
    recorded,
    stem,
)

THREE_MONTHS_US = 92 * 86400 * 10**6


def file_of(timestamp: str) -> bytes:
    event = f'{{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": {timestamp}, "dur": 1.001}}'
    return f'{{"schemaVersion": 1, "traceEvents": [{event}]}}'.encode()


@given(st.integers(0, THREE_MONTHS_US), st.integers(0, 999))
def test_timestamps_since_the_base_time_are_exact_nanoseconds(whole: int, fraction: int):
    trace = columns(decode(file_of(f"{whole}.{fraction:03}")), source=Path("x"))
    assert trace.ts.tolist() == [whole * 1000 + fraction]
    assert trace.dur.tolist() == [1001]


@given(st.integers(1_600_000_000_000_000, 1_900_000_000_000_000), st.integers(0, 999))
def test_timestamps_since_1970_are_exact_nanoseconds(whole: int, fraction: int):
    """A double there holds a quarter of a microsecond."""
    trace = columns(decode(file_of(f"{whole}.{fraction:03}")), source=Path("x"))
    assert trace.ts.tolist() == [whole * 1000 + fraction]


@given(st.integers(1_600_000_000_000_000, 1_900_000_000_000_000))
def test_whole_microseconds_since_1970_are_exact_nanoseconds(whole: int):
    """In nanoseconds, a double there holds only every 256th."""
    trace = columns(decode(file_of(str(whole))), source=Path("x"))
    assert trace.ts.tolist() == [whole * 1000]


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_every_event_is_counted_by_its_category_and_read_as_it_is_in_the_file(path: Path):
    document = json.loads(gzip.decompress(path.read_bytes()).decode("utf-8", "replace"), strict=False)
    events = document["traceEvents"]
    trace = read(path)
    expected: dict[str, int] = {}
    for event in events:
        expected[event.get("cat", "unknown")] = expected.get(event.get("cat", "unknown"), 0) + 1
    assert trace.categories == expected
    complete = [event for event in events if event["ph"] == "X"]
    assert len(trace) == len(complete)
    assert [trace.names[i] for i in trace.name.tolist()] == [event["name"] for event in complete]
    assert np.allclose(trace.dur, [event["dur"] * 1000 for event in complete], atol=0.51)
    assert [trace.threads[i].tid for i in trace.thread.tolist()] == [event["tid"] for event in complete]
    arguments = [event.get("args") or {} for event in complete]
    assert trace.correlation.tolist() == [a.get("correlation", -1) for a in arguments]
    assert trace.external.tolist() == [a.get("External id") or a.get("external id") or 0 for a in arguments]
    assert len(trace.allocations.ts) == sum(event["name"] == "[memory]" for event in events)


def test_files_of_2021_have_the_same_kinds():
    path = THIRD_PARTY / "kineto_resnet50_2021.pt.trace.json.gz"
    if not path.exists():
        pytest.skip("third-party traces are not here")
    trace = read(path)
    assert len(trace.of(Kind.OPERATOR)) == 23646
    assert len(trace.of(Kind.KERNEL)) == 8772
    assert set(trace.stream[trace.of(Kind.KERNEL)].tolist()) <= set(range(64))
    assert next(row for row in analyze(trace).operators if row.name == "aten::conv2d").device_time_us > 0


def test_plain_and_compressed_and_concatenated_files_are_the_same_trace(tmp_path: Path):
    compressed = recorded("matmul_64").read_bytes()
    text = gzip.decompress(compressed)
    (tmp_path / "plain.json").write_bytes(text)
    (tmp_path / "two.json.gz").write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]))
    expected = read(recorded("matmul_64"))
    for name in ("plain.json", "two.json.gz"):
        trace = read(tmp_path / name)
        assert trace.names == expected.names
        assert np.array_equal(trace.ts, expected.ts)
        assert trace.json_bytes == expected.json_bytes == len(text)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path):
    (tmp_path / "list.json").write_text(json.dumps([op("aten::add", 0, 1, 1)]))
    assert len(read(tmp_path / "list.json")) == 1


def test_strings_for_lanes_and_every_phase_are_read(write: Write):
    odd = [
        {"ph": phase, "ts": 1.5, "pid": "Spans", "tid": "", "name": "x", "cat": "fwdbwd", "id": 1}
        for phase in "sftBEbneCPRNODv"
    ]
    trace = write([*odd, kernel("k", 0, 1, 1) | {"tid": "stream 7", "args": {}}])
    assert trace.categories["fwdbwd"] == len(odd)
    assert trace.stream.tolist() == [7]
    assert trace.device.tolist() == [0]


def test_allocator_events_are_in_order_of_time(write: Write):
    trace = write([allocation(9, 5, 15), allocation(3, 10, 10), annotation("a", 0, 20)])
    assert trace.allocations.ts.tolist() == [3000, 9000]
    assert trace.allocations.bytes.tolist() == [10, 5]


def test_an_odd_header_costs_a_warning_and_not_the_file(write: Write):
    trace = write([annotation("a", 0, 20)], deviceProperties="none", distributedInfo={"rank": "first"})
    assert len(trace) == 1
    assert [warning.split()[0] for warning in trace.warnings] == ["deviceProperties", "distributedInfo"]


def test_negative_durations_count_as_empty_and_are_told(write: Write):
    trace = write([annotation("a", 5, -3)])
    assert trace.dur.tolist() == [0]
    assert trace.warnings == ("1 events of negative duration count as empty",)


@pytest.mark.parametrize("content", [b"", b"not json", b'{"traceEvents": 3}', b"\x1f\x8bgarbage", b"[1, 2]"])
def test_what_is_no_trace_is_an_error_of_one_line_with_its_name(tmp_path: Path, content: bytes):
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"broken\.json") as error:
        read(path)
    assert "\n" not in str(error.value)


def test_what_cannot_be_opened_is_an_error_of_one_line(tmp_path: Path):
    with pytest.raises(TraceError, match="No such file"):
        read(tmp_path / "missing.json")
    with pytest.raises(TraceError, match="directory"):
        read(tmp_path)


def test_reading_leaves_the_collector_as_it_was():
    import gc

    assert gc.isenabled()
    read(recorded("matmul_64"))
    assert gc.isenabled()
    gc.disable()
    try:
        read(recorded("matmul_64"))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_window_without_any_event_is_reported_as_empty(write: Write):
    report = analyze(write([]))
    assert report.window.warnings == ["the trace holds no complete event"]
    assert (report.operators, report.device, report.steps) == ([], [], [])
