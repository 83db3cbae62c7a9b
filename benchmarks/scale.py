"""What a job of several ranks costs: a step of the harness against a bare DDP loop, windows on one rank and on all,
and how the work scales with and without them.

On the CPU: an MLP of three layers, 512 wide, batches of 256 on each rank, gloo, one thread a rank. With
``--device cuda``: a GPT of 124 M parameters in bf16, 8 × 1024 tokens on each GPU, NCCL, DDP and FSDP2. Both loops
read the mean loss of all ranks every 50 steps. The contenders take turns within the same processes, in another order
each round; a value is the median over the rounds of a measurement's mean step, its first 50 left out, so that windows
count.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.table import Row, against, arguments, interleaved, show
from harness.board.events.logger import Logger, NoLogger
from harness.console import NoProgress
from harness.data import Loader
from harness.distributed.strategy import Replicated, Sharded, Strategy, find_blocks
from harness.distributed.world import World, alone, join
from harness.models import MLP, Transformer
from harness.record import Profiler, Schedule
from harness.train.tasks import Classification, LanguageModeling
from harness.train.trainer import Trainer

LOG_EVERY = 50
NEVER = 1_000_000_000
SIDE, WIDTH, CLASSES, BATCH = 16, 512, 10, 256
VOCABULARY, CONTEXT, SEQUENCES = 50304, 1024, 8

Batch = tuple[Tensor, Tensor]


class Batches:
    """The same few batches over and over, on the device."""

    def __init__(self, device: torch.device, steps: int, rank: int) -> None:
        generator = torch.Generator().manual_seed(rank)
        if device.type == "cuda":
            tokens = torch.randint(VOCABULARY, (4, SEQUENCES, CONTEXT + 1), generator=generator).to(device)
            self._made = [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in tokens]
        else:
            images = torch.randn(16, BATCH, SIDE**2, generator=generator)
            self._made = list(zip(images, torch.randint(CLASSES, (16, BATCH), generator=generator), strict=True))
        self._steps = steps

    def make(self, number: int) -> Batch:
        return self._made[number % len(self._made)]

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        return map(self.make, range(self._steps))


def build(device: torch.device) -> nn.Module:
    torch.manual_seed(0)
    if device.type == "cuda":
        model: nn.Module = Transformer(vocab_size=VOCABULARY, context_length=CONTEXT, width=768, depth=12, heads=12)
    else:
        model = MLP(in_channels=1, image_size=SIDE, num_classes=CLASSES, hidden=[WIDTH, WIDTH])
    return model.to(device)


def spread(model: nn.Module, device: torch.device, strategy: str) -> Strategy:
    if strategy == "fsdp2":
        alone()
        return Sharded(model, find_blocks(model), device=device, param_dtype=torch.bfloat16)
    return Replicated(model) if dist.is_initialized() and dist.get_world_size() > 1 else Strategy(model)


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()


class Contenders:
    """The loops, each from its number of steps to the mean time of one in microseconds."""

    def __init__(self, world: World, device: torch.device, strategy: str, steps: int, every: int) -> None:
        self._world, self._device, self._strategy, self._steps, self._every = world, device, strategy, steps, every
        self._batches = Batches(device, steps, world.rank)

    def bare(self) -> float:
        spreading = spread(build(self._device), self._device, self._strategy)
        optimizer = self._optimizer(spreading.model)
        autocast = torch.autocast("cuda", torch.bfloat16, enabled=self._device.type == "cuda" and not spreading.casts)
        started = 0.0
        losses = []
        for number, (inputs, labels) in enumerate(self._batches):
            if number == LOG_EVERY:
                wait(self._device)
                started = time.perf_counter()
            with autocast:
                logits = spreading.train_forward(inputs)
                loss = functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            if (number + 1) % LOG_EVERY == 0:
                mean = torch.stack(losses)
                if self._world.size > 1:
                    dist.all_reduce(mean)
                mean.tolist()
                losses.clear()
        wait(self._device)
        return (time.perf_counter() - started) / (self._steps - LOG_EVERY) * 1e6

    def harness(self, schedule: Schedule, ranks: list[int]) -> float:
        spreading = spread(build(self._device), self._device, self._strategy)
        laps: list[float] = []

        def press(step: int, metrics: dict[str, float]) -> None:
            if step in (LOG_EVERY, self._steps):
                wait(self._device)
                laps.append(time.perf_counter())

        with tempfile.TemporaryDirectory() as folder:
            # One logdir for all ranks, as on a shared file system.
            logdir = Path(self._world.gather(folder)[0]) / "logs"
            trainer = Trainer(
                model=spreading,
                task=LanguageModeling() if self._device.type == "cuda" else Classification(),
                optimizer=self._optimizer(spreading.model),
                train=Loader(self._batches, batch_size=BATCH),
                device=self._device,
                max_steps=self._steps,
                precision="bf16" if self._device.type == "cuda" else "fp32",
                log_every=LOG_EVERY,
                logger=(Logger if self._world.leads else NoLogger)(logdir / "experiment" / "run"),
                progress=NoProgress(),
                on_log=press,
                world=self._world,
            )
            profiler = Profiler(logdir, "experiment/run", schedule, max_overhead=None, ranks=ranks)
            trainer.fit(profiler)
        return (laps[1] - laps[0]) / (self._steps - LOG_EVERY) * 1e6

    def all(self) -> dict[str, Callable[[], float]]:
        everybody = list(range(self._world.size))
        waiting, often = Schedule(wait=NEVER, warmup=1, active=1), Schedule(wait=self._every, warmup=2, active=3)
        found = {
            "bare": self.bare,
            "harness": lambda: self.harness(waiting, everybody),
            f"windows of all ranks, every {self._every + 5} steps": lambda: self.harness(often, everybody),
            "bare again": self.bare,
        }
        if self._world.size > 1:
            found[f"windows of rank 0, every {self._every + 5} steps"] = lambda: self.harness(often, [0])
        return found

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        if self._device.type == "cuda":
            return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        return torch.optim.SGD(model.parameters(), lr=1e-3)


def measure(options: argparse.Namespace) -> None:
    """One rank's part; rank 0 writes the values."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    world = join()
    device = torch.device("cuda", world.local_rank) if options.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    contenders = Contenders(world, device, options.strategy, options.steps, options.every).all()
    values = interleaved(contenders, options.rounds)
    if world.leads:
        options.measure.write_bytes(msgspec.json.encode(values))
    world.leave(failed=False)


