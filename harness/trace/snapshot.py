"""What is allocated on a device, from a snapshot that ``torch.cuda.memory._dump_snapshot`` wrote. Without torch."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from harness.trace.file.collector import without_collector
from harness.trace.file.opening import read_regular

LIVE = ("active_allocated", "active_awaiting_free", "active_pending_free")
"""States of a block that is in use: the second and the third are waiting for a stream to be done with it."""
UNKNOWN = "before the history began"
LIBRARY = ("/torch/", "site-packages/", "dist-packages/", "<frozen", "??")
"""Parts of the file names of frames that are nobody's own code."""


MOST_BYTES = 2**30
"""Of a file; a history of a million entries has a tenth of it."""
_Size = Annotated[int, msgspec.Meta(ge=0, lt=2**60)]


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


class _Frame(msgspec.Struct):
    filename: str
    line: int
    name: str


class _Event(msgspec.Struct):
    frames: list[_Frame] | None = None


class _Block(msgspec.Struct):
    size: _Size
    state: str
    frames: list[_Frame] | None = None
    """Innermost first."""
    history: list[_Event] | None = None
    """Where torch 2.0 kept them."""


class _Segment(msgspec.Struct):
    total_size: _Size
    blocks: list[_Block]


class _Found(msgspec.Struct):
    """What of a snapshot is asked here."""

    segments: list[_Segment]


def read_snapshot(path: Path) -> Snapshot:
    """Live allocations, by the line that made them.

    Raises:
        SnapshotError: where the file is no snapshot, or holds anything but plain values.
    """
    try:
        with without_collector():
            found = msgspec.convert(_PlainUnpickler(io.BytesIO(read_regular(path, MOST_BYTES))).load(), type=_Found)
    except OSError as error:
        raise SnapshotError(f"{path} is no memory snapshot: {error.strerror or error}") from error
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to say
        raise SnapshotError(f"{path} is no memory snapshot: {type(error).__name__}: {error}") from error
    blocks = [block for segment in found.segments for block in segment.blocks]
    return Snapshot(
        allocated=sum(block.size for block in blocks if block.state in LIVE),
        reserved=sum(segment.total_size for segment in found.segments),
        largest_free=max((block.size for block in blocks if block.state == "inactive"), default=0),
        allocations=_by_line(block for block in blocks if block.state in LIVE),
    )


class _PlainUnpickler(pickle._Unpickler):
    """Takes dicts, lists, strings and numbers, and runs nothing that the file names.

    In Python: of the faster one in C a single wrong byte may ask for a memo of 2^32 entries, and gets it.
    """

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _by_line(blocks: Iterator[_Block]) -> list[Allocation]:
    found: dict[tuple[str, str], list[int]] = {}
    for block in blocks:
        frames = _frames(block)
        found.setdefault((_line(frames), _operator(frames)), []).append(block.size)
    rows = [Allocation(sum(sizes), len(sizes), line, operator) for (line, operator), sizes in found.items()]
    return sorted(rows, key=lambda row: -row.bytes)


def _frames(block: _Block) -> Sequence[_Frame]:
    if not block.frames and block.history:
        return block.history[0].frames or []
    return block.frames or []


def _line(frames: Sequence[_Frame]) -> str:
    own = [frame for frame in frames if _is_python(frame) and not any(part in frame.filename for part in LIBRARY)]
    python = own or [frame for frame in frames if _is_python(frame)] or list(frames)
    if not python:
        return UNKNOWN
    frame = python[0]
    return f"{frame.filename.rsplit('/', 1)[-1]}({frame.line}): {frame.name}"


def _operator(frames: Sequence[_Frame]) -> str:
    python = [frame for frame in frames if _is_python(frame)] or list(frames)
    return python[0].name if python else ""


def _is_python(frame: _Frame) -> bool:
    return frame.filename.endswith(".py") or frame.filename.startswith("<")
