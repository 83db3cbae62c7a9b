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
        hold: Batches wait as long as there is a file of this name; one that does leaves a file ``HOLD.waits``.
        count: A file that grows by a byte with each batch.
        rank: Only this rank's batches take their time; by default every rank's.
    """

    def __init__(self, *, seconds: float = 0.0, hold: str = "", count: str = "", rank: int | None = None) -> None:
        super().__init__("train")
        self._seconds = seconds if rank in (None, int(os.environ.get("RANK", "0"))) else 0.0
        self._hold = Path(hold) if hold else None
        self._count = Path(count) if count else None

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        time.sleep(self._seconds)
        if self._count is not None:
            with self._count.open("ab") as file:
                file.write(b".")
        while self._hold is not None and self._hold.exists():
            self._hold.with_name(f"{self._hold.name}.waits").touch()
            time.sleep(0.005)
        return super().batch(indices)
