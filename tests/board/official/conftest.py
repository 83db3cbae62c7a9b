"""The traces of `tests/traces`, laid out as runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.launch import ROOT

TRACES = ROOT / "tests" / "traces"


def trace(name: str) -> Path:
    """A labelled trace."""
    return TRACES / f"{name}.pt.trace.json.gz"


def add_window(run: Path, step: int, *names: str) -> Path:
    """A window of a run, with a rank for each trace; it appears whole, as the publisher lets it."""
    staged = run.parent / f".staged_{step}"
    staged.mkdir(parents=True)
    for rank, name in enumerate(names):
        shutil.copy(trace(name), staged / f"host_{rank}.{1_700_000_000 + step}.pt.trace.json.gz")
    window = run / "profile" / f"window_{step:08d}"
    window.parent.mkdir(parents=True, exist_ok=True)
    return staged.rename(window)
