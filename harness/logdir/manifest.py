"""A run's manifest, ``run.json``: what a run is and how it goes, for all who list it."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from harness.errors import UsageError
from harness.files import locks, read_regular
from harness.logdir.layout import LOCK, MANIFEST

Status = Literal["running", "completed", "interrupted", "failed", "killed"]
"""``killed`` is never written: it is what a reader says of a ``running`` run that nobody holds."""


class NoRun(UsageError):
    """There is no manifest at all."""


class Manifest(msgspec.Struct, kw_only=True, omit_defaults=False):
    """``run.json``: what can be told of a run without opening anything else. Times are ISO 8601 in UTC."""

    id: str
    """``<experiment>/<run>``: the path below the logdir."""
    status: Status
    step: int
    max_steps: int
    started: str
    updated: str
    command: str
    overrides: list[str]
    """Those that hold now: the start's, with what resumptions have changed."""
    choices: dict[str, str]
    """What each group was set to: model, data, ..."""
    configuration: dict[str, str] | None = None
    """Checksums of what a resumption goes by: see :mod:`harness.train.resume`; None in runs of 0.1.0."""
    sweep: str | None = None
    world_size: int = 1
    device: str | None = None
    parameters: int | None = None
    """Trainable ones."""
    host: str = msgspec.field(default_factory=socket.gethostname)
    pid: int = msgspec.field(default_factory=os.getpid)
    resumed_from: list[int] = msgspec.field(default_factory=list)
    """The step of each resumption."""
    first_window: int | None = None
    """The step at which the schedule's next window began to record when the job was started; None for none."""
    passed_over: dict[str, int] = msgspec.field(default_factory=dict)
    """Cycles of the schedule that had no window, by reason; see :mod:`harness.trace.passed_over`."""
    versions: dict[str, str | None] = msgspec.field(default_factory=dict)
    git: dict[str, Any] | None = None
    """``revision`` and whether the working tree was ``dirty``; None outside a checkout."""
    metrics: dict[str, float] = msgspec.field(default_factory=dict)
    """The newest value of each: ``train/loss``, ``eval/accuracy``, ``perf/samples_per_second``, ..."""
    error: str | None = None


def read_manifest(run: Path) -> Manifest:
    """The manifest of the run in ``run``, with status ``killed`` where it claims to run and nobody holds it.

    Raises:
        UsageError: where there is none (:class:`NoRun`), or it is not one.
    """
    path = run / MANIFEST
    try:
        manifest = msgspec.json.decode(read_regular(path), type=Manifest)
    except (FileNotFoundError, NotADirectoryError):
        here = f"there is no {MANIFEST} in it; a job that was killed before it began has none"
        why = here if run.is_dir() else "there is no such directory"
        raise NoRun(f"{run} is no run: {why}") from None
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if manifest.status == "running" and not _is_held(run, manifest):
        manifest.status = "killed"
    return manifest


def now() -> str:
    """The time, as manifests write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _is_held(run: Path, manifest: Manifest) -> bool:
    """Whether somebody trains in the run; where that cannot be told, as on another host and without locks, the run's
    own word counts."""
    held = locks.is_held(run / LOCK)
    if held is None:
        held = locks.process_lives(manifest.host, manifest.pid)
    return held is not False
