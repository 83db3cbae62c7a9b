"""Folded call stacks of a window as a file: ``harness report --stacks``."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError
from harness.logdir.window import Window
from harness.trace.measure.stacks import folded_stacks


def write(window: Window, path: Path) -> None:
    """A line for each call path: its frames and its self time in microseconds.

    Raises:
        UsageError: where the window has none, or the file cannot be written.
    """
    _, trace = window.load()
    lines = [f"{stack} {ns // 1000}\n" for stack, ns in folded_stacks(trace)] if trace is not None else []
    if not lines:
        raise UsageError(
            f"--stacks: {window.path} holds no Python functions; record with profiler.with_stack=true, or "
            "harness trigger RUN --with-stack"
        )
    try:
        path.write_text("".join(lines))
    except OSError as error:
        raise UsageError(f"--stacks: {path} cannot be written: {error}") from error
