"""Snapshots of the CUDA allocator: what is allocated, and the history of how it came to be."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import torch

log = logging.getLogger(__name__)

KEPT = 5
"""Snapshots of a run that stay, the newest; those of an exhausted device stay all."""


class MemorySnapshots:
    """Writes ``<run>/memory/step_<step>.pickle`` and, where the device runs out, ``oom_<step>.pickle``.

    https://pytorch.org/memory_viz draws them. The history costs every allocation some µs, and a snapshot stops the
    loop for as long as the file takes. Without a CUDA device nothing is written.

    Args:
        run: The run directory.
        every_window: At each window's end.
        every: Steps between two.
        on_oom: When ``torch.cuda.OutOfMemoryError`` leaves the loop.
        max_entries: Of the history, in memory and in the file.
        describe: Called with the snapshot of an exhausted device and its step, to say what is in it.
    """

    def __init__(
        self,
        run: Path,
        *,
        every_window: bool = False,
        every: int | None = None,
        on_oom: bool = False,
        max_entries: int = 100_000,
        describe: Callable[[Path, int], None] | None = None,
    ) -> None:
        self._describe = describe
        self._folder = run / "memory"
        self._every_window, self._on_oom, self._max_entries = every_window, on_oom, max_entries
        wanted = every_window or every is not None or on_oom
        self._on = wanted and torch.cuda.is_available()
        self.every = every if self._on else None

    def start(self) -> None:
        """Begin the history."""
        if self._on:
            torch.cuda.memory._record_memory_history(max_entries=self._max_entries, stacks="python")

    def stop(self) -> None:
        """End the history."""
        if self._on:
            torch.cuda.memory._record_memory_history(enabled=None)

    def window_over(self, step: int) -> None:
        if self._on and self._every_window:
            self.write(step)

    def write(self, step: int) -> Path | None:
        """Write what is allocated now, and remove the oldest beyond :data:`KEPT`."""
        path = self._dump(f"step_{step:08d}.pickle")
        for old in sorted(self._folder.glob("step_*.pickle"))[:-KEPT]:
            old.unlink(missing_ok=True)
        return path

    def failed(self, error: BaseException | None, step: int) -> None:
        """Write what was allocated where ``error`` says that the device had no more; the error goes its way."""
        if not (self._on and self._on_oom and isinstance(error, torch.cuda.OutOfMemoryError)):
            return
        path = self._dump(f"oom_{step:08d}.pickle")
        if path is None or self._describe is None:
            return
        try:
            self._describe(path, step)
        except Exception as problem:  # the job's own error goes its way
            log.warning("%s is written, but not described: %s", path, problem)

    def _dump(self, name: str) -> Path | None:
        path = self._folder / name
        temporary = self._folder / f".{name}.tmp"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            torch.cuda.memory._dump_snapshot(str(temporary))
            temporary.replace(path)
        except (OSError, RuntimeError) as error:
            log.warning("the memory snapshot %s could not be written, the job goes on: %s", path, error)
            temporary.unlink(missing_ok=True)
            return None
        return path
