"""A data set for jobs whose disk takes no more from some batch on; jobs find it beside the tests.

``data=custom data.train._target_=small_files.Limited +data.train.at=5 +data.train.size=20000``
"""

from __future__ import annotations

import os
import resource

from torch import Tensor

from harness.data import Digits


class Limited(Digits):
    """Digits of which one batch makes the process's files take no more than ``size`` bytes each, as ``ulimit -f`` does.

    Args:
        at: The batch, counted as they are asked for; the first is looked at before the first step. 0 is the data set's
            own making, before the run begins.
        rank: Of this process alone; by default of all.
        pad: Makes a manifest, which holds all overrides, larger than what the job prints.
        nan: From then on batches are no numbers too.
    """

    def __init__(self, *, at: int, size: int, rank: int | None = None, nan: bool = False, pad: str = "") -> None:
        super().__init__("train")
        self._left, self._size, self._nan = at, size, nan
        self._is_meant = rank in (None, int(os.environ.get("RANK", "0")))
        self._count_down()

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        self._count_down()
        inputs, targets = super().batch(indices)
        return (inputs * float("nan") if self._nan and self._left < 0 else inputs), targets

    def _count_down(self) -> None:
        if self._left == 0 and self._is_meant:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, hard))
        self._left -= 1
