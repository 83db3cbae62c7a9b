"""What is left after a job that was killed and gone on with, against the same job undisturbed."""

from __future__ import annotations

import gzip
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch

from harness.trace import WindowReport
from tests import reading
from tests.faults.jobs import read_manifest
from tests.faults.watch import Files, digests

CURVES = ("train/loss", "train/lr", "train/grad_norm", "eval/loss", "eval/accuracy")
"""What the job decides, and no clock."""

DECIDED = ("state", "model", "optimizer", "optimizer_type", "scheduler", "scaler", "random", "global_batch", "shards")
"""Likewise, of a checkpoint."""

Curve = list[tuple[int, float]]


class Result(msgspec.Struct, kw_only=True):
    """What a run has come to."""

    step: int
    state: str
    """Of its last checkpoint, all that no clock decides: tensors, the position in the data, random generators."""
    curves: dict[str, Curve]
    windows: list[str]


def result(run: Path) -> Result:
    """Read a run that is over."""
    manifest = read_manifest(run)
    accumulator = reading.events(run)
    scalars = set(accumulator.Tags()["scalars"])
    return Result(
        step=manifest.step,
        state=spelled(checkpoint(run, manifest.step)),
        curves={
            tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in CURVES if tag in scalars
        },
        windows=[window.name for window in reading.windows(run)],
    )


def checkpoint(run: Path, step: int) -> Any:
    """A checkpoint's values; of a sharded one the bytes of the shards, which torch writes alike for alike tensors."""
    path = run / "checkpoints" / f"step_{step:08d}"
    if path.is_dir():
        shards = {shard.name: shard.read_bytes() for shard in sorted(path.glob("*.distcp"))}
        found = {"shards": shards, **loaded(path / "state.pt")}
    else:
        found = loaded(path.with_suffix(".pt"))
    return {name: found.get(name) for name in DECIDED}


def loaded(path: Path) -> dict[str, Any]:
    """A file of torch's, every byte of it checked.

    Raises:
        Exception: of any kind, where it is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        if broken := archive.testzip():
            raise ValueError(f"{path} is damaged in {broken}")
    found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return found


def spelled(value: Any) -> str:
    """A value as text that is equal for equal ones, to the last bit."""
    if isinstance(value, torch.Tensor):
        return (
            f"{value.dtype}{list(value.shape)}{value.contiguous().flatten().view(torch.uint8).numpy().tobytes().hex()}"
        )
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{spelled(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(spelled, value)) + "]"
    return repr(value)


def differences(ours: Result, theirs: Result, log_every: int, resumed_from: list[int]) -> Iterator[str]:
    """How a run that was killed differs from the undisturbed one, a line each; those that begin with ``part interval``
    or ``window not recorded`` are no loss."""
    if ours.step != theirs.step:
        yield f"resumption: it ended with step {ours.step}, not {theirs.step}"
    if ours.state != theirs.state:
        yield "resumption: its last checkpoint differs from the undisturbed one's"
    for tag, expected in theirs.curves.items():
        curve = ours.curves.get(tag, [])
        if [step for step, _ in curve] != [step for step, _ in expected]:
            yield f"curve: {tag} has points at {[step for step, _ in curve]}, not at {[step for step, _ in expected]}"
            continue
        parts = {math.ceil((step + 1) / log_every) * log_every for step in resumed_from if step % log_every}
        wrong = [step for (step, ours_), (_, theirs_) in zip(curve, expected, strict=True) if ours_ != theirs_]
        if wrong and tag == "train/loss" and set(wrong) <= parts:
            yield f"part interval: {tag} differs at {wrong}, the first points after resumptions from {resumed_from}"
        elif wrong:
            yield f"curve: {tag} differs at {wrong}; resumed from {resumed_from}"
    if missing := sorted(set(theirs.windows) - set(ours.windows)):
        yield f"window not recorded: {', '.join(missing)}; resumed from {resumed_from}"
    if more := sorted(set(ours.windows) - set(theirs.windows)):
        yield f"window not of the schedule: {', '.join(more)}; resumed from {resumed_from}"


def torn_checkpoints(run: Path, acknowledged: int | None) -> Iterator[str]:
    """What is wrong with the checkpoints of a run whose job was just killed.

    Args:
        acknowledged: The newest step whose checkpoint had stood under its own name.
    """
    found = {int(path.name[5:13]): path for path in (run / "checkpoints").glob("step_*")}
    for path in found.values():
        try:
            loaded(path / "state.pt" if path.is_dir() else path)
        except Exception as error:
            yield f"checkpoint: {path.name} is not whole: {type(error).__name__}: {error}"
    if acknowledged is not None and max(found, default=-1) < acknowledged:
        yield f"checkpoint: that of step {acknowledged} was there, and now the newest is {max(found, default=None)}"


def torn_window(window: Path, first_sight: Files) -> Iterator[str]:
    """What is wrong with a window that was visible; one without findings is no loss, where the publisher died of it."""
    if not window.is_dir():
        yield f"window: {window.name} was visible and is gone"
        return
    if digests(window) != first_sight:
        yield f"window: {window.name} has changed since it was first seen"
    traces = list(window.glob("*.pt.trace.json.gz"))
    if not traces:
        yield f"window: {window.name} has no trace"
    for trace in traces:
        try:
            json.loads(gzip.decompress(trace.read_bytes()))
        except (OSError, EOFError, ValueError) as error:
            yield f"window: {window.name}/{trace.name} is not whole: {error}"
    findings = window / "window.json"
    if not findings.exists():
        yield f"without findings: {window.name}"
        return
    try:
        msgspec.json.decode(findings.read_bytes(), type=WindowReport)
    except msgspec.MsgspecError as error:
        yield f"window: {window.name}/window.json is not whole: {error}"
