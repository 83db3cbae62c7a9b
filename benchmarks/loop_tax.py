"""What a loop adds to a step: the same small step in bare PyTorch, in the harness, under stock torch.profiler,
in Lightning and in Accelerate.

The step: an MLP of three layers, 256 wide, on batches of 64, SGD, fp32, one CPU thread. Batches are made before
the clock starts. Every loop reads its loss every 50 steps, and logs it where it has a logger. A measurement is the
median over the loop's laps of 50 steps. The contenders take turns, in another order each round.
"""

from __future__ import annotations

import itertools
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from benchmarks.table import against, arguments, interleaved, show
from harness.board.events.logger import Logger
from harness.console import PlainProgress
from harness.data import Loader
from harness.models import MLP
from harness.record import Profiler, Schedule
from harness.train.tasks import Classification
from harness.train.trainer import Trainer

WIDTH, BATCH, CLASSES, LOG_EVERY = 256, 64, 10, 50
NEVER = 1_000_000_000

Batch = tuple[Tensor, Tensor]


class Batches:
    """The same 64 batches over and over, from memory."""

    facts = {"kind": "images", "in_channels": 1, "image_size": (16, 16), "num_classes": CLASSES}  # noqa: RUF012

    def __init__(self, steps: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self._made = [
            (
                torch.randn(BATCH, WIDTH, generator=generator),
                torch.randint(CLASSES, (BATCH,), generator=generator),
            )
            for _ in range(64)
        ]
        self._steps = steps

    def make(self, number: int) -> Batch:
        return self._made[number % len(self._made)]

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        return map(self.make, range(self._steps))


class Laps:
    """The clock of a loop, pressed every 50 steps; the first lap, which warms up, does not count."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def press(self, step: int) -> None:
        if step % LOG_EVERY == 0:
            self._times.append(time.perf_counter())

    def step_us(self) -> float:
        """Median over the laps of a step's time, in microseconds."""
        return statistics.median(b - a for a, b in itertools.pairwise(self._times)) / LOG_EVERY * 1e6


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = MLP(in_channels=1, image_size=16, num_classes=CLASSES, hidden=[WIDTH, WIDTH])
    return model, torch.optim.SGD(model.parameters(), lr=1e-3)


def bare(steps: int) -> float:
    model, optimizer = build()
    laps = Laps()
    for number, (inputs, labels) in enumerate(Batches(steps), 1):
        loss = functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % LOG_EVERY == 0:
            loss.item()
            laps.press(number)
    return laps.step_us()


def stock(steps: int) -> float:
    """torch.profiler's own loop while it waits, with a span around forward, backward and optimizer."""
    model, optimizer = build()
    laps = Laps()
    with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=NEVER, warmup=1, active=1)) as profiler:
        for number, (inputs, labels) in enumerate(Batches(steps), 1):
            with record_function("forward"):
                loss = functional.cross_entropy(model(inputs), labels)
            with record_function("backward"):
                loss.backward()
            with record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            if number % LOG_EVERY == 0:
                loss.item()
                laps.press(number)
            profiler.step()
    return laps.step_us()


def harness(steps: int) -> float:
    """Trainer.fit with its five spans, TensorBoard every 50 steps, and a profiler that waits."""
    model, optimizer = build()
    laps = Laps()
    with tempfile.TemporaryDirectory() as folder:
        logdir = Path(folder) / "logs"
        logger = Logger(logdir / "run")
        logger.layout()
        trainer = Trainer(
            model=model,
            task=Classification(),
            optimizer=optimizer,
            train=Loader(Batches(steps), batch_size=BATCH),
            device=torch.device("cpu"),
            max_steps=steps,
            log_every=LOG_EVERY,
            logger=logger,
            progress=PlainProgress(0, steps),
            on_log=lambda step, metrics: laps.press(step),
        )
        profiler = Profiler(logdir, "run", Schedule(wait=NEVER, warmup=1, active=1))
        trainer.fit(profiler)
        logger.close()
    return laps.step_us()


def lightning(steps: int) -> float:
    import lightning.pytorch as pl
    from lightning.pytorch.loggers import TensorBoardLogger

    class Module(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self._optimizer = build()

        def training_step(self, batch: Batch, index: int) -> Tensor:
            loss = functional.cross_entropy(self.model(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self._optimizer

    class Clock(pl.Callback):
        def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
            laps.press(trainer.global_step)

    laps = Laps()
    with tempfile.TemporaryDirectory() as folder:
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=1,
            log_every_n_steps=LOG_EVERY,
            logger=TensorBoardLogger(folder),
            callbacks=[Clock()],
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        loader = torch.utils.data.DataLoader(_Iterable(steps), batch_size=None)
        trainer.fit(Module(), loader)
    return laps.step_us()


def accelerate(steps: int) -> float:
    from accelerate import Accelerator

    with tempfile.TemporaryDirectory() as folder:
        accelerator = Accelerator(cpu=True, log_with="tensorboard", project_dir=folder)
        accelerator.init_trackers("run")
        loader = torch.utils.data.DataLoader(_Iterable(steps), batch_size=None)
        model, optimizer, loader = accelerator.prepare(*build(), loader)
        laps = Laps()
        for number, (inputs, labels) in enumerate(loader, 1):
            with accelerator.accumulate(model):
                loss = functional.cross_entropy(model(inputs), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if number % LOG_EVERY == 0:
                accelerator.log({"loss": loss.item()}, step=number)
                laps.press(number)
        accelerator.end_training()
    return laps.step_us()


class _Iterable(torch.utils.data.IterableDataset[Batch]):
    def __init__(self, steps: int) -> None:
        self._batches = Batches(steps)

    def __iter__(self) -> Iterator[Batch]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--steps", type=int, default=3000, help="steps of a measurement (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=21, help="measurements of each loop (default: %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave out Lightning and Accelerate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    for name in ("lightning.pytorch", "lightning.fabric", "accelerate"):
        logging.getLogger(name).setLevel(logging.ERROR)

    loops: dict[str, Callable[[int], float]] = {"bare": bare, "harness": harness, "stock torch.profiler": stock}
    if not options.no_peers:
        loops |= {"Accelerate": accelerate, "Lightning": lightning}
    for loop in loops.values():
        loop(200)
    contenders = {name: lambda loop=loop: loop(options.steps) for name, loop in loops.items()}
    # A second bare loop shows what the machine's noise alone makes of the ratio.
    contenders = dict(itertools.chain(contenders.items(), [("bare again", contenders["bare"])]))
    rows = against(interleaved(contenders, options.rounds), versus="bare", unit="µs a step")
    show(f"Loop tax: {options.rounds} rounds of {options.steps} steps", rows, options.json)


if __name__ == "__main__":
    main()
