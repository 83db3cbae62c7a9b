"""Named spans: one honest row for torch's two, and the shares of the step."""

import pytest

from harness.trace import analyze, read
from tests.trace.conftest import Write, annotation, kernel, recorded, runtime


def work(at: float, runs: float, takes: float, number: int, tid: int = 1) -> list:
    return [
        runtime("cudaLaunchKernel", at, 1, correlation=number, tid=tid),
        kernel("k", runs, takes, correlation=number),
    ]


def test_a_span_has_host_time_device_span_and_the_devices_busy_time_inside(write: Write):
    trace = write(
        [
            annotation("step", 0, 10),
            *work(1, 20, 5, 1),
            *work(2, 40, 5, 2),
            annotation("step", 100, 10),
            *work(101, 120, 7, 3),
            *work(150, 160, 9, 4),
        ]
    )
    (row,) = analyze(trace).annotations
    assert (row.count, row.host_us, row.device_span_us, row.device_busy_us) == (2, 20, 32, 17)


def test_what_another_thread_launches_meanwhile_belongs_to_the_span_that_waits_for_it(write: Write):
    trace = write([annotation("backward", 0, 10), *work(3, 20, 5, 1, tid=2)])
    assert analyze(trace).annotations[0].device_busy_us == 5


def test_training_step_of_the_recorded_cnn_is_one_row():
    """Torch's table has a host row of 33.9 ms and a device row of 12 ms that stops at the first kernel of the
    backward pass, which another thread launched."""
    (row,) = [row for row in analyze(read(recorded("lab5_cnn"))).annotations if row.name == "training_step"]
    assert row.count == 5
    assert row.host_us == pytest.approx(33900.4, abs=0.1)
    assert row.device_busy_us == pytest.approx(30783, abs=1)
    assert row.device_busy_us < row.device_span_us


def test_phases_divide_the_step_and_name_the_rest(write: Write):
    events = []
    for i in range(2):
        start = 100 * i
        events += [
            annotation(f"ProfilerStep#{i}", start, 100),
            annotation("data", start, 20),
            annotation("forward", start + 20, 30),
            annotation("inside forward", start + 25, 5),
            annotation("backward", start + 50, 40),
            *work(start + 30, start + 31, 10, 10 * i + 1),
            *work(start + 60, start + 61, 30, 10 * i + 2, tid=2),
        ]
    rows = {row.name: (row.count, row.host_share, row.device_share) for row in analyze(write(events)).phases}
    assert rows == {
        "data": (2, 0.2, 0),
        "forward": (2, 0.3, 0.25),
        "backward": (2, 0.4, 0.75),
        "everything else": (2, pytest.approx(0.1), 0),
    }


def test_phases_look_through_the_one_span_that_fills_every_step():
    names = [row.name for row in analyze(read(recorded("overhead_mlp"))).phases]
    assert "training_step" not in names
    assert "Optimizer.step#AdamW.step" in names
