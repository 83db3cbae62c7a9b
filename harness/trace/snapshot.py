"""What is allocated on a device, from a snapshot that ``torch.cuda.memory._dump_snapshot`` wrote. Without torch."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

LIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
"""States of a block that is in use: the second and the third are waiting for a stream to be done with it."""
UNKNOWN = "before the history began"
LIBRARY = ("/torch/", "site-packages/", "dist-packages/", "<frozen", "??")
"""Parts of the file names of frames that are nobody's own code."""


class SnapshotError(ValueError):
    """This is no snapshot that can be read."""


class Allocation(NamedTuple):
    """Live blocks that one line of code has allocated."""

    bytes: int
    blocks: int
    line: str
    """`train.py(40): forward`, the innermost frame that is no library's; :data:`UNKNOWN` without frames."""
    operator: str
    """The innermost Python function, `linear`, or the innermost C++ one where only those were recorded."""


class Snapshot(NamedTuple):
    """Totals over all devices, bytes."""

    allocated: int
    """In live blocks, as the allocator rounds them."""
    reserved: int
    """In segments."""
    largest_free: int
    """The largest free block; less than what was asked for, with more than it free in all, is fragmentation."""
    allocations: list[Allocation]
    """Largest first."""


def read_snapshot(path: Path) -> Snapshot:
    """Live allocations, by the line that made them.

    Raises:
        SnapshotError: where the file is no snapshot, or holds anything but plain values.
    """
    try:
        found = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
        blocks = [block for segment in found["segments"] for block in segment["blocks"]]
        return Snapshot(
            allocated=sum(block["size"] for block in blocks if block["state"] in LIVE),
            reserved=sum(segment["total_size"] for segment in found["segments"]),
            largest_free=max((block["size"] for block in blocks if block["state"] == "inactive"), default=0),
            allocations=_by_line(block for block in blocks if block["state"] in LIVE),
        )
    except (OSError, pickle.UnpicklingError, KeyError, TypeError, EOFError, AttributeError, IndexError) as error:
        raise SnapshotError(f"{path} is no memory snapshot: {type(error).__name__}: {error}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Takes dicts, lists, strings and numbers, and runs nothing that the file names."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _by_line(blocks: Iterator[Mapping[str, Any]]) -> list[Allocation]:
    found: dict[tuple[str, str], list[int]] = {}
    for block in blocks:
        frames = _frames(block)
        found.setdefault((_line(frames), _operator(frames)), []).append(block["size"])
    rows = [Allocation(sum(sizes), len(sizes), line, operator) for (line, operator), sizes in found.items()]
    return sorted(rows, key=lambda row: -row.bytes)


def _frames(block: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Innermost first. Torch 2.0 kept them in the block's history."""
    frames = block.get("frames")
    if not frames and block.get("history"):
        frames = block["history"][0].get("frames")
    return frames or []


def _line(frames: Sequence[Mapping[str, Any]]) -> str:
    own = [frame for frame in frames if _is_python(frame) and not any(part in frame["filename"] for part in LIBRARY)]
    python = own or [frame for frame in frames if _is_python(frame)] or list(frames)
    if not python:
        return UNKNOWN
    frame = python[0]
    return f"{frame['filename'].rsplit('/', 1)[-1]}({frame['line']}): {frame['name']}"


def _operator(frames: Sequence[Mapping[str, Any]]) -> str:
    python = [frame for frame in frames if _is_python(frame)] or list(frames)
    return str(python[0]["name"]) if python else ""


def _is_python(frame: Mapping[str, Any]) -> bool:
    return str(frame["filename"]).endswith(".py") or str(frame["filename"]).startswith("<")
