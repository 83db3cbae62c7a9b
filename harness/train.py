"""From a configuration to a trained run: composed by Hydra, checked, built, trained, written down.

Run by ``harness train`` and by ``python -m harness.train``, with Hydra's grammar and flags.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGTERM
from typing import Any

import hydra
import torch
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness import build, completion, console, distributed, launch, resume, sweep, targets
from harness import config as schema
from harness.board.logger import Logger, NoLogger
from harness.board.points import HEADLINE
from harness.board.trends import Trends
from harness.checkpoint import Checkpoints
from harness.config import Config, SlowConfig
from harness.distributed import World
from harness.errors import UsageError
from harness.publish.retention import Keep, parse_bytes, parse_seconds
from harness.record import Profiler, PublishedWindow, Schedule, TraceOptions
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.record.spans import set_nvtx
from harness.run import (
    CHECKPOINTS,
    HYDRA,
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
from harness.runs import PEAK_OF_JOB, show_sweep
from harness.summary import show_run
from harness.tasks import Task
from harness.trainer import DivergedError, Summary, Trainer

log = logging.getLogger(__name__)

LOG_FILE = "train.log"
GROUPS = ("model", "data", "task", "optimizer", "scheduler", "strategy", "profiler", "experiment")


class InterruptedRun(SystemExit):
    """A signal ended the run in order; the exit status is 128 and the signal's number."""


def main(arguments: list[str] | None = None, *, prog: str = "harness train") -> int:
    """Run Hydra's command line.

    Returns:
        The exit status: 0 done, 1 failed, 2 bad usage or input, 130 or 143 interrupted.
    """
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
    in_sweep = bool(set(sweep.MULTIRUN) & set(arguments))
    if in_sweep and world.joined:
        raise UsageError("a sweep starts the processes of each of its runs itself: harness train -m trainer.devices=N")
    _Single.began, _Single.error, NoteSweep.logdir = False, None, None
    if (path := world.earlier_path()) is not None:
        arguments = [*arguments, f"resume={path}"]
    if in_sweep:
        arguments, before = sweep.resumed(arguments)
        name = before or name
        NoteSweep.sweep = sweep.Sweep(id=name, arguments=list(arguments))
        argv = [prog, *arguments, f"sweep={name}", _names_only_what_varies(arguments)]
    else:
        argv = [prog, *resume.complete(arguments)]
    with _hydra_environment(argv):
        try:
            hydra.main(version_base="1.3", config_path=str(schema.CONF), config_name="config")(job)()
        except OSError as error:
            # Hydra's own error for a missing option is an OSError too.
            if _Single.began or in_sweep or isinstance(error, HydraException):
                raise
            raise UsageError(f"the run's directory cannot be made: {error}; choose another logdir") from error
        finally:
            if NoteSweep.logdir is not None and sweep.was_begun(NoteSweep.folder, name, NoteSweep.logdir):
                show_sweep(NoteSweep.logdir, name)
    if _Single.error is not None:
        raise _Single.error


@contextmanager
def _hydra_environment(argv: list[str]) -> Iterator[None]:
    """What Hydra reads from the process, and where modules of the user's own are found."""
    saved_argv, saved_path, saved_errors = sys.argv, list(sys.path), os.environ.get("HYDRA_FULL_ERROR")
    sys.argv = argv
    # A _target_ is also looked for where the command was given, behind all that is installed.
    sys.path.append(os.getcwd())
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

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        NoteSweep.logdir = Path(config.logdir)
        NoteSweep.folder = NoteSweep.logdir / config.name
        sweep.save(NoteSweep.folder, NoteSweep.sweep)


