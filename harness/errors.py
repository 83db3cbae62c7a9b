"""Errors that end a command with one message and no traceback."""

from __future__ import annotations

from collections.abc import Sequence


class UsageError(Exception):
    """Bad input: what was wrong, where, and what to do. Commands print it and end with status 2.

    Args:
        problems: One or several; all that were found are reported together.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__(*problems)
        self.problems: Sequence[str] = problems

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        return f"{len(self.problems)} problems:\n" + "\n".join(f"  - {problem}" for problem in self.problems)


class DivergedError(ArithmeticError):
    """The loss is no longer finite."""


class NotSavedError(Exception):
    """A job came to its end, and its state is not on disk: what is missing, where the last good one is, what to do."""
