"""How long the loop stands still at a window's end: stock torch.profiler, Lightning's PyTorchProfiler, the harness.

The model is ``harness.models.Transformer`` in training: on a GPU the GPT of 124 M parameters (vocabulary 50257, context
1024, width 768, depth 12, heads 12) on batches of 8 in bf16, on the CPU a small one. A window is 2 steps of warm-up and
5 that are recorded. Stock is measured twice: with ``tensorboard_trace_handler(use_gzip=True)``, and with
``key_averages().table()`` as well. The device has finished before the clock starts: the wait for it is for work that
the steps have asked for. The contenders take turns.
"""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler

from benchmarks.table import Row, against, arguments, interleaved, show
from harness.models import Transformer
from harness.record import Profiler, Schedule, TraceOptions

WARMUP, ACTIVE = 2, 5
CUDA = torch.cuda.is_available()
ALL = {"record_shapes": True, "profile_memory": True, "with_stack": True, "with_flops": True}
ACTIVITIES = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if CUDA else [])]
SMALL = {"vocab_size": 512, "context_length": 64, "width": 64, "depth": 4, "heads": 4}
GPT = {"vocab_size": 50257, "context_length": 1024, "width": 768, "depth": 12, "heads": 12}


class Job:
    """Training steps of the model, without a profiler."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self._device = torch.device("cuda" if CUDA else "cpu")
        size = GPT if CUDA else SMALL
        self.model: nn.Module = Transformer(**size).to(self._device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        shape = (8, size["context_length"])
        self.tokens = torch.randint(size["vocab_size"], shape, device=self._device)

    def to_device(self) -> None:
        """The model, and what the optimizer keeps of it."""
        self.model.to(self._device)
        for state in self.optimizer.state.values():
            state.update({key: value.to(self._device) for key, value in state.items() if value.ndim})

    def loss(self) -> Tensor:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=CUDA):
            logits = self.model(self.tokens)
            return functional.cross_entropy(logits.flatten(0, 1), self.tokens.flatten())

    def step(self) -> None:
        self.loss().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def clocked(end: Callable[[], object]) -> float:
    """Milliseconds that ``end`` takes once the device is idle."""
    if CUDA:
        torch.cuda.synchronize()
    started = time.perf_counter()
    end()
    return (time.perf_counter() - started) * 1e3


def stock(job: Job, options: dict[str, Any], folder: str, *, table: bool) -> float:
    handler = tensorboard_trace_handler(folder, use_gzip=True)

    def ready(prof: profile) -> None:
        handler(prof)
        if table:
            prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=15)

    plan = schedule(wait=1, warmup=WARMUP, active=ACTIVE, repeat=1)
    with profile(activities=ACTIVITIES, schedule=plan, on_trace_ready=ready, **options) as profiler:
        for _ in range(WARMUP + ACTIVE):
            job.step()
            profiler.step()
        job.step()
        return clocked(profiler.step)


def harness(job: Job, options: dict[str, Any], folder: str) -> float:
    plan = Schedule(wait=1, warmup=WARMUP, active=ACTIVE, repeat=1)
    published: list[object] = []
    with Profiler(Path(folder) / "logs", "job", plan, TraceOptions(**options), on_window=published.append) as profiler:
        for _ in range(WARMUP + ACTIVE):
            job.step()
            profiler.step()
        job.step()
        took = clocked(profiler.step)
    assert len(published) == 1
    return took


def lightning(job: Job, options: dict[str, Any], folder: str) -> float:
    """Its profiler writes each window by itself; the loop waits in the hook that ends the last recorded step."""
    import lightning.pytorch as pl
    from lightning.pytorch.profilers import PyTorchProfiler

    longest = 0.0

    class Timed(PyTorchProfiler):
        def stop(self, action_name: str) -> None:
            nonlocal longest
            if "training_step" in action_name or action_name == "run_training_batch":
                longest = max(longest, clocked(lambda: super(Timed, self).stop(action_name)))
            else:
                super().stop(action_name)

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = job.model

        def training_step(self, batch: Any, index: int) -> Tensor:
            return job.loss()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return job.optimizer

    profiler = Timed(
        dirpath=folder,
        filename="lightning",
        activities=ACTIVITIES,
        schedule=schedule(wait=1, warmup=WARMUP, active=ACTIVE, repeat=1),
        emit_nvtx=False,
        **options,
    )
    trainer = pl.Trainer(
        accelerator="gpu" if CUDA else "cpu",
        devices=1,
        max_steps=1 + WARMUP + ACTIVE + 2,
        logger=False,
        profiler=profiler,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(64, 1)), batch_size=1)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        trainer.fit(Module(), loader)
    # Lightning leaves the model on the CPU.
    job.to_device()
    return longest


def measure(contender: Callable[..., float], job: Job, options: dict[str, Any], **more: Any) -> float:
    with tempfile.TemporaryDirectory(prefix="window_stall.") as folder:
        return contender(job, options, folder, **more)


GZIP, TABLE = "stock, gzip", "stock, gzip and key_averages"


def rows(options: dict[str, Any], rounds: int, *, peers: bool) -> list[Row]:
    job = Job()
    for _ in range(3):
        job.step()
    contenders: dict[str, Callable[[], float]] = {
        GZIP: lambda: measure(stock, job, options, table=False),
        TABLE: lambda: measure(stock, job, options, table=True),
        "harness": lambda: measure(harness, job, options),
    }
    if peers:
        contenders["Lightning's PyTorchProfiler"] = lambda: measure(lightning, job, options)
    contenders[GZIP](), contenders["harness"]()
    values = interleaved(contenders, rounds)
    first = against(values, versus=GZIP, unit="ms")
    second = next(row for row in against(values, versus=TABLE, unit="ms") if row.name == "harness")
    return [*first, second]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="windows of each contender (default: %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave out Lightning")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    if not CUDA:
        torch.set_num_threads(1)
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    peers = not options.no_peers
    if peers:
        try:
            import lightning.pytorch  # noqa: F401
        except ImportError:
            peers = False
    found: list[Row] = []
    for title, flags in (("no options", {}), ("all options", ALL)):
        measured = rows(flags, options.rounds, peers=peers)
        show(f"The loop's stall at a window's end, {title}: {options.rounds} rounds", measured, None)
        for row in measured:
            row.name = f"{row.name}: {title}"
            row.versus = f"{row.versus}: {title}"
        found += measured
    show("Both", found, options.json)


if __name__ == "__main__":
    main()
