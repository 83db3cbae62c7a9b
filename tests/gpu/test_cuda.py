"""What only a CUDA device can show: run with ``pytest -m gpu``."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.logdir.manifest import read_manifest
from harness.logdir.scan import find_runs, windows
from harness.record import Profiler, PublishedWindow, Schedule, TraceOptions
from harness.record.snapshots import MemorySnapshots
from harness.record.spans import set_nvtx, span
from harness.trace.snapshot import read_snapshot
from harness.train.exhausted import describe
from harness.train.main import main

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here"),
]


def events(window: Path) -> list[dict[str, Any]]:
    (trace,) = window.glob("*.pt.trace.json.gz")
    found: list[dict[str, Any]] = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return found


def launches_and_kernels(window: Path) -> tuple[set[int], list[int]]:
    found = events(window)
    launches = {
        event["args"]["correlation"]
        for event in found
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "Launch" in event["name"]
    }
    kernels = [event["args"]["correlation"] for event in found if event.get("cat") == "kernel"]
    return launches, kernels


@pytest.fixture(scope="module")
def device_bound(tmp_path_factory: pytest.TempPathFactory) -> list[PublishedWindow]:
    """A loop whose device is some steps behind the host: 8192³ products, ten in flight."""
    logdir = tmp_path_factory.mktemp("gpu") / "logs"
    recorded: list[PublishedWindow] = []
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    with Profiler(
        logdir, "run", Schedule(wait=20, warmup=2, active=3, repeat=2), TraceOptions(), on_window=recorded.append
    ) as profiler:
        for _ in range(60):
            for _ in range(5):
                a @ a
            profiler.step()
    return recorded


def test_a_window_holds_the_kernels_of_its_own_steps_and_all_of_them(device_bound: list[PublishedWindow]) -> None:
    assert len(device_bound) == 2
    for window in device_bound:
        launches, kernels = launches_and_kernels(window.path)
        assert len(kernels) == 3 * 5
        assert set(kernels) <= launches


def test_unprofiled_steps_are_timed_on_the_device_where_the_host_runs_ahead(
    device_bound: list[PublishedWindow],
) -> None:
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(50):
        a @ a
    end.record()
    end.synchronize()
    step_us = begin.elapsed_time(end) / 10 * 1e3
    for window in device_bound:
        assert window.unprofiled_step_us == pytest.approx(step_us, rel=0.2)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_training_on_the_device_logs_its_memory_and_records_kernels(tmp_path: Path, precision: str) -> None:
    status = main(
        [
            "data=synthetic_images",
            "data.train.shape=[3,64,64]",
            "trainer.device=cuda",
            f"trainer.precision={precision}",
            "trainer.max_steps=30",
            "trainer.log_every=10",
            "profiler.wait=10",
            "profiler.warmup=2",
            "profiler.active=3",
            f"logdir={tmp_path / 'logs'}",
        ]
    )
    assert status == 0
    (run,) = (found.path for found in find_runs(tmp_path / "logs"))
    assert read_manifest(run).metrics["memory/peak_allocated_mib"] > 0
    assert [window.name for window in windows(run)] == ["window_00000012", "window_00000027"]
    for window in windows(run):
        launches, kernels = launches_and_kernels(window)
        assert kernels
        assert set(kernels) <= launches


def test_a_resumed_run_goes_on_on_the_device(tmp_path: Path) -> None:
    common = ["experiment=text_transformer", "trainer.precision=bf16", f"logdir={tmp_path / 'logs'}", "profiler=none"]
    assert main([*common, "trainer.max_steps=20", "trainer.eval_every=null"]) == 0
    (run,) = (found.path for found in find_runs(tmp_path / "logs"))
    assert main([f"resume={run}", "trainer.max_steps=40"]) == 0
    assert read_manifest(run).resumed_from == [20]
    assert read_manifest(run).step == 40


def test_out_of_memory_leaves_a_snapshot_that_names_the_line(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []

    def hoard() -> None:
        kept.append(torch.empty(2**28, device="cuda", dtype=torch.uint8))

    snapshots = MemorySnapshots(
        tmp_path / "logs" / "run", on_oom=True, every=2, every_window=True, max_entries=10_000, describe=describe
    )
    schedule = Schedule(wait=2, warmup=1, active=1, repeat=1)

    def train() -> None:
        with Profiler(tmp_path / "logs", "run", schedule, snapshots=snapshots) as profiler:
            for _ in range(8):
                hoard()
                profiler.step()
            torch.empty(2**50, device="cuda", dtype=torch.uint8)

    with pytest.raises(torch.cuda.OutOfMemoryError):
        train()
    folder = tmp_path / "logs" / "run" / "memory"
    names = sorted(path.name for path in folder.iterdir())
    assert "oom_00000008.md" in names
    assert {"step_00000003.pickle", "step_00000006.pickle"} <= set(names)
    found = read_snapshot(folder / "oom_00000008.pickle")
    assert "hoard" in found.allocations[0].line
    assert found.allocations[0].bytes == 8 * 2**28
    kept.clear()
    torch.cuda.empty_cache()


def test_the_parts_of_the_memory_sum_to_the_peak(tmp_path: Path) -> None:
    status = main(
        [
            "experiment=text_transformer",
            "trainer.device=cuda",
            "trainer.max_steps=20",
            "trainer.log_every=10",
            "trainer.eval_every=null",
            "profiler=none",
            f"logdir={tmp_path / 'logs'}",
        ]
    )
    assert status == 0
    (run,) = (found.path for found in find_runs(tmp_path / "logs"))
    metrics = read_manifest(run).metrics
    parts = ("parameters", "gradients", "optimizer_state", "activations_and_rest")
    found = {part: metrics[f"memory/{part}_mib"] for part in parts}
    assert found["optimizer_state"] == pytest.approx(2 * found["gradients"], rel=0.01)
    assert min(found.values()) > 0
    assert sum(found.values()) == pytest.approx(metrics["memory/peak_allocated_mib"], rel=1e-6)


def open_ranges() -> int:
    """How many NVTX ranges are open in this thread; NVTX counts them only for a tool that listens."""
    depth: int = torch.cuda.nvtx.range_push("probe")
    torch.cuda.nvtx.range_pop()
    if depth < 0:
        pytest.skip("no tool listens to NVTX here: run it under nsys")
    return depth


def test_spans_are_nvtx_ranges_where_they_are_wanted() -> None:
    set_nvtx(True)
    try:
        with span("outer"), span("inner"):
            assert open_ranges() == 2
    finally:
        set_nvtx(False)
    with span("outer"):
        assert open_ranges() == 0
