"""A data set for jobs that a test wants to catch in the act; jobs find it beside the tests.

``data=custom data.train._target_=slow_digits.SlowDigits +data.train.seconds=0.02``
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from torch import Tensor

from harness.data import Digits


class SlowDigits(Digits):
    """Digits of which every batch takes its time.

    Args:
        seconds: How long a batch takes.
        hold: Batches wait as long as there is a file of this name.
        rank: Only this rank's batches take their time; by default every rank's.
    """

    def __init__(self, *, seconds: float = 0.0, hold: str = "", rank: int | None = None) -> None:
        super().__init__("train")
        self._seconds = seconds if rank in (None, int(os.environ.get("RANK", "0"))) else 0.0
        self._hold = Path(hold) if hold else None

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        time.sleep(self._seconds)
        while self._hold is not None and self._hold.exists():
            time.sleep(0.005)
        return super().batch(indices)
