"""One run, from what Hydra has composed to its last word: its directory, its processes, and how it ended."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from harness import console, search_path
from harness.config import overrides
from harness.config.checks import checked
from harness.distributed import launch
from harness.distributed.world import World
from harness.errors import DivergedError, NotSavedError, UsageError
from harness.logdir.directory import FollowedRun, RunDirectory, remove_empty
from harness.logdir.layout import LOG_FILE, MANIFEST
from harness.logdir.manifest import Manifest, now, read_manifest
from harness.train import resume, sweep
from harness.train.origin import command_line, git_revision, versions
from harness.train.summary import Summary, show_run

log = logging.getLogger(__name__)

GROUPS = ("model", "data", "task", "optimizer", "scheduler", "strategy", "profiler", "experiment")


class InterruptedRun(SystemExit):
    """A signal ended the run in order; the exit status is 128 and the signal's number."""


@dataclass(kw_only=True)
class Runs:
    """What Hydra calls with each configuration that it composes: the only one, or a sweep's one after the other.

    A launcher that has workers pickles it, and they train with a copy.
    """

    world: World
    """This process among those of the job."""
    followed: sweep.Followed | None = None
    """The sweep; None for a single run."""
    wants_traceback: bool = False
    """Whether the user has set ``HYDRA_FULL_ERROR``, which is set for Hydra's sake while it runs."""
    began: bool = False
    error: Exception | None = None
    """How a single run ended: Hydra prints lines of its own of errors that pass through it."""

    def train(self, composed: DictConfig) -> float | None:
        """Train one; a sweeper gets the evaluation's loss, or the training's.

        Raises:
            InterruptedRun: where SIGTERM, SIGINT or SIGHUP ended it.
        """
        self.began = True
        search_path.join_users_folder()
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            # A worker of a launcher has a terminal of its own.
            with console.lasting():
                return self._train(composed)
        try:
            return self._train(composed)
        except Exception as error:
            self.error = error
            return None

    def _train(self, composed: DictConfig) -> float | None:
        settings = HydraConfig.get()
        path = Path(settings.runtime.output_dir)
        in_sweep = settings.mode == RunMode.MULTIRUN
        if self.followed is not None and self.followed.unsaved is not None:
            remove_empty(path, Path(composed.logdir))
            raise self.followed.unsaved
        if in_sweep and (life := sweep.earlier_life(path)) is not None:
            if life.status == "completed":
                console.err.print(f"{console.plain(life.id)} was completed before: skipped", highlight=False)
                return _objective(composed, life.metrics)
            composed.resume = str(path)
        try:
            processes = launch.count(composed.trainer.devices)
            if processes > 1 and not in_sweep:
                checked(composed)
        except UsageError:
            remove_empty(path, Path(composed.logdir))
            raise
        if processes > 1 and not self.world.joined:
            return self._launch(composed, path, processes)
        return train_here(composed, path, self.world)

    def _launch(self, composed: DictConfig, path: Path, processes: int) -> float | None:
        """Train in several processes, which get this one's configuration; what the run says in the end."""
        settings = HydraConfig.get()
        folders = [source for source in settings.runtime.config_sources if source.provider == "command-line"]
        arguments = [*(argument for folder in folders for argument in ("--config-dir", folder.path)), *_overrides()]
        if composed.resume is None:
            arguments.append(overrides.assign("hydra.run.dir", path.absolute()))
        elif not any(overrides.key(text) == "resume" for text in arguments):
            arguments.append(overrides.assign("resume", path.absolute()))
        # Which is there for Hydra's sake, unless the user wants it.
        hidden = None if self.wants_traceback else os.environ.pop("HYDRA_FULL_ERROR", None)
        try:
            launch.run(
                arguments,
                processes=processes,
                max_restarts=composed.trainer.max_restarts,
                threads=composed.trainer.threads,
            )
        finally:
            if hidden is not None:
                os.environ["HYDRA_FULL_ERROR"] = hidden
        manifest = read_manifest(path)
        if manifest.status == "interrupted":
            raise InterruptedRun(128 + SIGTERM)
        return _objective(composed, manifest.metrics)


