"""A recorded window of a small transformer that trains on the CPU: the trace that several benchmarks read.

python -m benchmarks.small_transformer STEPS PATH [ddp]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def record(path: Path, steps: int, *, ddp: bool = False) -> None:
    """Write a window of so many steps, in a process of its own.

    Args:
        ddp: Train under DDP on gloo, as the only rank.
    """
    command = [sys.executable, "-m", "benchmarks.small_transformer", str(steps), str(path), *(["ddp"] if ddp else [])]
    subprocess.run(command, check=True, capture_output=True)


def train(steps: int, path: str, *, ddp: bool) -> None:
    import torch
    from torch import distributed, nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    model: nn.Module = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    if ddp:
        distributed.init_process_group("gloo", init_method=f"file://{path}.store", rank=0, world_size=1)
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    ) as profiler:
        for _ in range(steps + 1):
            model(torch.randn(4, 16, 64)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()


if __name__ == "__main__":
    train(int(sys.argv[1]), sys.argv[2], ddp="ddp" in sys.argv[3:])