def _names_only_what_varies(arguments: list[str]) -> str:
    """An override that keeps the values which all jobs of the sweep share out of their directories' names."""
    texts = [text for text in arguments if "=" in text and not text.startswith("-")]
    shared = [o.get_key_element() for o in OverridesParser.create().parse_overrides(texts) if not o.is_sweep_override()]
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
        InterruptedRun: where SIGTERM or SIGINT ended it.
    """
    _Single.began = True
    if HydraConfig.get().mode == RunMode.MULTIRUN:
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
    if in_sweep and (life := sweep.earlier_life(path)) is not None:
        if life.status == "completed":
            console.err.print(f"{console.plain(life.id)} was completed before: skipped", highlight=False)
            return _objective(composed, life.metrics)
        composed.resume = str(path)
    try:
        processes = launch.count(composed.trainer.devices)
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
        overrides=[text for text in settings.overrides.task if not text.startswith(("resume=", "sweep="))],
        choices={group: str(settings.runtime.choices.get(group)) for group in GROUPS},
        sweep=composed.sweep,
        world_size=world.size,
        versions=versions(),
        git=git_revision(),
    )
    before = read_manifest(path) if composed.resume is not None else None
    if before is not None:
        manifest.resumed_from, manifest.started = before.resumed_from, before.started
        manifest.metrics = before.metrics
    with ExitStack() as held:
        with world.together():
            kind = RunDirectory if world.leads else FollowedRun
            run = held.enter_context(kind(path, manifest, logdir=Path(composed.logdir)))
        world.note_path(str(path.absolute()))
        rank = None if world.leads else world.rank
        held.enter_context(console.logging_to(path / LOG_FILE if world.leads else None, rank=rank))
        try:
            over = before is not None and before.status == "completed"
            summary = _train(composed, run, world, live=live, over=over)
        except DivergedError as error:
            run.finish("failed", str(error))
            raise
        except Exception as error:
            if run.started or in_sweep:
                run.finish("failed", f"{type(error).__name__}: {error}")
            raise
        if summary.stopped_by is not None:
            run.finish("interrupted")
            log.info(
                "%s: stopped after step %d, all saved; go on with: harness train resume=%s",
                summary.stopped_by.name,
                summary.step,
                console.path(path),
            )
            raise InterruptedRun(128 + summary.stopped_by)
        run.finish("completed")
    if not in_sweep and world.leads:
        show_run(path, summary)
    return _objective(composed, {**run.manifest.metrics, **summary.metrics})


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
        *settings.overrides.task,
    ]
    quoted = str(path.absolute()).replace("\\", "\\\\").replace("'", "\\'")
    if composed.resume is None:
        arguments.append(f"hydra.run.dir='{quoted}'")
    elif not any(text.startswith("resume=") for text in arguments):
        arguments.append(f"resume='{quoted}'")
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


def _train(composed: DictConfig, run: RunDirectory, world: World, *, live: bool, over: bool) -> Summary:
    with world.together():
        parts = build.parts(composed, world)
    config, device, loaders = parts.config, parts.device, parts.loaders
    strategy = build.strategy(config, parts.model, device, world)
    model = strategy.model
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = (
        None if config.optimizer is None else targets.build("optimizer", config.optimizer, {"params": parameters})
    )
    scheduler = (
        None if config.scheduler is None else targets.build("scheduler", config.scheduler, {"optimizer": optimizer})
    )
    if world.rank:
        # The model is the same on all ranks, dropout is not.
        torch.manual_seed(config.seed + world.rank)

    checkpoints = Checkpoints(run.path / CHECKPOINTS, keep=config.checkpoint.keep)
    saved = checkpoints.load_newest(world) if config.resume else None
    first_step = saved["state"]["step"] if saved else 0
    # A run that died between its last checkpoint and its end still has that to come to.
    if first_step > config.trainer.max_steps or (over and first_step == config.trainer.max_steps):
        raise UsageError(
            f"{run.path} is at step {first_step} of {config.trainer.max_steps}: there is nothing left to train; "
            "give a larger trainer.max_steps"
        )
    trainer = config.trainer
    logger = (Logger if world.leads else NoLogger)(run.path, resumed_from=first_step if config.resume else None)
    progress = console.progress(first_step, trainer.max_steps, live=live) if world.leads else console.NoProgress()
    loop = Trainer(
        model=strategy,
        task=parts.task,
        optimizer=optimizer,
        scheduler=scheduler,
        train=loaders["train"],
        evaluation=loaders.get("eval"),
        device=device,
        max_steps=trainer.max_steps,
        precision=trainer.precision.value,
        compile=trainer.compile,
        grad_accumulation=trainer.grad_accumulation,
        grad_clip=trainer.grad_clip,
        log_every=trainer.log_every,
        eval_every=trainer.eval_every,
        eval_batches=trainer.eval_batches,
        logger=logger,
        checkpoints=checkpoints if config.checkpoint.enabled else None,
        checkpoint_every=config.checkpoint.every,
        histograms_every=config.logger.histograms_every,
        progress=progress,
        on_log=lambda step, metrics: run.update(step=step, metrics=metrics),
        world=world,
    )
    if saved:
        loop.restore(saved)
    batch = loop.rehearse()
    trends = Trends(
        logger,
        run.path,
        resumed_from=first_step if config.resume else None,
        composition=lambda: made_of.parts() if (made_of := loop.composition()) is not None else (),
    )
    schedule = _schedule(config)
    profiler = _profiler(config, schedule, run, loop, trends, world)

    run.manifest.step = first_step
    window = schedule.next_window(first_step) if schedule is not None else None
    run.manifest.first_window = window.first if window is not None else None
    run.manifest.device = _device_name(device)
    run.manifest.parameters = sum(parameter.numel() for parameter in parameters)
    if saved:
        run.manifest.resumed_from.append(first_step)
        log.info("resumed from step %d", first_step)
    run.start()
    if world.leads:
        _save_configuration(composed, run)
        _introduce(composed, run, logger, batch, model, parts.task)
    try:
        return loop.fit(profiler)
    finally:
        run.manifest.step = loop.state.step
        logger.end_hparams()
        logger.close()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _schedule(config: Config) -> Schedule | None:
    """When to record; None for never."""
    settings = config.profiler
    if not settings.enabled:
        return None
    return Schedule(
        wait=settings.wait,
        warmup=settings.warmup,
        active=settings.active,
        repeat=settings.repeat,
        skip_first=settings.skip_first,
        skip_first_wait=settings.skip_first_wait,
    )


def _profiler(
    config: Config, schedule: Schedule | None, run: RunDirectory, loop: Trainer, trends: Trends, world: World
) -> Profiler:
    settings, keep = config.profiler, config.profiler.keep

    def window_recorded(window: PublishedWindow) -> None:
        loop.window_recorded(window)
        trends.window_recorded(window)
        run.manifest.metrics.update(trends.headline)

    options = TraceOptions(
        activities=tuple(settings.activities),
        record_shapes=settings.record_shapes,
        profile_memory=settings.profile_memory,
        with_stack=settings.with_stack,
        with_flops=settings.with_flops,
    )
    set_nvtx(settings.nvtx and settings.enabled)
    try:
        return Profiler(
            run.path.parent.parent,
            "/".join(run.path.parts[-2:]),
            schedule,
            options,
            first_step=loop.state.step,
            on_window=window_recorded,
            max_overhead=settings.max_overhead,
            keep=Keep(
                windows=keep.windows,
                bytes=None if keep.bytes is None else parse_bytes(keep.bytes),
                age_s=None if keep.age is None else parse_seconds(keep.age),
            ),
            max_trace_mib=settings.max_trace_mib,
            drain_s=settings.drain_s,
            slow=_slow_steps(settings.trigger_on_slow),
            snapshots=MemorySnapshots(
                run.path,
                every_window=settings.memory_snapshot.every_window,
                every=settings.memory_snapshot.every,
                on_oom=settings.memory_snapshot.on_oom,
                max_entries=settings.memory_snapshot.max_entries,
            ),
            upload=settings.upload,
            ranks=world.recording(settings.ranks),
            ranks_timeout_s=settings.ranks_timeout_s,
        )
    except ValueError as error:
        raise UsageError(f"profiler: {error}") from error
    except OSError as error:
        raise UsageError(
            f"logdir={run.path.parent.parent}: windows are staged in a folder beside it, which cannot be made "
            f"({error}); choose a logdir whose parent you may write to, or profiler=none"
        ) from error


def _slow_steps(settings: SlowConfig) -> SlowSteps | None:
    if settings.factor is None:
        return None
    return SlowSteps(settings.factor, steps=settings.steps, every_s=settings.every_s)


def _save_configuration(composed: DictConfig, run: RunDirectory) -> None:
    """The run's own copy of all that made it, as Hydra lays it down."""
    folder = run.path / HYDRA
    folder.mkdir(exist_ok=True)
    OmegaConf.save(composed, folder / "config.yaml")
    OmegaConf.save(HydraConfig.instance().cfg, folder / "hydra.yaml")
    OmegaConf.save(OmegaConf.create(run.manifest.overrides), folder / resume.OVERRIDES)