def train_here(composed: DictConfig, path: Path, world: World) -> float | None:
    """Train in this process what lies, or will lie, in ``path``; what a sweeper is told of it."""
    settings = HydraConfig.get()
    in_sweep = settings.mode == RunMode.MULTIRUN
    live = "BasicLauncher" in settings.launcher._target_
    manifest = Manifest(
        id="/".join(path.parts[-2:]),
        status="running",
        step=0,
        max_steps=composed.trainer.max_steps,
        started=now(),
        updated=now(),
        command=command_line(),
        overrides=[text for text in _overrides() if overrides.key(text) not in resume.NEVER_KEPT],
        choices={group: str(settings.runtime.choices.get(group)) for group in GROUPS},
        sweep=composed.sweep,
        world_size=world.size,
        versions=versions(),
        git=git_revision(),
    )
    before = read_manifest(path) if composed.resume is not None else None
    if before is not None:
        manifest.resumed_from, manifest.started = before.resumed_from, before.started
        manifest.metrics, manifest.configuration = before.metrics, before.configuration
    with ExitStack() as held:
        with world.together():
            kind = RunDirectory if world.leads else FollowedRun
            run = held.enter_context(kind(path, manifest, logdir=Path(composed.logdir)))
        world.note_path(str(path.absolute()))
        rank = None if world.leads else world.rank
        held.enter_context(console.logging_to(path / LOG_FILE if world.leads else None, rank=rank))
        try:
            over = before is not None and before.status == "completed"
            config = checked(composed)
            # torch takes seconds to load, and a mistake is told before.
            from harness.train.job import train

            summary = train(composed, config, run, world, live=live, over=over)
        except DivergedError as error:
            run.finish("failed", str(error))
            raise
        except Exception as error:
            if run.started or in_sweep:
                run.finish(
                    "failed", str(error) if isinstance(error, UsageError) else f"{type(error).__name__}: {error}"
                )
            raise
        _end(run, world, summary)
    if not in_sweep and world.leads:
        show_run(path, summary)
    return _objective(composed, {**run.manifest.metrics, **summary.metrics})


def _end(run: RunDirectory, world: World, summary: Summary) -> None:
    """Write the last word of a run that has come to its end or was stopped, and say no more than what is on disk.

    Raises:
        InterruptedRun: where a signal has stopped it.
        NotSavedError: on all ranks, where its state or its last word is not on disk.
    """
    stop = summary.stopped_by
    ended = f"{stop.name}: stopped after step {summary.step}" if stop is not None else f"step {summary.step} is done"
    again = f"make room and go on with: {overrides.resume_command(run.path)}"
    if summary.unsaved is not None:
        problem = f"{ended}, but its state is not on disk: {summary.unsaved}; {again}"
        run.finish("failed", problem)
        raise NotSavedError(problem)
    unwritten = world.gather(run.finish("completed" if stop is None else "interrupted"))[0]
    if unwritten is not None:
        state = "its state is saved" if summary.saved else "nothing of it is saved, since checkpoints are off"
        raise NotSavedError(
            f"{ended}; {state}, but {run.path / MANIFEST} could not be written ({unwritten}), and `harness runs` will "
            f"say that it was killed; {again}"
        )
    if stop is None:
        return
    if summary.saved:
        saved = f"all saved; go on with: {overrides.resume_command(run.path)}"
    else:
        saved = "nothing saved, since checkpoints are off (checkpoint.enabled=false)"
    log.info("%s: stopped after step %d, %s", stop.name, summary.step, saved)
    raise InterruptedRun(128 + stop)


def _overrides() -> list[str]:
    """The job's overrides as they were given: what they name of the environment stays a name."""
    given = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    assert isinstance(given, list)
    return [str(text) for text in given]


def _objective(composed: DictConfig, metrics: Mapping[str, float]) -> float | None:
    """What a search is told of a run that ended with these figures."""
    aim = composed.objective
    return sweep.objective(metrics, aim.metric, maximize=aim.maximize, max_memory_mib=aim.max_memory_mib)
