"""Learning-rate schedules that torch has not in one piece."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


def warmup_cosine(optimizer: Optimizer, *, warmup_steps: int, max_steps: int, final: float = 0.0) -> LambdaLR:
    """Linear from 0 to the optimizer's rate over ``warmup_steps``, then half a cosine (Loshchilov & Hutter, 2016).

    Args:
        final: What is left of the rate at ``max_steps``, as a fraction.
    """

    def factor(step: int) -> float:
        if step < warmup_steps:
            return (step + 1) / warmup_steps
        progress = min(1.0, (step - warmup_steps) / max(1, max_steps - warmup_steps))
        return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))

    return LambdaLR(optimizer, factor)
