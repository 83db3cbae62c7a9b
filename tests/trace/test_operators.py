"""Rows against what `key_averages()` said when the traces were recorded."""

import re
from typing import Any

import pytest

from harness.trace import analyze, read
from harness.trace.file.columns import Kind
from harness.trace.schema import Operator
from tests.trace.conftest import TRACES, TRUTH, Write, allocation, annotation, kernel, op, recorded, runtime

MICROSECOND = 1e-3  # what a double leaves of microseconds


def rows_of(name: str) -> list[Operator]:
    return analyze(read(recorded(name))).operators


def is_device_copy_of_an_annotation(row: dict[str, Any]) -> bool:
    return row["is_user_annotation"] and row["cpu_time_us"] == 0 and row["device_time_us"] > 0


@pytest.mark.parametrize("name", TRUTH)
def test_every_row_of_key_averages_is_there_with_its_count_times_and_memory(name: str):
    """To the nanosecond, where a microsecond is asked. Truth keeps one row for each name, so an annotation's
    device copy has replaced the host's there; it is skipped, and asked of the printed tables below."""
    rows = {(row.name, row.is_annotation): row for row in rows_of(name)}
    for expected in TRUTH[name]["key_averages"]:
        if is_device_copy_of_an_annotation(expected):
            continue
        row = rows[expected["name"], expected["is_user_annotation"]]
        assert row.count == expected["count"], row.name
        assert row.device_memory_bytes == expected["device_memory_bytes"], row.name
        assert row.self_device_memory_bytes == expected["self_device_memory_bytes"], row.name
        for field in ("cpu_time_us", "self_cpu_time_us", "device_time_us", "self_device_time_us"):
            assert getattr(row, field) == pytest.approx(expected[field], abs=MICROSECOND), (row.name, field)


@pytest.mark.parametrize("name", TRUTH)
def test_there_are_no_rows_that_key_averages_has_not(name: str):
    known = {row["name"] for row in TRUTH[name]["key_averages"]}
    assert {row.name for row in rows_of(name)} <= known


@pytest.mark.parametrize("name", TRUTH)
def test_device_copies_of_annotations_are_no_device_time(name: str):
    """key_averages() is wrong here: its device rows hold `gpu_user_annotation` events as well, which span the
    kernels that are there already. The kernels, copies and memsets of the file are the proof: they alone add
    up to the device rows without annotations, and torch's total exceeds them by the annotations' own time."""
    trace = read(recorded(name))
    from_events = int(trace.dur[trace.on_device].sum()) / 1000
    torchs = sum(row["self_device_time_us"] for row in TRUTH[name]["key_averages"] if row["cpu_time_us"] == 0)
    spans = sum(row["device_time_us"] for row in TRUTH[name]["key_averages"] if is_device_copy_of_an_annotation(row))
    ours = sum(row.device_time_us for row in rows_of(name) if row.device_type == "device")
    assert ours == pytest.approx(from_events, abs=MICROSECOND)
    assert torchs - spans == pytest.approx(from_events, abs=0.1)
    assert spans > 0