def _introduce(
    composed: DictConfig, run: RunDirectory, logger: Logger, batch: Any, model: torch.nn.Module, task: Task
) -> None:
    """What TensorBoard shows of the run before its first step."""
    manifest = run.manifest
    logger.layout()
    logger.text("config", f"```yaml\n{OmegaConf.to_yaml(composed, resolve=True)}```")
    environment = {
        **manifest.versions,
        "device": manifest.device,
        "host": manifest.host,
        "command": manifest.command,
        "git": manifest.git and f"{manifest.git['revision']}{' (dirty)' if manifest.git['dirty'] else ''}",
        "trainable parameters": f"{manifest.parameters:,}",
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in environment.items())
    logger.text("environment", f"| | |\n|---|---|\n{rows}")
    logger.hparams(dict(_hparams(composed)), list(_compared(composed, task)))
    inputs = batch[0] if isinstance(batch, tuple | list) else batch
    if isinstance(inputs, torch.Tensor):
        if composed.logger.images and inputs.ndim == 4 and inputs.shape[1] in (1, 3):
            logger.images("data", inputs)
        if composed.logger.graph:
            logger.graph(model, inputs)


def _compared(composed: DictConfig, task: Task) -> Iterator[str]:
    """Tags of the curves by which the HParams tab compares and sorts runs."""
    yield "train/loss"
    if composed.data.eval:
        yield from ("eval/loss", "eval/accuracy")
    yield from (f"perf/{task.unit}_per_second", "perf/step_time_ms")
    if torch.cuda.is_available():
        yield PEAK_OF_JOB
    if composed.profiler.enabled:
        yield from HEADLINE