def launched(options: argparse.Namespace, ranks: int, strategy: str) -> dict[str, list[float]]:
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id=secrets.token_hex(8),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=folder),
        )
        said = Path(folder) / "values.json"
        given = ("--measure", str(said), "--strategy", strategy, "--device", options.device)
        counts = ("--steps", str(options.steps), "--rounds", str(options.rounds), "--every", str(options.every))
        elastic_launch(config, sys.executable)("-m", "benchmarks.scale", *given, *counts)
        found: dict[str, list[float]] = msgspec.json.decode(said.read_bytes())
        return found


def scaling(values: dict[int, dict[str, list[float]]], strategy: str) -> list[Row]:
    """Of each loop at several numbers of ranks: its rate against that of one rank, times their number."""
    first, *others = sorted(values)
    rows = []
    for ranks, name in itertools.product(others, values[first]):
        alone = against({name: values[first][name]}, name, "")[0].value
        together = against({name: values[ranks][name]}, name, "")[0].value
        title = f"{strategy}, {ranks} ranks: {name}"
        rows.append(Row(name=title, value=100 * alone / together, unit="% of the rate of one rank, each"))
    return rows


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--ranks", type=int, nargs="+", help="default: 2 and 4; on GPUs 1 and all of them")
    parser.add_argument("--strategies", nargs="+", choices=("ddp", "fsdp2"), help="default: ddp; on GPUs both")
    parser.add_argument("--steps", type=int, default=400, help="steps of a measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="measurements of each loop (default: %(default)s)")
    parser.add_argument("--every", type=int, default=95, help="steps between two windows (default: %(default)s)")
    parser.add_argument("--strategy", default="ddp", help=argparse.SUPPRESS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps % LOG_EVERY or options.steps == LOG_EVERY:
        parser.error(f"--steps must be a multiple of {LOG_EVERY}, and more than that")
    if options.measure is not None:
        measure(options)
        return
    on_gpus = options.device == "cuda"
    sizes = options.ranks or ([1, torch.cuda.device_count()] if on_gpus else [2, 4])
    rows: list[Row] = []
    for strategy in options.strategies or (["ddp", "fsdp2"] if on_gpus else ["ddp"]):
        values = {ranks: launched(options, ranks, strategy) for ranks in sizes}
        for ranks, measured in values.items():
            found = against(measured, versus="bare", unit="µs a step")
            rows += [msgspec.structs.replace(row, name=f"{strategy}, {ranks} ranks: {row.name}") for row in found]
        if min(sizes) == 1:
            rows += scaling(values, strategy)
    show(f"Several ranks: {options.rounds} rounds of {options.steps} steps", rows, options.json)


if __name__ == "__main__":
    main()
