"""Steps by launch."""

import numpy as np
import pytest

from harness.trace import analyze, read
from tests.trace.conftest import RECORDED, TRUTH, Write, annotation, kernel, recorded, runtime, stem


def queued_steps() -> list:
    """Three steps that only enqueue, 10 µs each on the host, 100 µs each on the device, and a kernel of the
    step before the window."""
    events = [kernel("leaked", 0, 20, correlation=1)]
    for i in range(3):
        events += [
            annotation(f"ProfilerStep#{40 + i}", 10 * i, 10),
            runtime("cudaLaunchKernel", 10 * i + 1, 1, correlation=10 + i),
            kernel("k", 20 + 100 * i, 100, correlation=10 + i),
        ]
    return events


def test_a_step_that_only_enqueues_is_as_long_as_its_kernels(write: Write):
    report = analyze(write(queued_steps()))
    assert [(s.number, s.duration_us, s.device_busy_us, s.host_us) for s in report.steps] == [
        (40, 100, 100, 10),
        (41, 100, 100, 10),
        (42, 100, 100, 10),
    ]
    assert report.step_time.profiled_median_us == 100


def test_work_of_earlier_steps_is_in_no_step(write: Write):
    report = analyze(write(queued_steps()))
    assert report.window.unattributed_device_events == 1
    assert sum(step.device_busy_us for step in report.steps) == 300
    assert report.device[0].unattributed_us == 20


def test_a_step_with_a_slow_host_is_as_long_as_its_span(write: Write):
    events = []
    for i in range(2):
        events += [
            annotation(f"ProfilerStep#{i}", 100 * i, 100),
            runtime("cudaLaunchKernel", 100 * i + 50, 1, correlation=10 + i),
            kernel("k", 100 * i + 55, 5, correlation=10 + i),
        ]
    assert [step.duration_us for step in analyze(write(events)).steps] == [100, 100]


def test_the_harness_tells_numbers_partiality_and_the_unprofiled_time(write: Write):
    facts = {
        "version": 1,
        "harness_version": "0.3.1",
        "first_step": 1200,
        "steps": 5,
        "partial": True,
        "unprofiled_step_us": 80.0,
        "schedule": {"wait": 1},
        "rank": 3,
        "world_size": 8,
        "cost": {},
    }
    report = analyze(write(queued_steps(), harness=facts))
    assert [step.number for step in report.steps] == [1200, 1201, 1202]
    assert (report.window.first_step, report.window.partial) == (1200, True)
    assert (report.rank, report.world_size, report.harness_version) == (3, 8, "0.3.1")
    assert report.step_time.unprofiled_median_us == 80.0
    assert analyze(write(queued_steps(), harness=facts), step_ms=0.09).step_time.unprofiled_median_us == 90.0


def test_a_recurring_annotation_stands_in_for_missing_profiler_steps():
    report = analyze(read(recorded("lab5_cnn")))
    assert [step.number for step in report.steps] == [0, 1, 2, 3, 4]
    assert report.window.first_step is None
    assert report.step_time.profiled_median_us == pytest.approx(6278.1, abs=0.1)


@pytest.mark.parametrize("path", [p for p in RECORDED if stem(p) in TRUTH], ids=stem)
def test_durations_add_up_to_the_window_and_come_near_the_unprofiled_step_where_the_device_bounds_it(path):
    report = analyze(read(path))
    durations = [step.duration_us for step in report.steps]
    assert all(duration > 0 for duration in durations)
    unprofiled = TRUTH[stem(path)]["unprofiled_step_ms"] * 1000
    if TRUTH[stem(path)]["label"].startswith(("compute", "memory", "copy", "device")):
        assert np.median(durations) == pytest.approx(unprofiled, rel=0.08)


def test_a_step_time_that_is_none_is_refused(write: Write):
    with pytest.raises(ValueError, match="step_ms must be positive, not 0"):
        analyze(write(queued_steps()), step_ms=0)
