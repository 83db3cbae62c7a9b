"""Files that run a command where they are unpickled without care."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import torch


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self._mark}'",)


def pickled(mark: Path) -> bytes:
    """A bare pickle."""
    return pickle.dumps(Touch(mark), protocol=2)


def saved(mark: Path, **besides: object) -> bytes:
    """As ``torch.save`` writes it."""
    into = io.BytesIO()
    torch.save({**besides, "payload": Touch(mark)}, into)
    return into.getvalue()


def in_place(path: Path, offset: int, length: int, data: bytes) -> None:
    """Write over a part of a file, which keeps its size; a pickle ends before what is left of it."""
    assert len(data) <= length
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data.ljust(length, b"\0"))
