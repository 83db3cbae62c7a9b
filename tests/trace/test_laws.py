"""What holds for every trace that is there, whoever wrote it, and for the package itself."""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from harness.trace import WindowReport, analyze, read
from harness.trace.measure.device_time import device_sets, gaps
from harness.trace.measure.launches import device_work
from tests.trace.conftest import EVERYONES, stem


def test_reading_findings_imports_neither_torch_nor_hydra_nor_tensorboard():
    code = (
        "import sys, harness.trace; "
        "print([m for m in ('torch', 'hydra', 'tensorboard', 'pandas', 'scipy') if m in sys.modules])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_compute_and_exposed_communication_and_exposed_copies_and_idle_are_the_span(path: Path):
    for device in analyze(read(path)).device:
        parts = (device.compute_us, device.exposed_communication_us, device.exposed_memcpy_us, device.idle_us)
        assert sum(round(part * 1000) for part in parts) == round(device.span_us * 1000)
        assert round(device.busy_us * 1000) + round(device.idle_us * 1000) == round(device.span_us * 1000)
        assert all(part >= 0 for part in parts)
        assert 0 <= device.busy_fraction <= 1


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_every_nanosecond_of_every_idle_gap_has_one_reason(path: Path):
    trace = read(path)
    work = device_work(trace)
    for device in work.devices:
        mine = work.on(device)
        found = gaps(trace, mine, device_sets(mine), device)
        assert np.all(found.parts >= 0)
        assert np.array_equal(found.parts.sum(axis=1), found.end - found.start)


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_self_times_add_up_to_totals(path: Path):
    """Each device event is self time of one host row at most, and of its own row; each nanosecond of a
    top-level host span is self time of one row."""
    report = analyze(read(path))
    host = [row for row in report.operators if row.device_type == "cpu"]
    own = [row for row in report.operators if row.device_type == "device"]
    assert sum(round(row.device_time_us * 1000) for row in own) == round(report.totals.device_time_us * 1000)
    assert sum(row.self_device_time_us for row in host) <= report.totals.device_time_us + 1e-3
    assert sum(row.device_time_us for row in own) == pytest.approx(sum(k.total_us for k in report.kernels))


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_a_report_survives_its_own_json(path: Path):
    report = analyze(read(path))
    assert msgspec.json.decode(msgspec.json.encode(report), type=WindowReport) == report


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_idle_rows_are_the_idle_time(path: Path):
    report = analyze(read(path))
    assert sum(row.time_us for row in report.idle) == pytest.approx(sum(d.idle_us for d in report.device), abs=1e-3)
