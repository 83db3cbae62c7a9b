"""One job, from its configuration to its last step: built, trained, written down."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from harness import console, credentials
from harness.board.events.logger import Logger, NoLogger
from harness.board.events.points import HEADLINE
from harness.board.events.trends import Trends
from harness.config import schema, targets
from harness.config.schema import Config, SlowConfig
from harness.distributed.world import World
from harness.errors import UsageError
from harness.logdir.directory import RunDirectory
from harness.logdir.layout import CHECKPOINTS, HYDRA
from harness.logdir.tags import PEAK_ALLOCATED_MIB
from harness.publish import Staging
from harness.publish.retention import Keep, parse_bytes, parse_seconds
from harness.record import Profiler, PublishedWindow, Schedule, TraceOptions
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.record.spans import set_nvtx
from harness.train import build, resume
from harness.train.checkpoint import Checkpoints
from harness.train.exhausted import describe
from harness.train.tasks import Task
from harness.train.trainer import Summary, Trainer

log = logging.getLogger(__name__)


def train(composed: DictConfig, config: Config, run: RunDirectory, world: World, *, live: bool, over: bool) -> Summary:
    """Build what the configuration describes, and train it to its end.

    Args:
        composed: The configuration as the run keeps it.
        config: The same, checked.
        live: Whether a bar may be drawn.
        over: Whether the run was completed before.

    Raises:
        UsageError: for what cannot be built, and where nothing is left to train.
        DivergedError: where the loss is no longer finite.
    """
    with world.together():
        parts = build.parts(config, world)
    device, loaders = parts.device, parts.loaders
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

    def note(step: int, metrics: dict[str, float]) -> None:
        run.manifest.passed_over = profiler.passed_over
        run.update(step=step, metrics=metrics)

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
        on_log=note,
        before_save=lambda step: run.update(step=step, metrics={}, every_s=0.0),
        world=world,
    )
    if saved:
        loop.restore(saved, source=run.path / CHECKPOINTS)
    batch = loop.rehearse()
    trends = Trends(
        logger,
        run.path,
        resumed_from=first_step if config.resume else None,
        composition=lambda: made_of.parts() if (made_of := loop.composition()) is not None else (),
    )
    for gone in run.abandoned:
        # The staging of a run that never showed holds nothing.
        with suppress(OSError):
            Staging(gone.parent.parent, "/".join(gone.parts[-2:])).folder.rmdir()
    schedule = schema.schedule(config.profiler) if config.profiler.enabled else None
    profiler = _profiler(config, schedule, run, loop, trends, world)

    run.manifest.step = first_step
    window = schedule.first_window(first_step) if schedule is not None else None
    run.manifest.first_window = window.first if window is not None else None
    run.manifest.device = _device_name(device)
    run.manifest.parameters = sum(parameter.numel() for parameter in parameters)
    if saved:
        run.manifest.resumed_from.append(first_step)
        log.info("resumed from step %d", first_step)
    with world.together():
        if world.leads:
            _keep_configuration(composed, run)
        run.start()
    if world.leads:
        _introduce(composed, run, logger, batch, model, parts.task)
    try:
        return loop.fit(profiler)
    finally:
        run.manifest.step = loop.state.step
        run.manifest.passed_over = profiler.passed_over
        logger.end_hparams()
        logger.close()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


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
            resumes=True,
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
                describe=describe,
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


def _keep_configuration(composed: DictConfig, run: RunDirectory) -> None:
    """The run's own copy of all that made it, as Hydra lays it down, before anybody sees the run.

    Raises:
        UsageError: where it cannot be written.
    """
    manifest = run.manifest
    if run.is_new:
        texts = {
            "config.yaml": OmegaConf.to_yaml(composed),
            "hydra.yaml": OmegaConf.to_yaml(HydraConfig.instance().cfg),
            resume.OVERRIDES: OmegaConf.to_yaml(OmegaConf.create(manifest.overrides)),
        }
        try:
            resume.keep(run.path, texts)
        except OSError as error:
            raise UsageError(
                f"{run.path / HYDRA} cannot be written: {error}; make room, or choose another logdir"
            ) from error
    found = resume.checksums(run.path, manifest.overrides)
    manifest.configuration = {**found, **(manifest.configuration or {}), "overrides": found["overrides"]}


def _introduce(
    composed: DictConfig, run: RunDirectory, logger: Logger, batch: Any, model: torch.nn.Module, task: Task
) -> None:
    """What TensorBoard shows of the run before its first step."""
    manifest = run.manifest
    logger.layout()
    # What the environment holds is this process's own.
    composed = OmegaConf.create(credentials.uninterpolated(OmegaConf.to_container(composed, resolve=False)))
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
        yield PEAK_ALLOCATED_MIB
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
