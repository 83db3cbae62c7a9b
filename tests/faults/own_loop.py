"""A loop of somebody's own: it keeps its state by itself, and says where it goes on.

    own_loop LOGDIR STATE STEPS

Run by a launcher under the tests' zygote, see ``launch.py``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from harness.record import Profiler, Schedule

SAVE_EVERY = 5


def save(path: Path, state: dict[str, object]) -> None:
    aside = path.with_suffix(".aside")
    torch.save(state, aside)
    aside.replace(path)


def main() -> None:
    logdir, state, steps = Path(sys.argv[-3]), Path(sys.argv[-2]), int(sys.argv[-1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Linear(32, 8)
    optimizer = torch.optim.Adam(model.parameters())
    step = 0
    if state.exists():
        saved = torch.load(state, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    schedule = Schedule(wait=4, warmup=1, active=2)
    with Profiler(logdir, "mine/loop", schedule, first_step=step, max_overhead=None) as profiler:
        while step < steps:
            time.sleep(0.005)
            inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(step))
            model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            profiler.step()
            if step % SAVE_EVERY == 0:
                save(state, {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step})
    state.with_name(f"{state.name}.done").touch()