def _hparams(composed: DictConfig) -> Iterator[tuple[str, Any]]:
    """What one compares runs by: flat, without what is only plumbing."""
    kept: dict[str, Any] = {
        group: OmegaConf.to_container(composed[group], resolve=True)
        for group in ("model", "optimizer", "scheduler")
        if composed[group]
    }
    trainer = ("precision", "compile", "grad_accumulation", "grad_clip", "max_steps")
    kept |= {"batch_size": composed.data.batch_size, "seed": composed.seed}
    kept |= {key: composed.trainer[key] for key in trainer}

    def flatten(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from flatten(f"{prefix}.{key}" if key != "_target_" else prefix, inner)
        elif value is not None:
            plain = value if isinstance(value, bool | int | float) else getattr(value, "value", str(value))
            yield prefix, plain

    for key, value in kept.items():
        yield from flatten(key, value)


def _report(error: Exception) -> int:
    """Say what went wrong, briefly where it is the user's to mend, and once for all ranks; the exit status."""
    if not _Single.world.leads and isinstance(error, UsageError | HydraException | OmegaConfBaseException):
        return 2
    if isinstance(error, DivergedError) and not _Single.world.leads:
        return 1
    if isinstance(error, UsageError | HydraException | OmegaConfBaseException):
        message = str(error)
        if isinstance(error, HydraException) and str(error.__cause__ or "") not in message:
            message += f"\n{error.__cause__}"
        # Where in OmegaConf's own tree of types it happened helps nobody.
        message = "\n".join(line for line in message.splitlines() if "_type=" not in line)
        hidden = isinstance(error, UsageError) and error.__cause__ is not None
        console.error(message + ("\n(HYDRA_FULL_ERROR=1 shows where)" if hidden else ""))
        return 2
    if isinstance(error, DivergedError):
        console.error(error)
        return 1
    traceback.print_exception(error)
    return 1


if __name__ == "__main__":
    # Imported again under its own name, so that what a launcher pickles can be found by its workers.
    from harness.train import main as run_main

    sys.exit(run_main(prog="python -m harness.train"))
