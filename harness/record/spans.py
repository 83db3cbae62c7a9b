"""Named spans of a step: ``record_function`` inside a window, free outside it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.autograd.profiler import record_function

_FREE: AbstractContextManager[Any] = nullcontext()
_recording = False


def span(name: str) -> AbstractContextManager[Any]:
    """Name a part of the step: ``with span("forward"): ...``.

    Inside a window it appears in the trace as a ``user_annotation``. Outside, entering and leaving it
    costs about 0.2 µs, where ``record_function`` costs 10 to 40 µs.
    """
    return record_function(name) if _recording else _FREE


def set_recording(on: bool) -> None:
    """Switch every span on or off; the profiler calls it at the edges of a window."""
    global _recording
    _recording = on