PRINTED = ("lab5_cnn", "lab5_cnn_mem", "lab5_gpt_tiny")
UNIT = {"us": 1.0, "ms": 1e3, "s": 1e6, "B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}


def printed_rows(name: str) -> list[dict[str, str]]:
    """The rows of a printed table, by column. Memory has a space before its unit."""
    lines = (TRACES / f"{name}.key_averages.txt").read_text().splitlines()
    header, *rows = [re.split(r" {2,}", line.strip()) for line in lines if line[:3] not in ("---", "Sel")]
    return [dict(zip(header, row, strict=True)) for row in rows]


def printed(value: str) -> tuple[float, float]:
    """A printed time or size in µs or bytes, and half of its last digit."""
    number, unit = re.fullmatch(r"(-?[\d.]+) ?(\w+)", value).groups()
    digits = len(number.partition(".")[2])
    return float(number) * UNIT[unit], 0.5001 * 10**-digits * UNIT[unit]


COLUMNS = {
    "Self CPU": "self_cpu_time_us",
    "CPU total": "cpu_time_us",
    "Self CUDA": "self_device_time_us",
    "CUDA total": "device_time_us",
    "CPU Mem": "cpu_memory_bytes",
    "Self CPU Mem": "self_cpu_memory_bytes",
    "CUDA Mem": "device_memory_bytes",
    "Self CUDA Mem": "self_device_memory_bytes",
}


@pytest.mark.parametrize("name", PRINTED)
def test_printed_tables_are_reproduced_in_every_digit(name: str):
    """Annotations are in them twice, once for the host; the device's copy is the one without CPU time.

    One cell of each table is wrong: torch before 2.14 also gave an `overhead` event the kernels of the
    operator that it interrupted (2.14 skips them, autograd/profiler.py: "would otherwise inflate reported
    device time"), so they are twice in the device total of the training_step around it. The raw events prove
    it: the excess is the time of the kernels that this operator's `External id` names, to the last digit.
    """
    rows = rows_of(name)
    twice = time_of_kernels_counted_for_overhead(name)
    for line in printed_rows(name):
        shown = line["Name"]
        on_host = printed(line["CPU total"])[0] > 0
        matching = [
            row
            for row in rows
            if (row.name == shown or (shown.endswith("...") and row.name.startswith(shown[:-3])))
            and row.count == int(line["# of Calls"])
            and (row.device_type == "cpu") == on_host
        ]
        if not matching:
            assert not on_host, shown
            assert [row for row in rows if row.name == shown and row.is_annotation], shown
        elif shown == "training_step":
            (row,) = matching
            assert close(row.device_time_us + twice, line["CUDA total"])
            assert all(close(getattr(row, COLUMNS[c]), line[c]) for c in ("Self CPU", "CPU total", "Self CUDA"))
        else:
            cells = {column: field for column, field in COLUMNS.items() if column in line}
            assert any(all(close(getattr(row, f), line[c]) for c, f in cells.items()) for row in matching), shown


def time_of_kernels_counted_for_overhead(name: str) -> float:
    """µs of the kernels launched by the innermost operators around `overhead` events on the main thread."""
    trace = read(recorded(name))
    operators = trace.of(Kind.OPERATOR)
    operators = operators[trace.thread[operators] == trace.thread[trace.of(Kind.ANNOTATION)[0]]]
    total = 0
    for overhead in trace.of(Kind.OVERHEAD):
        around = operators[(trace.ts[operators] <= trace.ts[overhead]) & (trace.end[operators] >= trace.end[overhead])]
        if len(around):
            innermost = around[trace.ts[around].argmax()]
            total += trace.dur[trace.on_device & (trace.external == trace.external[innermost])].sum()
    return int(total) / 1000


def close(value: float, shown: str) -> bool:
    expected, half_a_digit = printed(shown)
    return abs(value - expected) <= half_a_digit


def test_training_step_is_one_row_for_the_host_and_none_for_its_device_span():
    rows = [row for row in rows_of("lab5_cnn") if row.name == "training_step"]
    assert [(row.count, row.is_annotation, row.device_type) for row in rows] == [(5, True, "cpu")]


def test_rows_by_shape_add_up_to_the_rows_by_name():
    report = analyze(read(recorded("eager_transformer_mem")))
    for row in report.operators:
        parts = [p for p in report.operators_by_shape if (p.name, p.device_type) == (row.name, row.device_type)]
        for field in ("count", "cpu_time_us", "self_cpu_time_us", "device_time_us", "device_memory_bytes"):
            total = sum(getattr(part, field) for part in parts)
            assert total == pytest.approx(getattr(row, field), abs=MICROSECOND), (row.name, field)
    products = [row.input_shapes for row in report.operators_by_shape if row.name == "aten::addmm"]
    assert [[256], [2048, 256], [256, 256], [], []] in products


def test_a_graph_launch_gives_all_its_kernels_to_the_one_call(write: Write):
    trace = write(
        [
            op("graph", 0, 10, external=5),
            runtime("cudaGraphLaunch", 1, 5, correlation=9, external=5),
            *(kernel("k", 20 + 2 * i, 1, correlation=9, external=5) for i in range(77)),
        ]
    )
    rows = {row.name: row for row in analyze(trace).operators}
    assert rows["graph"].device_time_us == rows["k"].device_time_us == 77


def test_kernels_that_run_out_of_order_stay_with_their_operators(write: Write):
    trace = write(
        [
            op("first", 0, 10, external=1),
            op("second", 10, 10, external=2),
            runtime("cudaLaunchKernel", 1, 1, correlation=1, external=1),
            runtime("cudaLaunchKernel", 11, 1, correlation=2, external=2),
            kernel("b", 20, 3, correlation=2, external=2, stream=8),
            kernel("a", 40, 7, correlation=1, external=1),
        ]
    )
    rows = {row.name: row.device_time_us for row in analyze(trace).operators}
    assert (rows["first"], rows["second"]) == (7, 3)


def test_a_kernel_without_external_id_belongs_to_the_operator_that_holds_its_launch(write: Write):
    """Files of some versions repeat the correlation in `External id`, which names no operator."""
    trace = write(
        [
            op("outer", 0, 20, external=1),
            op("inner", 5, 10, external=2),
            runtime("cudaLaunchKernel", 6, 1, correlation=900, external=900),
            kernel("k", 30, 4, correlation=900, external=900),
        ]
    )
    rows = {row.name: row for row in analyze(trace).operators}
    assert rows["inner"].self_device_time_us == rows["outer"].device_time_us == 4
    assert rows["outer"].self_device_time_us == 0


def test_an_operator_that_only_calls_itself_is_one_row_and_loses_no_kernel(write: Write):
    """`_remove_dup_nodes` folds the inner call, and overwrites the kernels that the outer launched itself
    (`cpu_parent.kernels = self[idx].kernels`): 3 of these 8 µs. Both are launches of the window."""
    trace = write(
        [
            op("aten::copy_", 0, 20, external=1),
            op("aten::copy_", 2, 10, external=2),
            runtime("cudaLaunchKernel", 3, 1, correlation=1, external=2),
            runtime("cudaLaunchKernel", 15, 1, correlation=2, external=1),
            kernel("k", 30, 5, correlation=1, external=2),
            kernel("k", 40, 3, correlation=2, external=1),
        ]
    )
    trace_without_siblings = write(
        [
            op("aten::copy_", 0, 20, external=1),
            op("aten::copy_", 2, 10, external=2),
            kernel("k", 30, 5, correlation=1, external=2),
            kernel("k", 40, 3, correlation=2, external=1),
        ]
    )
    assert next(r for r in analyze(trace).operators if r.name == "aten::copy_").count == 2
    folded = next(r for r in analyze(trace_without_siblings).operators if r.name == "aten::copy_")
    assert (folded.count, folded.self_device_time_us, folded.self_cpu_time_us) == (1, 8, 20)


def test_overlapping_annotations_are_siblings_and_nested_ones_are_not(write: Write):
    trace = write([annotation("a", 0, 10), annotation("b", 5, 10), annotation("inside b", 11, 2)])
    rows = {row.name: row.self_cpu_time_us for row in analyze(trace).operators}
    assert rows == {"a": 10, "b": 8, "inside b": 2}


def test_a_runtime_call_of_no_operator_counts_on_the_thread_that_stopped_the_profiler(write: Write):
    """torch knows it by no thread of its own (`setKinetoTID`): a watchdog's query inside the main thread's
    annotation, by time, is taken off that annotation's self time."""
    trace = write([annotation("ProfilerStep#3", 0, 10), runtime("cudaEventQuery", 4, 1, correlation=1, tid=99)])
    rows = {row.name: row.self_cpu_time_us for row in analyze(trace).operators}
    assert rows["ProfilerStep*"] == 9


def test_the_profilers_own_time_is_taken_off_what_it_interrupted(write: Write):
    overhead = annotation("Activity Buffer Request", 3, 4, tid=0) | {"cat": "overhead", "pid": -1}
    rows = {row.name: row for row in analyze(write([annotation("step", 0, 10), overhead])).operators}
    assert rows["step"].self_cpu_time_us == 6
    assert rows["Activity Buffer Request"].self_cpu_time_us == 4
    assert rows["Activity Buffer Request"].device_time_us == 0


def test_memory_outside_every_operator_has_a_row_of_its_own(write: Write):
    trace = write(
        [
            op("aten::empty", 0, 10, external=1),
            allocation(5, 100, total=100),
            allocation(50, -40, total=60),
            allocation(60, 8, total=8, device_type=0, device=-1),
        ]
    )
    rows = {row.name: row for row in analyze(trace).operators}
    assert rows["aten::empty"].self_device_memory_bytes == 100
    memory = rows["[memory]"]
    assert (memory.count, memory.device_memory_bytes, memory.cpu_memory_bytes) == (2, -40, 8)
