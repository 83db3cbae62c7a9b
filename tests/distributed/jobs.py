"""Jobs of several ranks for the tests, each rank a real ``harness train`` process, as torchrun would start it."""

from __future__ import annotations

import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.launch import TIMEOUT_S, TINY, Command, Ended, Launcher, wait_until

TINY_GPT = (
    "model=transformer",
    "model.width=16",
    "model.depth=2",
    "model.heads=2",
    "optimizer=adamw",
    "trainer.device=cpu",
    "trainer.threads=1",
    "trainer.max_steps=6",
    "trainer.log_every=1",
    "trainer.eval_every=3",
    "trainer.eval_batches=3",
    "profiler=none",
)
"""A transformer of two blocks, without its data."""

GPT = (*TINY_GPT, "data=text", "data.train.context_length=16", "data.eval.context_length=16")
"""On the text that ships with Python."""

SLOW = (
    *TINY,
    "data=custom",
    "data.eval=null",
    "data.train._target_=slow_digits.SlowDigits",
    "+data.train.seconds=0.01",
    "data.batch_size=16",
    "trainer.max_steps=100000",
)
"""A job that goes on until it is stopped."""


@dataclass(frozen=True)
class Job:
    """The ranks of one job, in order."""

    ranks: Sequence[Command]

    def wait(self, timeout: float = TIMEOUT_S) -> list[Ended]:
        return [rank.wait(timeout) for rank in self.ranks]

    def signal(self, rank: int, number: signal.Signals) -> None:
        self.ranks[rank].signal(number)

    @property
    def text(self) -> str:
        return "\n".join(f"--- rank {number}\n{rank.text}" for number, rank in enumerate(self.ranks))


def start(harness: Launcher, size: int, *overrides: str, cwd: Path | None = None) -> Job:
    """Start ``harness train OVERRIDES...`` on so many ranks."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    return Job(
        [
            harness.start("train", *overrides, cwd=cwd, env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(size)
        ]
    )


def train(harness: Launcher, size: int, *overrides: str, cwd: Path | None = None) -> Job:
    """The same, to its end, which has to be a good one on every rank."""
    job = start(harness, size, *overrides, cwd=cwd)
    assert [ended.status for ended in job.wait()] == [0] * size, job.text
    return job


def wait_for(job: Job, path: Path, pattern: str, timeout: float = 60.0) -> Path:
    """The first file or folder below ``path`` that matches, once it is there."""
    wait_until(lambda: any(path.glob(pattern)), timeout, lambda: f"{pattern} in {path}; the job said:\n{job.text}")
    return next(path.glob(pattern))
