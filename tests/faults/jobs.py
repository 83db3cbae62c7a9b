"""The jobs that are killed: small ones, of every kind that goes on after a kill.

Each is quick, and takes as long as a test needs to catch it at something: checkpoints, evaluations and windows every
few steps. No evaluation falls into a window, whose end it would wait for: where an earlier life has recorded that
window, there is nothing to wait for, and the curve has its point a few steps earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from harness.logdir.manifest import Manifest
from tests.distributed import jobs as ranks
from tests.launch import TINY, Command, Launcher, window_every

PACE_S = 0.004
"""How long a batch takes at least, so that there is something between two checkpoints."""
TRAIN = (
    *(text for text in TINY if not text.startswith(("trainer.max_steps", "trainer.log_every", "checkpoint", "data"))),
    "data=custom",
    "data.train._target_=slow_digits.SlowDigits",
    f"+data.train.seconds={PACE_S}",
    "data.batch_size=16",
    "profiler.max_overhead=null",
)
EVALUATED = ("data.eval={_target_:harness.data.Digits,split:eval}", "trainer.eval_batches=2")


@dataclass(frozen=True)
class Job:
    """A job of ``harness train``, as a command that is given again until it is done.

    Args:
        name: Of this kind.
        overrides: Without steps and logdir.
        steps: To which it trains; of several, it is gone on with after each of them, with more steps.
        log_every: Steps between two points of its curves.
        checkpoint_every: Steps between two checkpoints.
        weight: How often it is drawn, against the others.
        size: Ranks.
    """

    name: str
    overrides: tuple[str, ...]
    steps: tuple[int, ...] = (40,)
    log_every: int = 1
    checkpoint_every: int = 4
    weight: float = 1.0
    size: int = 1

    @property
    def runs(self) -> int:
        """How many it is made of."""
        return 1

    def begin(self, launcher: Launcher, folder: Path) -> Sequence[Command]:
        """Start it, or go on with it where there is a run to go on with: its processes, one a rank."""
        run = self._visible(folder)
        steps = self.steps[0]
        if run is None:
            overrides = [*self.overrides, f"logdir={folder}/logs", *self._counts()]
        else:
            manifest = read_manifest(run)
            later = [one for one in self.steps if one > manifest.step or manifest.status != "completed"]
            steps = max(manifest.max_steps, later[0])
            overrides = [f"resume={run}"]
        overrides.append(f"trainer.max_steps={steps}")
        if self.size > 1:
            return ranks.start(launcher, self.size, *overrides, cwd=folder).ranks
        return [launcher.start("train", *overrides, cwd=folder)]

    def is_over(self, folder: Path) -> bool:
        """Whether there is nothing left to train."""
        run = self._visible(folder)
        return run is not None and is_completed(run, self.steps[-1])

    def results(self, folder: Path) -> dict[str, Path]:
        """Its runs, under names that those of another such job have too."""
        run = self._visible(folder)
        return {} if run is None else {"run": run}

    def _counts(self) -> list[str]:
        return [f"trainer.log_every={self.log_every}", f"checkpoint.every={self.checkpoint_every}"]

    def _visible(self, folder: Path) -> Path | None:
        found = sorted((folder / "logs").glob("*/*/run.json"))
        assert len(found) <= 1, f"a run was begun again beside one that could be gone on with: {found}"
        return found[0].parent if found else None


@dataclass(frozen=True)
class Sweep(Job):
    """Two jobs, one after the other, by ``harness train -m``."""

    @property
    def runs(self) -> int:
        return 2

    def begin(self, launcher: Launcher, folder: Path) -> Sequence[Command]:
        begun = sorted((folder / "logs").glob("*/*.sweep.json"))
        if begun:
            sweep = begun[0].name.removesuffix(".sweep.json")
            arguments = [f"resume={sweep}", f"logdir={folder}/logs"]
        else:
            arguments = [*self.overrides, f"logdir={folder}/logs", *self._counts(), "seed=1,2"]
            arguments.append(f"trainer.max_steps={self.steps[0]}")
        return [launcher.start("train", "-m", *arguments, cwd=folder)]

    def is_over(self, folder: Path) -> bool:
        found = self.results(folder)
        return len(found) == self.runs and all(is_completed(run, self.steps[-1]) for run in found.values())

    def results(self, folder: Path) -> dict[str, Path]:
        found = sorted((folder / "logs").glob("*/*/run.json"))
        return {path.parent.name.rpartition("seed=")[2]: path.parent for path in found}


@dataclass(frozen=True)
class OwnLoop(Job):
    """A loop of somebody's own with :class:`harness.record.Profiler`, see ``own_loop.py``."""

    def begin(self, launcher: Launcher, folder: Path) -> Sequence[Command]:
        arguments = (str(folder / "logs"), str(folder / "state.pt"), str(self.steps[0]))
        return [launcher.start(*arguments, cwd=folder, main="tests.faults.own_loop:main")]

    def is_over(self, folder: Path) -> bool:
        return (folder / "state.pt.done").exists()

    def results(self, folder: Path) -> dict[str, Path]:
        return {}


