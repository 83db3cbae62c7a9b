"""Text whose reader dies of one batch, once; jobs find it beside the tests."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from torch import Tensor

from harness.data import Text


class DyingText(Text):
    """Kills the process of rank 1 when it asks for its batch ``at``, unless ``mark`` is there, and leaves that."""

    def __init__(self, *, at: int, mark: str, context_length: int) -> None:
        super().__init__("train", context_length=context_length)
        self._left, self._mark = at, Path(mark)

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        # One batch is looked at before the first step.
        self._left -= 1
        if self._left < -1 and os.environ.get("RANK") == "1" and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().batch(indices)
