"""Verdicts: on every labelled trace, and at the edges of the questions."""

import pytest

from harness.trace import WindowReport, analyze, read
from harness.trace.measure.peaks import DevicePeaks, peaks_of
from harness.trace.measure.shares import Shares
from harness.trace.thresholds import BUSY
from harness.trace.verdict.questions import judge
from tests.trace.conftest import TRUTH, Write, annotation, kernel, op, recorded, runtime

# Of the two DDP ranks only rank 0 has a label: who made it wait takes both.
LABELS = {
    name: truth["label"].partition(",")[0].partition(":")[0].partition(" on rank")[0]
    for name, truth in TRUTH.items()
    if name != "ddp_straggler_rank1.rank1"
} | {"lab5_gpt_tiny": "overhead-bound"}


@pytest.mark.parametrize("name", LABELS)
def test_labelled_traces_get_their_label(name: str):
    step_ms = TRUTH[name]["unprofiled_step_ms"] if name in TRUTH else None
    verdict = analyze(read(recorded(name)), step_ms=step_ms).verdict
    assert verdict.label == LABELS[name]
    assert verdict.confidence > 0.5


@pytest.mark.parametrize("name", LABELS)
def test_labelled_traces_get_their_label_without_the_unprofiled_step_time_too(name: str):
    assert analyze(read(recorded(name))).verdict.label == LABELS[name]


@pytest.mark.parametrize("name", LABELS)
def test_every_verdict_shows_what_it_measured_and_what_to_do(name: str):
    verdict = analyze(read(recorded(name))).verdict
    assert verdict.evidence[0].measure == "device busy"
    assert all(evidence.meaning for evidence in verdict.evidence)
    assert verdict.advice
    assert all(item.lever and item.reason for item in verdict.advice)


def advice_of(name: str) -> dict[str, WindowReport]:
    return {item.lever: item for item in analyze(read(recorded(name))).verdict.advice}


def test_exposed_copies_are_named_even_where_they_do_not_bound_the_step():
    item = advice_of("copy_pageable")["pinned memory and non-blocking copies"]
    assert item.operator == "aten::copy_"
    assert "take 36 % of the step" in item.reason
    assert "0 % hidden" in item.reason


def test_the_synchronising_operator_is_named():
    assert advice_of("sync_item")["remove .item() and other synchronisations"].operator == "aten::item"


def test_the_line_is_named_where_python_functions_were_recorded():
    assert advice_of("eager_transformer_mem")["CUDA graphs or torch.compile"].line.startswith("gpu_labelled.py(")


def test_the_loader_is_named():
    assert "DataLoader" in advice_of("input_slow_loader")["DataLoader workers"].operator


def test_one_long_delay_of_the_host_is_told_from_many_small_ones():
    """Rank 1 sleeps once a step; the tiny layers cost a launch each."""
    item = advice_of("ddp_straggler_rank1.rank1")["the host's longest delay"]
    assert "2 long delays are 67 %" in item.reason
    assert "the host's longest delay" not in advice_of("overhead_mlp")


def test_fp32_products_are_advised_to_use_tensor_cores():
    assert advice_of("matmul_4096")["lower precision"].operator == "aten::mm"
    assert "lower precision" not in advice_of("compute_gemm_bf16")


def divided(**shares: float) -> Shares:
    zero = dict.fromkeys(Shares._fields, 0.0)
    return Shares(**(zero | {"device": 0, "step_us": 1000.0, "unprofiled": True} | shares))


@pytest.mark.parametrize(
    ("shares", "label"),
    [
        ({"compute": 0.3, "input": 0.5, "host": 0.2}, "input-bound"),
        ({"compute": 0.3, "input": 0.2, "host": 0.5}, "overhead-bound"),
        ({"compute": 0.5, "sync": 0.3, "host": 0.2}, "sync-bound"),
        ({"compute": 0.2, "copy": 0.5, "host": 0.3}, "copy-bound"),
        ({"compute": 0.3, "communication": 0.45, "host": 0.25}, "communication-bound"),
        ({"compute": 0.4, "copy": 0.55, "host": 0.05}, "copy-bound"),
        ({"compute": 0.45, "communication": 0.5, "host": 0.05}, "communication-bound"),
        ({"compute": 0.9, "host": 0.1}, "device-bound"),
        ({"compute": 0.6, "dependency": 0.3, "host": 0.1}, "device-bound"),
        ({"compute": 0.1, "unexplained": 0.9}, "undetermined"),
    ],
)
def test_the_largest_wait_of_a_waiting_device_and_the_largest_work_of_a_busy_one(shares: dict, label: str):
    assert judge(divided(**shares), None, damaged=False).label == label


