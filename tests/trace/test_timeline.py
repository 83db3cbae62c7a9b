"""Device time and idle gaps: on small timelines whose answer can be read off, and on recorded ones."""

import pytest

from harness.trace import WindowReport, analyze, read
from tests.trace.conftest import (
    TRUTH,
    Write,
    annotation,
    kernel,
    memcpy,
    op,
    python,
    recorded,
    runtime,
)


def launched(at: float, runs: float, takes: float, number: int, name: str = "k", call: float = 2) -> list:
    """A launch and its kernel."""
    return [
        runtime("cudaLaunchKernel", at, call, correlation=number),
        kernel(name, runs, takes, correlation=number),
    ]


def idle(report: WindowReport) -> dict[str, float]:
    return {row.reason: row.time_us for row in report.idle}


def test_exposed_is_what_nothing_more_useful_runs_beside(write: Write):
    """0..10 compute, 5..20 collective, 15..30 copy, then nothing until a memset at 40..41."""
    trace = write(
        [
            kernel("gemm", 0, 10, correlation=1),
            kernel("ncclDevKernel_AllReduce", 5, 15, correlation=2, stream=8),
            memcpy("Memcpy HtoD (Pinned -> Device)", 15, 15, correlation=3, stream=9),
            kernel("memset", 40, 1, correlation=4),
        ]
    )
    (device,) = analyze(trace).device
    assert (device.compute_us, device.communication_us, device.memcpy_us) == (11, 15, 15)
    assert (device.exposed_communication_us, device.exposed_memcpy_us, device.idle_us) == (10, 10, 10)
    assert device.span_us == 41


def test_a_late_host_is_late_until_it_launches_and_the_rest_is_launch_latency(write: Write):
    trace = write([op("aten::slow", 0, 40, 1), *launched(0, 5, 5, 1), *launched(30, 36, 4, 2)])
    report = analyze(trace)
    assert idle(report) == {"host_late": 20, "launch": 6}
    (late,) = [row for row in report.idle if row.reason == "host_late"]
    assert [(doing.name, doing.time_us) for doing in late.host] == [("aten::slow", 20)]


def test_a_host_that_waited_for_the_device_is_sync_until_it_launches_again(write: Write):
    trace = write(
        [
            *launched(0, 5, 5, 1),
            runtime("cudaStreamSynchronize", 4, 8, correlation=50),
            *launched(30, 33, 4, 2),
        ]
    )
    assert idle(analyze(trace)) == {"sync": 20, "launch": 3}


@pytest.mark.parametrize(
    "fetching",
    [
        annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12, 14),
        annotation("data", 12, 14),
        python("torch/utils/data/dataloader.py(730): __next__", 12, 14),
    ],
)
def test_time_in_the_loader_is_input_even_after_a_synchronisation(write: Write, fetching: dict):
    synchronize = runtime("cudaDeviceSynchronize", 4, 8, correlation=50)
    trace = write([*launched(0, 5, 5, 1), synchronize, fetching, *launched(30, 33, 4, 2)])
    assert idle(analyze(trace)) == {"input": 14, "sync": 6, "launch": 3}


def test_a_copy_that_returns_when_it_is_done_is_a_synchronisation(write: Write):
    trace = write(
        [
            runtime("cudaMemcpyAsync", 0, 12, correlation=1),
            memcpy("Memcpy DtoH (Device -> Pageable)", 2, 8, correlation=1),
            *launched(30, 33, 4, 2),
        ]
    )
    assert idle(analyze(trace)) == {"sync": 20, "launch": 3}


def test_a_kernel_enqueued_in_time_waited_for_the_device_itself(write: Write):
    """Its launch was at 6; 4 µs is the shortest latency seen, so from 10 on it was held back until 15."""
    trace = write([*launched(0, 4, 5, 1), *launched(6, 15, 5, 2)])
    assert idle(analyze(trace)) == {"launch": 1, "dependency": 5}


def test_a_gap_before_work_of_nobodys_launch_has_no_reason(write: Write):
    trace = write([*launched(0, 4, 5, 1), kernel("stray", 15, 5, correlation=77)])
    report = analyze(trace)
    assert idle(report) == {"unattributed": 6}
    assert report.window.unattributed_device_events == 1


def test_idle_is_device_wide(write: Write):
    trace = write([kernel("a", 0, 10, 1, stream=1), kernel("b", 8, 10, 2, stream=2), kernel("c", 0, 4, 3, device=1)])
    assert [(d.index, d.idle_us, d.busy_us) for d in analyze(trace).device] == [(0, 0, 18), (1, 0, 4)]


def test_the_longest_gap_names_what_the_host_was_in_and_what_ended_it(write: Write):
    trace = write([op("aten::slow", 0, 40, 1), *launched(0, 5, 5, 1), *launched(30, 36, 4, 2, name="late kernel")])
    (gap,) = analyze(trace).gaps
    assert (gap.duration_us, gap.reason, gap.before, gap.host) == (
        26,
        "host_late",
        "late kernel",
        "aten::slow",
    )


BUSY_FRACTIONS = {  # of the unprofiled step; the kernels' union against it, by hand from the files
    "matmul_4096": 0.994,
    "compute_gemm_bf16": 1.0,
    "overhead_mlp": 0.090,
    "eager_transformer_mem": 0.204,
    "copy_bound": 0.930,
    "input_slow_loader": 0.011,
    "sync_item": 0.374,
}


@pytest.mark.parametrize("name", BUSY_FRACTIONS)
def test_busy_fractions_are_sane_against_the_unprofiled_step(name: str):
    report = analyze(read(recorded(name)), step_ms=TRUTH[name]["unprofiled_step_ms"])
    assert report.device[0].busy_fraction == pytest.approx(BUSY_FRACTIONS[name], abs=0.001)
