"""Recorded traces, and traces written for one test; all of them go through the real reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.trace import Trace, WindowReport, read

TRACES = Path(__file__).parents[1] / "traces"
THIRD_PARTY = Path(__file__).parents[3] / "shared" / "traces" / "third_party"
TRUTH: dict[str, Any] = json.loads((TRACES / "truth.json").read_text())
RECORDED = sorted(TRACES.glob("*.json.gz"))
EVERYONES = RECORDED + sorted(THIRD_PARTY.glob("*.json.gz"))

Write = Callable[..., Trace]


def recorded(name: str) -> Path:
    return TRACES / f"{name}.pt.trace.json.gz"


def stem(path: Path) -> str:
    return path.name.removesuffix(".pt.trace.json.gz")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes events and header fields as a trace file, and reads it."""

    def _write(events: list[dict[str, Any]], **header: Any) -> Trace:
        path = tmp_path / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": events}))
        return read(path)

    return _write


def assert_identities(report: WindowReport) -> None:
    """What holds for every report, whatever the file was."""
    for device in report.device:
        parts = (device.compute_us, device.exposed_communication_us, device.exposed_memcpy_us, device.idle_us)
        assert sum(round(part * 1000) for part in parts) == round(device.span_us * 1000)
        assert round(device.busy_us * 1000) + round(device.idle_us * 1000) == round(device.span_us * 1000)
        assert all(part >= 0 for part in parts)
        assert 0 <= device.busy_fraction <= 1
    own = [row for row in report.operators if row.device_type == "device"]
    host = [row for row in report.operators if row.device_type == "cpu"]
    assert sum(round(row.device_time_us * 1000) for row in own) == round(report.totals.device_time_us * 1000)
    assert sum(row.self_device_time_us for row in host) <= report.totals.device_time_us + 1e-3
    assert sum(row.count for row in own) == sum(kernel.count for kernel in report.kernels)
    idle = sum(round(row.time_us * 1000) for row in report.idle)
    assert idle == sum(round(device.idle_us * 1000) for device in report.device)
    assert msgspec.json.decode(msgspec.json.encode(report), type=WindowReport) == report


def op(name: str, ts: float, dur: float, external: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return _event("cpu_op", name, ts, dur, tid, {"External id": external, **args})


def annotation(name: str, ts: float, dur: float, external: int = 0, tid: int = 1) -> dict[str, Any]:
    return _event("user_annotation", name, ts, dur, tid, {"External id": external})


def python(name: str, ts: float, dur: float, tid: int = 1, python_id: int = 1) -> dict[str, Any]:
    return _event("python_function", name, ts, dur, tid, {"Python id": python_id})


def runtime(name: str, ts: float, dur: float, correlation: int, external: int | None = None, tid: int = 1) -> Any:
    args = {"correlation": correlation} | ({} if external is None else {"External id": external})
    return _event("cuda_runtime", name, ts, dur, tid, args)


def kernel(
    name: str,
    ts: float,
    dur: float,
    correlation: int,
    external: int | None = None,
    stream: int = 7,
    device: int = 0,
) -> dict[str, Any]:
    return _on_device("kernel", name, ts, dur, correlation, external, stream, device)


def memcpy(name: str, ts: float, dur: float, correlation: int, external: int | None = None, stream: int = 7) -> Any:
    return _on_device("gpu_memcpy", name, ts, dur, correlation, external, stream, 0)


def allocation(ts: float, size: int, total: int, device_type: int = 1, device: int = 0, tid: int = 1) -> Any:
    args = {
        "Bytes": size,
        "Total Allocated": total,
        "Total Reserved": 4 * total,
        "Device Type": device_type,
        "Device Id": device,
    }
    event = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": tid}
    return event | {"ts": ts, "args": args}


def _on_device(
    cat: str,
    name: str,
    ts: float,
    dur: float,
    correlation: int,
    external: int | None,
    stream: int,
    device: int,
) -> dict[str, Any]:
    args = {"device": device, "stream": stream, "correlation": correlation}
    args |= {} if external is None else {"External id": external}
    return _event(cat, name, ts, dur, stream, args) | {"pid": device}


def _event(cat: str, name: str, ts: float, dur: float, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}
