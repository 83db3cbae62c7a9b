"""Recorded traces, and traces written for one test; all of them go through the real reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.trace import Trace, read

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
