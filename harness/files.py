"""Files that are whole or not there; and reading what is a regular file, and nothing else."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from harness.trace.opening import SMALL, NotRegularError, open_regular, read_regular, regular_descriptor

__all__ = [
    "SMALL",
    "TEMPORARY",
    "NotRegularError",
    "atomic_write",
    "open_regular",
    "read_regular",
    "regular_descriptor",
    "remove_leftovers",
]

TEMPORARY = ".tmp"


def remove_leftovers(directory: Path) -> None:
    """Remove what a killed process left half-written in ``directory``, which nobody else writes to now."""
    for path in directory.glob(f".*{TEMPORARY}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_write(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that becomes ``path`` when the block ends, and vanishes if it raises.

    It is on disk before it takes the name, so that not even a power cut leaves half of it there.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
