"""From a command line to trained runs: composed by Hydra, checked, and each trained by :mod:`harness.train.job`.

Starts without torch, so that a mistake is told at once. Run by ``harness train`` and by ``python -m harness.train``,
with Hydra's grammar and flags.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from signal import SIGTERM
from typing import TYPE_CHECKING, Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import console, credentials, search_path
from harness.config import misspelt, schema
from harness.distributed import launch
from harness.distributed import world as distributed
from harness.distributed.world import World
from harness.errors import DivergedError, NotSavedError, UsageError
from harness.logdir.rows import Row, show_sweep
from harness.logdir.run import (
    LOG_FILE,
    MANIFEST,
    FollowedRun,
    Manifest,
    RunDirectory,
    command_line,
    git_revision,
    now,
    read_manifest,
    remove_empty,
    versions,
)
from harness.report.figure import sweep as sweep_figure
from harness.train import completion, overrides, resume, sweep
from harness.train.summary import show_run

if TYPE_CHECKING:
    from harness.train.trainer import Summary

log = logging.getLogger(__name__)

GROUPS = ("model", "data", "task", "optimizer", "scheduler", "strategy", "profiler", "experiment")


class InterruptedRun(SystemExit):
    """A signal ended the run in order; the exit status is 128 and the signal's number."""


def main(arguments: list[str] | None = None, *, prog: str = "harness train") -> int:
    """Run Hydra's command line.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad usage or input, 129, 130 or 143 interrupted.
    """
    with console.lasting():
        return _main(arguments, prog)


def _main(arguments: list[str] | None, prog: str) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    wants_traceback = _Single.wants_traceback = "HYDRA_FULL_ERROR" in os.environ
    failed = False
    try:
        if script := completion.script(arguments):
            print(script)
        else:
            _Single.world = World()
            _Single.world = distributed.join()
            _run_hydra(prog, arguments)
    except InterruptedRun as stop:
        return _status_of_stop(int(stop.code or 0))
    except launch.ProcessesEnded as ended:
        return ended.status
    except Exception as error:
        failed = True
        if wants_traceback:
            traceback.print_exc()
        return _report(error)
    finally:
        _Single.world.leave(failed=failed)
    return 0


def _status_of_stop(status: int) -> int:
    """An elastic launcher that may start the processes again takes every status but 0 as its sign to do so."""
    return 0 if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", 0)) else status


def _run_hydra(prog: str, arguments: list[str]) -> None:
    schema.register()
    world = _Single.world
    name = schema.name_this_run(lambda name: world.agree("run", name))
    in_sweep = bool(set(overrides.MULTIRUN) & set(arguments))
    if in_sweep and world.joined:
        raise UsageError("a sweep starts the processes of each of its runs itself: harness train -m trainer.devices=N")
    _Single.began, _Single.error, NoteSweep.logdir, NoteSweep.errors = False, None, None, ()
    NoteSweep.unsaved = None
    if (path := world.earlier_path()) is not None and (Path(path) / MANIFEST).exists():
        arguments = [*arguments, overrides.assign("resume", path)]
    if in_sweep:
        arguments, before = sweep.resumed(arguments)
        name = before or name
        NoteSweep.sweep = sweep.Sweep(id=name, arguments=list(arguments))
        argv = [prog, *arguments, f"sweep={name}", _names_only_what_varies(arguments)]
    else:
        argv = [prog, *resume.complete(arguments)]
    # Hydra keeps a sweep's arguments, and its errors repeat them.
    if secret := [text.partition("=")[0] for text in argv if credentials.has_secret(text)]:
        raise UsageError(*(f"{key}: its address holds a password or a token, and {credentials.HOW}" for key in secret))
    with _hydra_environment(argv), search_path.Sheltered() if in_sweep else nullcontext():
        try:
            hydra.main(version_base="1.3", config_path=str(schema.CONF), config_name="config")(job)()
        except (HydraException, UsageError):
            raise
        except Exception as error:
            if in_sweep and NoteSweep.logdir is not None and not any(NoteSweep.folder.glob(f"{name}_*")):
                raise UsageError(f"no job of the sweep could be started: {error}") from error
            if _Single.began or in_sweep or not isinstance(error, OSError):
                raise
            raise UsageError(f"the run's directory cannot be made: {error}; choose another logdir") from error
        finally:
            if NoteSweep.logdir is not None and sweep.was_begun(NoteSweep.folder, name, NoteSweep.logdir):
                rows = show_sweep(NoteSweep.logdir, name)
                NoteSweep.errors = [row.error for row in rows if row.error]
                _draw(rows, NoteSweep.folder / name)
    if _Single.error is not None:
        raise _Single.error


@contextmanager
def _hydra_environment(argv: list[str]) -> Iterator[None]:
    """What Hydra reads from the process, and where modules of the user's own are found."""
    saved_argv, saved_path, saved_errors = sys.argv, list(sys.path), os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = argv
    search_path.join_users_folder()
    # Hydra ends errors with a message of its own and status 1 unless it is told to let them through.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    try:
        yield
    finally:
        sys.argv, sys.path[:] = saved_argv, saved_path
        if saved_errors is None:
            os.environ.pop("HYDRA_FULL_ERROR", None)