def test_overhead_is_in_doubt_when_only_a_profiled_host_was_late_and_the_device_was_half_busy():
    shares = divided(compute=BUSY.value / 2 + 0.05, host=0.55)
    assert judge(shares, None, damaged=False).label == "overhead-bound"
    assert judge(shares._replace(unprofiled=False), None, damaged=False).label == "undetermined"


def test_lost_events_cost_confidence():
    shares = divided(compute=0.1, host=0.9)
    assert judge(shares, None, damaged=True).confidence < judge(shares, None, damaged=False).confidence


def matmul(write: Write, *, device: str, took_us: float, peaks: DevicePeaks | None = None) -> WindowReport:
    """One step of an 8192-cubed fp32 product: 1.1 TFLOP."""
    shape = {"Input Dims": [[8192, 8192], [8192, 8192]], "Input type": ["float", "float"]}
    trace = write(
        [
            annotation("ProfilerStep#1", 0, 50),
            op("aten::mm", 5, 20, external=2, **shape),
            runtime("cudaLaunchKernel", 6, 5, correlation=3, external=2),
            kernel("sgemm", 20, took_us, correlation=3, external=2),
        ],
        deviceProperties=[{"id": 0, "name": device, "computeMajor": 9, "computeMinor": 0}],
    )
    return analyze(trace, peaks=peaks)


def test_an_unknown_device_gets_no_roofline_rather_than_a_wrong_one(write: Write):
    report = matmul(write, device="Imagination 9000", took_us=20_000)
    assert report.roofline is None
    assert report.verdict.label == "device-bound"


def test_peaks_can_be_handed_over(write: Write):
    peaks = DevicePeaks("Imagination 9000", bytes_per_s=1e12, flops={"fp32": 100e12})
    report = matmul(write, device="Imagination 9000", took_us=20_000, peaks=peaks)
    assert report.verdict.label == "compute-bound"
    assert report.roofline.compute_floor_us == pytest.approx(2 * 8192**3 / 100e12 * 1e6)
    assert report.roofline.memory_floor_us == pytest.approx(3 * 8192**2 * 4 / 1e12 * 1e6)


def test_fp32_that_beats_the_fp32_units_ran_as_tf32(write: Write):
    """1.1 TFLOP in 4 ms is 275 TFLOP/s, four times what the H200's fp32 units do."""
    roof = matmul(write, device="NVIDIA H200", took_us=4_000).roofline
    assert roof.achieved_fraction == pytest.approx(2 * 8192**3 / 494.5e12 / 4e-3)
    assert roof.compute_bound_us == 4_000


def test_a_kernel_far_from_both_roofs_is_bound_by_neither(write: Write):
    report = matmul(write, device="NVIDIA H200", took_us=1_000_000)
    assert report.roofline.coverage == 0
    assert report.verdict.label == "device-bound"


@pytest.mark.parametrize(
    ("name", "capability", "bandwidth"),
    [
        ("NVIDIA H200", "9.0", 4.8e12),
        ("NVIDIA H100 80GB HBM3", "9.0", 3.35e12),
        ("NVIDIA H100 PCIe", "9.0", 2.0e12),
        ("NVIDIA A100-SXM4-80GB", "8.0", 2.039e12),
        ("NVIDIA A100-SXM4-40GB", "8.0", 1.555e12),
        ("NVIDIA A100 80GB PCIe", "8.0", 1.935e12),
        ("Tesla V100-SXM2-32GB", "7.0", 0.9e12),
        ("AMD Instinct MI300X", "9.4", 5.3e12),
        # Each of its two dies is a device.
        ("AMD Instinct MI250X", "9.0", 1.6e12),
    ],
)
def test_devices_are_found_by_the_names_that_drivers_give_them(name: str, capability: str, bandwidth: float):
    assert peaks_of(name, capability).bytes_per_s == pytest.approx(bandwidth)


def test_a_name_with_another_compute_capability_is_another_device():
    assert peaks_of("NVIDIA H200", "8.0") is None
    assert peaks_of("AMD Radeon Graphics", "9.0") is None


def test_a_window_without_a_device_is_cpu_bound_unless_it_waits_for_input(write: Write):
    loading = annotation("data", 0, 70)
    computing = op("aten::mm", 70, 30, external=1)
    step = annotation("ProfilerStep#1", 0, 100)
    assert analyze(write([step, loading, computing])).verdict.label == "input-bound"
    assert analyze(write([step, computing])).verdict.label == "cpu-bound"


def test_launches_whose_work_is_missing_leave_the_verdict_open(write: Write):
    trace = write([annotation("ProfilerStep#1", 0, 100), runtime("cudaLaunchKernel", 5, 5, correlation=1)])
    report = analyze(trace)
    assert report.verdict.label == "undetermined"
    assert report.window.launches_without_work == 1
