"""What a run has left on disk, read without the harness wherever another program would read it."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

T = TypeVar("T")


def only_run(logdir: Path) -> Path:
    """The one run below ``logdir``."""
    (manifest,) = logdir.rglob("run.json")
    return manifest.parent


def manifest(run: Path) -> dict[str, Any]:
    """``run.json``."""
    found: dict[str, Any] = json.loads((run / "run.json").read_text())
    return found


def windows(run: Path) -> list[Path]:
    """Window directories, in order."""
    return sorted((run / "profile").iterdir()) if (run / "profile").is_dir() else []


def trace(window: Path) -> dict[str, Any]:
    """A window's one trace."""
    (path,) = window.glob("*.pt.trace.json*")
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: dict[str, Any] = json.loads(text)
    return found


def names(found: dict[str, Any], category: str | None = None) -> list[str]:
    """Names of a trace's complete events, in order of time."""
    events = [e for e in found["traceEvents"] if e.get("ph") == "X" and category in (None, e.get("cat"))]
    return [event["name"] for event in sorted(events, key=lambda event: float(event["ts"]))]


def steps(window: Path) -> list[int]:
    """Numbers of the ``ProfilerStep#N`` spans in a window's trace."""
    matches = (re.fullmatch(r"ProfilerStep#(\d+)", name) for name in names(trace(window), "user_annotation"))
    return [int(match[1]) for match in matches if match]


def label(window: Path) -> str:
    """What a window's findings call it. The machine and the moment decide it for a job of milliseconds."""
    found: str = json.loads((window / "window.json").read_text())["verdict"]["label"]
    return found


def recorded(run: Path) -> dict[str, list[int]]:
    """Steps by window directory."""
    return {window.name: steps(window) for window in windows(run)}


def events(run: Path) -> EventAccumulator:
    """A run's event files as TensorBoard reads them, every point kept."""
    accumulator = EventAccumulator(
        str(run), size_guidance=dict.fromkeys(("scalars", "tensors", "images", "histograms"), 0)
    )
    accumulator.Reload()
    return accumulator


def scalars(run: Path, tag: str) -> dict[int, float]:
    """A curve, by step."""
    return {event.step: event.value for event in events(run).Scalars(tag)}


def read_gz(path: Path) -> dict[str, Any]:
    """A compressed JSON file, whole."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


def copy(run: Path, to: Path) -> None:
    """A run's directory, somewhere else."""
    shutil.copytree(run, to, symlinks=True)


def report(window: Path, kind: type[T]) -> T:
    """A window's findings, as the type that describes them."""
    return msgspec.json.decode((window / "window.json").read_bytes(), type=kind)
