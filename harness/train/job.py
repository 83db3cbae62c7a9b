"""One job, from its configuration to its last step: built, trained, written down."""

from __future__ import annotations

import logging
from contextlib import suppress

import torch
from omegaconf import DictConfig

from harness import console
from harness.board.events.logger import Logger, NoLogger
from harness.board.events.trends import Trends
from harness.config import schema
from harness.config.schema import Config
from harness.distributed.world import World
from harness.errors import UsageError
from harness.logdir.directory import RunDirectory
from harness.logdir.layout import CHECKPOINTS
from harness.publish import PublishedWindow, Staging
from harness.train import build
from harness.train.checkpoint import Checkpoints
from harness.train.introduction import introduce, keep_configuration
from harness.train.summary import Summary

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
    strategy = build.strategy(config, parts.model, parts.device, world)
    parameters = [parameter for parameter in strategy.model.parameters() if parameter.requires_grad]
    optimizer, scheduler = build.optimization(config, parameters)
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
    logger = (Logger if world.leads else NoLogger)(run.path, resumed_from=first_step if config.resume else None)
    progress = (
        console.progress(first_step, config.trainer.max_steps, live=live) if world.leads else console.NoProgress()
    )

    def note(step: int, metrics: dict[str, float]) -> None:
        run.manifest.passed_over = profiler.passed_over
        run.update(step=step, metrics=metrics)

    loop = build.trainer(
        config,
        parts,
        strategy,
        optimizer,
        scheduler,
        checkpoints=checkpoints,
        logger=logger,
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

    def window_recorded(window: PublishedWindow) -> None:
        loop.window_recorded(window)
        trends.window_recorded(window)
        run.manifest.metrics.update(trends.headline)

    profiler = build.profiler(
        config,
        run.path,
        schedule=schedule,
        first_step=loop.state.step,
        on_window=window_recorded,
        world=world,
    )

    run.manifest.step = first_step
    window = schedule.first_window(first_step) if schedule is not None else None
    run.manifest.first_window = window.first if window is not None else None
    run.manifest.device = _device_name(parts.device)
    run.manifest.parameters = sum(parameter.numel() for parameter in parameters)
    if saved:
        run.manifest.resumed_from.append(first_step)
        log.info("resumed from step %d", first_step)
    with world.together():
        if world.leads:
            keep_configuration(composed, run)
        run.start()
    if world.leads:
        introduce(composed, run, logger, batch, strategy.model, parts.task)
    try:
        return loop.fit(profiler)
    finally:
        run.manifest.step = loop.state.step
        run.manifest.passed_over = profiler.passed_over
        logger.end_hparams()
        logger.close()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
