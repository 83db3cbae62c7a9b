"""What reading a trace raises."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UsageError


class TraceError(UsageError):
    """This is no trace that can be read. One line: what was wrong, where, and what to do."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(" ".join(f"{path}: {problem}".split()))
        self._arguments = (path, problem)

    def __reduce__(self) -> tuple[type[TraceError], tuple[Path, str]]:
        return TraceError, self._arguments  # as it comes back from another process