class NoteSweep(Callback):
    """Remembers where a sweep goes, so that its table can be printed however it ends, and it can be gone on with."""

    sweep: sweep.Sweep
    logdir: Path | None = None
    folder: Path
    errors: Sequence[str] = ()
    """Of its runs, as its table has told them."""
    unsaved: UsageError | None = None

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        NoteSweep.logdir = Path(config.logdir)
        NoteSweep.folder = NoteSweep.logdir / config.name
        try:
            sweep.save(NoteSweep.folder, NoteSweep.sweep)
        except UsageError as error:
            # Hydra makes a warning of what a callback raises.
            NoteSweep.unsaved = error


def _draw(rows: Sequence[Row], folder: Path) -> None:
    """Put a sweep over one number into TensorBoard; a disk that is full is no reason to fail."""
    with suppress(OSError):
        if sweep_figure.to_tensorboard(rows, folder):
            console.out.print("Step time against what varies: TensorBoard, tab Images", highlight=False)


def _names_only_what_varies(arguments: list[str]) -> str:
    """An override that keeps the values which all jobs of the sweep share out of their directories' names."""
    texts = [text for text in arguments if "=" in text and not text.startswith("-")]
    shared = [
        o.get_key_element().lstrip("+")
        for o in OverridesParser.create().parse_overrides(texts)
        if not o.is_sweep_override()
    ]
    keys = ",".join(key for key in ("logdir", "name", "sweep", *shared) if not key.startswith("hydra"))
    return f"hydra.job.config.override_dirname.exclude_keys=[{keys}]"


class _Single:
    """How the one job of a run without ``-m`` ended; Hydra prints its own lines of errors that pass through it."""

    began = False
    error: Exception | None = None
    world = World()
    """This process among those of the job."""
    wants_traceback = False
    """Whether the user has set ``HYDRA_FULL_ERROR``, which is set for Hydra's sake while it runs."""


def job(composed: DictConfig) -> float | None:
    """Train what Hydra composed; a sweeper gets the evaluation's loss, or the training's.

    Raises:
        InterruptedRun: where SIGTERM, SIGINT or SIGHUP ended it.
    """
    _Single.began = True
    search_path.join_users_folder()
    if HydraConfig.get().mode == RunMode.MULTIRUN:
        # A worker of a launcher has a terminal of its own.
        with console.lasting():
            return _job(composed)
    try:
        return _job(composed)
    except Exception as error:
        _Single.error = error
        return None


def _job(composed: DictConfig) -> float | None:
    settings = HydraConfig.get()
    world = _Single.world
    path = Path(settings.runtime.output_dir)
    in_sweep = settings.mode == RunMode.MULTIRUN
    if NoteSweep.unsaved is not None:
        remove_empty(path, Path(composed.logdir))
        raise NoteSweep.unsaved
    if in_sweep and (life := sweep.earlier_life(path)) is not None:
        if life.status == "completed":
            console.err.print(f"{console.plain(life.id)} was completed before: skipped", highlight=False)
            return _objective(composed, life.metrics)
        composed.resume = str(path)
    try:
        processes = launch.count(composed.trainer.devices)
        if processes > 1 and not in_sweep:
            schema.checked(composed)
    except UsageError:
        remove_empty(path, Path(composed.logdir))
        raise
    if processes > 1 and not world.joined:
        return _launch(composed, path, processes)
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
            config = schema.checked(composed)
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
    again = f"make room and go on with: {resume.command(run.path)}"
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
        saved = f"all saved; go on with: {resume.command(run.path)}"
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


def _launch(composed: DictConfig, path: Path, processes: int) -> float | None:
    """Train in several processes, which get this one's configuration; what the run says in the end."""
    settings = HydraConfig.get()
    folders = [source for source in settings.runtime.config_sources if source.provider == "command-line"]
    arguments = [
        *(argument for folder in folders for argument in ("--config-dir", folder.path)),
        *_overrides(),
    ]
    if composed.resume is None:
        arguments.append(overrides.assign("hydra.run.dir", path.absolute()))
    elif not any(overrides.key(text) == "resume" for text in arguments):
        arguments.append(overrides.assign("resume", path.absolute()))
    # Which is there for Hydra's sake, unless the user wants it.
    hidden = None if _Single.wants_traceback else os.environ.pop("HYDRA_FULL_ERROR", None)
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


def _report(error: Exception) -> int:
    """Say what went wrong, briefly where it is the user's to mend, and once for all ranks; the exit status."""
    if not _Single.world.leads and isinstance(error, UsageError | HydraException | OmegaConfBaseException):
        return 2
    if isinstance(error, DivergedError | NotSavedError) and not _Single.world.leads:
        return 1
    if isinstance(error, UsageError | HydraException | OmegaConfBaseException):
        explained = misspelt.explain(error, schema.CONF)
        message = explained or str(error)
        if not explained and isinstance(error, HydraException) and str(error.__cause__ or "") not in message:
            message += f"\n{error.__cause__}"
        # Where in OmegaConf's own tree of types it happened helps nobody.
        message = "\n".join(line for line in message.splitlines() if "_type=" not in line)
        if message in NoteSweep.errors:
            return 2
        hidden = isinstance(error, UsageError) and error.__cause__ is not None
        console.error(message + ("\n(HYDRA_FULL_ERROR=1 shows where)" if hidden else ""))
        return 2
    if isinstance(error, DivergedError | NotSavedError):
        if str(error) not in NoteSweep.errors:
            console.error(error)
        return 1
    traceback.print_exception(error)
    return 1
