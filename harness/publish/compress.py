"""Compression of a trace file, quick rather than small."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from isal import igzip

from harness.files import open_regular

PIECE = 1024**2


def compress(raw: Path, into: Path) -> None:
    """Write ``raw``, gzip-compressed, to ``into``, and to the disk."""
    with open_regular(raw) as source, into.open("wb") as file:
        with igzip.open(file, "wb", compresslevel=1) as packed:  # type: ignore[no-untyped-call]
            shutil.copyfileobj(source, packed, PIECE)
        file.flush()
        os.fsync(file.fileno())
