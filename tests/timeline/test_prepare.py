"""A prepared timeline holds all of the file, where the file says it is, and what the harness found in it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.report.words import IDLE
from harness.timeline.prepare import TIMELINE, Facts, prepare
from harness.trace import TraceError, analyze
from harness.trace import read as read_trace
from tests.timeline.packets import Slice, Timeline, read
from tests.trace.conftest import EVERYONES, RECORDED, allocation, kernel, op, python, recorded, runtime, stem
from tests.trace.corpus import ERROR, Case, cases

FOUND = ("steps", "idle")


def prepared(source: Path, folder: Path) -> tuple[Timeline, Facts]:
    facts = prepare(source, folder)
    return read(folder / TIMELINE), facts


def of_events(folder: Path, events: list[dict[str, Any]], **header: Any) -> tuple[Timeline, Facts]:
    path = folder / "trace.json"
    path.write_text(json.dumps({**header, "traceEvents": events}))
    return prepared(path, folder)


def of_file(timeline: Timeline) -> list[Slice]:
    return [slice for slice in timeline.slices if slice.category not in FOUND]


def nanoseconds(us: float) -> int:
    return round((us - int(us)) * 1000) + int(us) * 1000


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_every_slice_of_the_file_is_drawn(path: Path, tmp_path: Path) -> None:
    timeline, facts = prepared(path, tmp_path)
    events = json.loads(gzip.decompress(path.read_bytes()), parse_float=str, parse_int=str)["traceEvents"]
    expected = Counter((e["name"], e.get("cat", "unknown")) for e in events if e["ph"] == "X")
    assert Counter((slice.name, slice.category) for slice in of_file(timeline)) == expected
    assert facts.slices == len(timeline.slices)
    assert facts.file_slices == expected.total()
    assert facts.lost == 0


@pytest.mark.parametrize("path", RECORDED, ids=stem)
def test_slices_stand_where_the_file_says_with_what_it_says_of_them(path: Path, tmp_path: Path) -> None:
    timeline, facts = prepared(path, tmp_path)
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e["ph"] == "X"]
    expected = sorted(
        (nanoseconds(e["ts"]) + facts.clock, nanoseconds(e["dur"]), e["name"], json.dumps(e.get("args") or {}))
        for e in events
        if e["cat"] != "python_function"
    )
    rest = [slice for slice in of_file(timeline) if slice.category != "python_function"]
    assert sorted((s.ts, s.dur, s.name, json.dumps(s.args)) for s in rest) == expected
    frames = sorted((nanoseconds(e["ts"]), e["name"]) for e in events if e["cat"] == "python_function")
    assert sorted((s.ts, s.name) for s in timeline.slices if s.category == "python_function") == frames


@pytest.mark.parametrize("path", RECORDED, ids=stem)
def test_an_arrow_runs_from_each_launch_to_what_it_launched(path: Path, tmp_path: Path) -> None:
    timeline, facts = prepared(path, tmp_path)
    ends: dict[int, list[Slice]] = {}
    for slice in timeline.slices:
        for id in slice.flows:
            ends.setdefault(id, []).append(slice)
    assert len(ends) == facts.arrows
    assert all(len(both) == 2 for both in ends.values())
    launched = {
        (both[0].args["correlation"], both[1].args["correlation"])
        for both in ends.values()
        if all("correlation" in end.args for end in both)
    }
    assert all(launch == kernel for launch, kernel in launched)
    on_device = {s.args["correlation"] for s in timeline.slices if s.category in ("kernel", "gpu_memcpy", "gpu_memset")}
    calls = {s.args["correlation"] for s in timeline.slices if s.category in ("cuda_runtime", "cuda_driver")}
    assert {kernel for _, kernel in launched} >= on_device & calls


def test_forward_operators_point_to_their_backward(tmp_path: Path) -> None:
    timeline, _ = prepared(recorded("overhead_mlp"), tmp_path)
    ends: dict[int, list[Slice]] = {}
    for slice in timeline.slices:
        for id in slice.flows if slice.category == "cpu_op" else ():
            ends.setdefault(id, []).append(slice)
    pairs = [both for both in ends.values() if len(both) == 2]
    assert len(pairs) == 192
    assert all(forward.args["Sequence number"] == backward.args["Sequence number"] for forward, backward in pairs)


def test_kernels_that_overlap_on_a_stream_are_moved_and_keep_their_row(tmp_path: Path) -> None:
    timeline, facts = prepared(recorded("lab5_cnn"), tmp_path)
    assert facts.moved == 15
    kernels = [slice for slice in timeline.slices if slice.category == "kernel"]
    assert len(kernels) == 395
    assert len({slice.track for slice in kernels}) == 2
    assert {timeline.path(slice.track) for slice in kernels} == {"GPU 0 · NVIDIA H200 / stream 7 compute"}


def test_rows_are_named_and_the_host_comes_first(tmp_path: Path) -> None:
    timeline, _ = prepared(recorded("ddp_straggler_rank1.rank0"), tmp_path)
    rows = [row.split(" / ") for row in timeline.rows()]
    assert [row for group, row in rows if group == "CPU · python 976"] == [
        "steps",
        "thread 976 · main",
        "thread 997 · pt_autograd_0",
        "thread 1447045440",
    ]
    assert [row for group, row in rows if group == "GPU 0 · NVIDIA H200"] == [
        "idle",
        "stream 7 spans",
        "stream 7 compute",
        "stream 17 spans",
        "stream 17 communication",
    ]
    assert list(dict.fromkeys(group for group, _ in rows)) == ["CPU · python 976", "GPU 0 · NVIDIA H200", "Profiler"]


def test_steps_and_idle_gaps_are_those_of_the_report(tmp_path: Path) -> None:
    timeline, facts = prepared(recorded("lab5_cnn"), tmp_path)
    report = analyze(read_trace(recorded("lab5_cnn")))
    steps = [(s.name, s.ts - facts.start, s.dur) for s in timeline.slices if s.category == "steps"]
    assert steps == [
        (f"step {step.number}", round(step.start_us * 1000), round(step.host_us * 1000)) for step in report.steps
    ]
    idle = {(s.ts - facts.start, s.dur): s for s in timeline.slices if s.category == "idle"}
    assert sum(slice.dur for slice in idle.values()) == round(report.device[0].idle_us * 1000)
    for gap in report.gaps:
        drawn = idle[round(gap.start_us * 1000), round(gap.duration_us * 1000)]
        assert drawn.name == f"idle: {IDLE[gap.reason]}"
        assert drawn.args["ended by"] == gap.before
        assert drawn.args.get("step") == gap.step
        assert sum(drawn.args["reasons (µs)"].values()) == pytest.approx(gap.duration_us)


def test_memory_is_a_curve_of_each_allocator(tmp_path: Path) -> None:
    timeline, _ = prepared(recorded("eager_transformer_mem"), tmp_path)
    report = analyze(read_trace(recorded("eager_transformer_mem")))
    assert report.memory is not None
    peaks = {timeline.path(track): max(value for _, value in curve) for track, curve in timeline.counters.items()}
    device = next(pool for pool in report.memory.pools if pool.device_type == "device")
    host = next(pool for pool in report.memory.pools if pool.device_type == "cpu")
    assert peaks["GPU 0 · NVIDIA H200 / memory allocated"] == device.peak_allocated_bytes
    assert peaks["GPU 0 · NVIDIA H200 / memory reserved"] == device.peak_reserved_bytes
    assert [peaks[row] for row in peaks if row.startswith("CPU")] == [host.peak_allocated_bytes]


def test_frames_of_a_window_that_opens_within_them_are_cut_and_spans_are_not(tmp_path: Path) -> None:
    timeline, facts = prepared(recorded("eager_transformer_mem"), tmp_path)
    assert (facts.moved, facts.clipped) == (0, 76)
    assert len([slice for slice in timeline.slices if slice.name == "training_step"]) == 6


def test_times_from_1970_keep_their_nanoseconds(tmp_path: Path) -> None:
    timeline, facts = of_events(
        tmp_path, [op("aten::add", 1682725897226747, 7, 1), op("aten::mul", 1682725897226754, 1, 2)]
    )
    assert [(slice.ts, slice.dur) for slice in of_file(timeline)] == [
        (1682725897226747000, 7000),
        (1682725897226754000, 1000),
    ]
    assert facts.moved == 0


def test_times_before_zero_are_shifted_and_the_shift_is_told(tmp_path: Path) -> None:
    timeline, facts = of_events(tmp_path, [op("aten::add", -5.5, 7, 1), op("aten::mul", 3, 1, 2)])
    assert [slice.ts for slice in of_file(timeline)] == [0, 8500]
    assert (facts.clock, facts.start) == (5500, 0)


def test_arrows_hold_on_to_slices_that_are_moved(tmp_path: Path) -> None:
    events = [runtime("cudaLaunchKernel", 0, 1, 1), runtime("cudaLaunchKernel", 2, 1, 2)]
    events += [kernel("a", 10, 10, 1), kernel("b", 15, 10, 2)]
    for ts, ended, correlation in ((0, 10, 1), (2, 15, 2)):
        common = {"cat": "ac2g", "name": "ac2g", "id": correlation}
        events += [common | {"ph": "s", "pid": 1, "tid": 1, "ts": ts}]
        events += [common | {"ph": "f", "pid": 0, "tid": 7, "ts": ended, "bp": "e"}]
    timeline, facts = of_events(tmp_path, events)
    flows = {slice.name: slice.flows for slice in timeline.slices if slice.category == "kernel"}
    assert (facts.moved, facts.arrows) == (1, 2)
    assert flows == {"a": [1], "b": [2]}
    assert [slice.flows for slice in timeline.slices if slice.category == "cuda_runtime"] == [[1], [2]]


Launches = list[tuple[int, int, int, int]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 20), st.integers(0, 12), st.integers(7, 8)),
        max_size=20,
        unique_by=(lambda launch: launch[0], lambda launch: (launch[1], launch[3])),
    )
)
def test_whatever_overlaps_is_drawn_with_its_arrows(tmp_path: Path, launches: Launches) -> None:
    """Each tuple: when it is launched, when it runs, for how long, and on which stream."""
    events: list[dict[str, Any]] = [runtime("cudaLaunchKernel", 0, 100, 0)]
    for id, (launched, starts, lasts, stream) in enumerate(launches, start=1):
        common = {"cat": "ac2g", "name": "ac2g", "id": id}
        events += [runtime("cudaLaunchKernel", launched, 3, id), kernel("k", starts, lasts, id, stream=stream)]
        events += [common | {"ph": "s", "pid": 1, "tid": 1, "ts": launched}]
        events += [common | {"ph": "f", "pid": 0, "tid": stream, "ts": starts, "bp": "e"}]
    timeline, facts = of_events(tmp_path, events)
    drawn = {(s.args["correlation"], s.category): s for s in of_file(timeline)}
    for id, (launched, starts, lasts, stream) in enumerate(launches, start=1):
        launch, found = drawn[id, "cuda_runtime"], drawn[id, "kernel"]
        assert (launch.ts, launch.dur) == (launched * 1000, 3000)
        assert (found.ts, found.dur) == (starts * 1000, lasts * 1000)
        assert f"stream {stream}" in timeline.path(found.track)
        assert len(launch.flows) == 1
        assert launch.flows == found.flows
    assert facts.arrows == len(launches)
    assert facts.file_slices == 2 * len(launches) + 1


def test_every_phase_that_is_not_drawn_is_said(tmp_path: Path) -> None:
    _, facts = of_events(tmp_path, [op("aten::add", 1, 1, 1), {"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 2}])
    assert facts.notes == ["1 events of phase C are not drawn"]


def test_spots_are_steps_and_the_longest_calls(tmp_path: Path) -> None:
    _, facts = of_events(
        tmp_path, [kernel("k", 10, 2, 1), kernel("k", 20, 5, 2), op("aten::mm", 5, 3, 1), python("f", 1, 1)]
    )
    assert facts.spots["kernel"] == {"k": (20_000, 5_000)}
    assert facts.spots["operator"] == {"aten::mm": (5_000, 3_000)}


def test_allocator_events_make_a_curve_and_no_slice(tmp_path: Path) -> None:
    timeline, _ = of_events(tmp_path, [op("aten::empty", 1, 5, 1), allocation(2, 512, 512), allocation(4, -512, 0)])
    assert {timeline.path(track): curve for track, curve in timeline.counters.items()} == {
        "GPU 0 / memory allocated": [(2_000, 512), (4_000, 0)],
        "GPU 0 / memory reserved": [(2_000, 2048), (4_000, 0)],
    }
    assert not timeline.instants


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_damaged_files_are_drawn_as_far_as_they_can_be_read(case: Case, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(case.data)
    if case.outcome == ERROR:
        with pytest.raises(TraceError) as of_report:
            read_trace(path, max_json_bytes=64 * 2**20)
        with pytest.raises(TraceError) as of_timeline:
            prepare(path, tmp_path, max_json_bytes=64 * 2**20)
        assert str(of_timeline.value) == str(of_report.value)
        return
    trace = read_trace(path, max_json_bytes=64 * 2**20)
    facts = prepare(path, tmp_path, max_json_bytes=64 * 2**20)
    timeline = read(tmp_path / TIMELINE)
    assert len(of_file(timeline)) == facts.file_slices == len(trace)
    assert facts.lost == trace.lost_events
    assert facts.notes[: len(trace.warnings)] == list(trace.warnings)