JOBS = (
    Job(
        "evaluations, the newest checkpoint alone",
        (*TRAIN, *EVALUATED, *window_every(5, 1, 2), "trainer.eval_every=8", "checkpoint.keep=1"),
        weight=3,
    ),
    Job(
        "dropout, momentum, a schedule of the learning rate",
        (
            *(*TRAIN, *window_every(5, 1, 2), "data.eval=null", "checkpoint.keep=3", "model.dropout=0.2"),
            *("optimizer=sgd", "optimizer.momentum=0.9", "scheduler=cosine", "scheduler.max_steps=40"),
        ),
        weight=2,
    ),
    Job(
        "points that checkpoints do not divide",
        (*TRAIN, *EVALUATED, *window_every(7, 1, 2), "trainer.eval_every=5", "checkpoint.keep=2"),
        log_every=3,
        weight=2,
    ),
    Job(
        "a checkpoint every step",
        (*TRAIN, *window_every(9, 1, 3), "data.eval=null", "checkpoint.keep=1"),
        checkpoint_every=1,
    ),
    Job(
        "windows as dense as they come",
        (*TRAIN, *window_every(1, 1, 1), "data.eval=null", "checkpoint.keep=2", "profiler.profile_memory=true"),
        checkpoint_every=7,
        weight=2,
    ),
    Job(
        "batches by workers",
        (*TRAIN, *window_every(5, 1, 2), "data.eval=null", "checkpoint.keep=2", "data.workers=2"),
        weight=0.5,
    ),
    Job(
        "gone on with twice, each time for more steps",
        (*TRAIN, *EVALUATED, *window_every(5, 1, 2), "trainer.eval_every=8", "checkpoint.keep=2"),
        steps=(12, 24, 36),
        weight=2,
    ),
    Sweep(
        "a sweep of two jobs",
        (*TRAIN, *window_every(5, 1, 2), "data.eval=null", "checkpoint.keep=1"),
        steps=(24,),
        weight=1.5,
    ),
    OwnLoop("a loop of one's own", (), steps=(60,), weight=1.5),
    Job(
        "two ranks, one model each",
        (*TRAIN, *window_every(5, 1, 2), "data.eval=null", "checkpoint.keep=1", "strategy=ddp"),
        size=2,
        weight=0.5,
    ),
    Job(
        "two ranks, a model in shards",
        (*TRAIN, *window_every(5, 1, 2), "data.eval=null", "checkpoint.keep=1", "strategy=fsdp2"),
        steps=(20,),
        size=2,
        weight=0.5,
    ),
)


def read_manifest(run: Path) -> Manifest:
    """``run.json`` as it is, whoever holds the run."""
    return msgspec.json.decode((run / "run.json").read_bytes(), type=Manifest)


def is_completed(run: Path, steps: int) -> bool:
    """Whether it has said that it is, with so many steps."""
    found = read_manifest(run)
    return found.status == "completed" and found.step >= steps
