"""Peaks and totals of the allocators."""

from harness.trace import analyze, read
from tests.trace.conftest import Write, allocation, annotation, op, recorded


def test_peaks_are_those_of_the_devices_where_there_are_any(write: Write):
    trace = write(
        [
            op("aten::empty", 0, 10, 1),
            allocation(2, 100, 1100),
            allocation(3, -60, 1040),
            allocation(4, 9999, 9999, device_type=0, device=-1),
        ]
    )
    memory = analyze(trace).memory
    assert (memory.peak_allocated_bytes, memory.peak_reserved_bytes) == (1100, 4400)
    cpu, device = memory.pools
    assert (cpu.device_type, cpu.index, cpu.peak_allocated_bytes) == ("cpu", -1, 9999)
    assert (device.start_allocated_bytes, device.end_allocated_bytes) == (1000, 1040)
    assert (device.allocated_total_bytes, device.peak_us, device.peak_operator) == (100, 2, "aten::empty")


def test_the_peak_over_devices_is_of_one_moment(write: Write):
    """Each device peaks at 100, but never both at once."""
    trace = write(
        [
            annotation("a", 0, 50),
            allocation(1, 100, 100, device=0),
            allocation(2, -100, 0, device=0),
            allocation(3, 100, 100, device=1),
        ]
    )
    assert analyze(trace).memory.peak_allocated_bytes == 100


def test_an_operators_peak_is_what_was_held_while_it_ran_by_whomever(write: Write):
    trace = write(
        [
            op("before", 0, 5, 1),
            op("outer", 10, 20, 2),
            op("inner", 12, 3, 3),
            op("after", 40, 5, 4),
            allocation(2, 10, 10),
            allocation(13, 500, 510),
            allocation(20, -505, 5, tid=9),
        ]
    )
    peaks = {row.name: row.peak_memory_bytes for row in analyze(trace).operators}
    assert peaks == {"before": 10, "outer": 510, "inner": 510, "after": 5}


def test_without_allocator_events_nothing_is_claimed():
    report = analyze(read(recorded("lab5_cnn")))
    assert report.memory is None
    assert {row.peak_memory_bytes for row in report.operators} == {None}


def test_operators_that_hold_memory_point_to_checkpointing_or_fusion():
    points = analyze(read(recorded("eager_transformer_mem"))).memory.advice
    assert [(point.lever, point.operator) for point in points] == [
        ("fusion", "aten::clone"),
        ("activation checkpointing", "aten::mm"),
        ("activation checkpointing", "aten::linear"),
    ]
    assert all(point.line.startswith("gpu_labelled.py(") for point in points)


def test_the_recorded_cnns_peak():
    memory = analyze(read(recorded("lab5_cnn_mem"))).memory
    assert memory.peak_allocated_bytes == 1782762496
    assert memory.pools[1].peak_operator == "aten::convolution_backward"
