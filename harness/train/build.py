"""From a configuration, checked, to the objects that it describes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.board.events.logger import Logger
from harness.config import targets
from harness.config.schema import Config, Precision, SlowConfig, StrategyKind
from harness.console import Progress
from harness.data import Loader, facts
from harness.distributed.strategy import Replicated, Sharded, Strategy, checkpoint_activations, find_blocks
from harness.distributed.world import World, alone
from harness.errors import UsageError
from harness.publish import Keep, PublishedWindow
from harness.quantities import parse_bytes, parse_seconds
from harness.record import Profiler, TraceOptions
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.record.spans import set_nvtx
from harness.schedule import Schedule
from harness.train.checkpoint import Checkpoints
from harness.train.exhausted import describe
from harness.train.tasks import Task
from harness.train.trainer import Trainer

FACTS = ("kind", "in_channels", "image_size", "num_classes", "vocab_size", "context_length", "size", "device", "seed")
"""What data can tell a model or a task; see :func:`harness.data.facts`."""


@dataclass(kw_only=True)
class Parts:
    """What a job is made of, before its ranks have spoken to each other."""

    device: torch.device
    loaders: dict[str, Loader]
    task: Task
    model: torch.nn.Module


def parts(config: Config, world: World) -> Parts:
    """Build them, each rank for itself.

    Raises:
        UsageError: with all that is wrong with the targets and the device, or with what could not be built.
    """
    device = _check(config, world)
    _seed(config)

    known: dict[str, Any] = {"device": str(device), "seed": config.seed}
    sizes = {"train": config.data.batch_size, "eval": config.data.eval_batch_size or config.data.batch_size}
    pin_memory = device.type == "cuda" if config.data.pin_memory is None else config.data.pin_memory
    loaders = {
        split: Loader(
            targets.build(f"data.{split}", node, {**known, "batch_size": sizes[split]}),
            batch_size=sizes[split],
            seed=config.seed,
            workers=config.data.workers,
            pin_memory=pin_memory,
            prefetch=config.data.prefetch,
            rank=world.rank,
            ranks=world.size,
        )
        for split, node in (("train", config.data.train), ("eval", config.data.eval))
        if node is not None
    }
    known |= _facts(loaders["train"])
    task: Task = targets.build("task", config.task, known)
    model: torch.nn.Module = targets.build("model", config.model, known).to(device)
    return Parts(device=device, loaders=loaders, task=task, model=model)


def strategy(config: Config, model: torch.nn.Module, device: torch.device, world: World) -> Strategy:
    """The model as the ranks share it; every rank's to call."""
    settings = config.strategy
    sharded = settings.kind is StrategyKind.fsdp2
    blocks = find_blocks(model, settings.blocks) if sharded or settings.activation_checkpointing else []
    if settings.activation_checkpointing:
        if not blocks:
            raise UsageError(
                "strategy.activation_checkpointing: the model has no repeated blocks; name them, as "
                "strategy.blocks=[Block]"
            )
        checkpoint_activations(blocks)
    if sharded:
        alone()
        return Sharded(
            model,
            blocks,
            device=device,
            param_dtype=torch.bfloat16 if config.trainer.precision is Precision.bf16 else None,
            reshard_after_forward=settings.reshard_after_forward,
        )
    if world.size > 1 and any(parameter.requires_grad for parameter in model.parameters()):
        return Replicated(model, find_unused_parameters=settings.find_unused_parameters)
    return Strategy(model)


def optimization(
    config: Config, parameters: Sequence[torch.nn.Parameter]
) -> tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LRScheduler | None]:
    """The optimizer of these parameters, and what schedules its rate.

    Raises:
        UsageError: for what cannot be built.
    """
    optimizer, scheduler = None, None
    if config.optimizer is not None:
        optimizer = targets.build("optimizer", config.optimizer, {"params": parameters})
    if config.scheduler is not None:
        scheduler = targets.build("scheduler", config.scheduler, {"optimizer": optimizer})
    return optimizer, scheduler


def trainer(
    config: Config,
    parts: Parts,
    strategy: Strategy,
    optimizer: torch.optim.Optimizer | None,
    scheduler: torch.optim.lr_scheduler.LRScheduler | None,
    *,
    checkpoints: Checkpoints,
    logger: Logger,
    progress: Progress,
    on_log: Callable[[int, dict[str, float]], None],
    before_save: Callable[[int], None],
    world: World,
) -> Trainer:
    """The loop over these parts."""
    settings = config.trainer
    return Trainer(
        model=strategy,
        task=parts.task,
        optimizer=optimizer,
        scheduler=scheduler,
        train=parts.loaders["train"],
        evaluation=parts.loaders.get("eval"),
        device=parts.device,
        max_steps=settings.max_steps,
        precision=settings.precision.value,
        compile=settings.compile,
        grad_accumulation=settings.grad_accumulation,
        grad_clip=settings.grad_clip,
        log_every=settings.log_every,
        eval_every=settings.eval_every,
        eval_batches=settings.eval_batches,
        logger=logger,
        checkpoints=checkpoints if config.checkpoint.enabled else None,
        checkpoint_every=config.checkpoint.every,
        histograms_every=config.logger.histograms_every,
        progress=progress,
        on_log=on_log,
        before_save=before_save,
        world=world,
    )


def profiler(
    config: Config,
    run: Path,
    *,
    schedule: Schedule | None,
    first_step: int,
    on_window: Callable[[PublishedWindow], None],
    world: World,
) -> Profiler:
    """What records windows of the job that trains in ``run``; every rank's to call.

    Raises:
        UsageError: where it cannot be, or has no room.
    """
    settings, keep = config.profiler, config.profiler.keep
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
            run.parent.parent,
            "/".join(run.parts[-2:]),
            schedule,
            options,
            first_step=first_step,
            resumes=True,
            on_window=on_window,
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
                run,
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
            f"logdir={run.parent.parent}: windows are staged in a folder beside it, which cannot be made "
            f"({error}); choose a logdir whose parent you may write to, or profiler=none"
        ) from error


def _slow_steps(settings: SlowConfig) -> SlowSteps | None:
    if settings.factor is None:
        return None
    return SlowSteps(settings.factor, steps=settings.steps, every_s=settings.every_s)


def _facts(train: Loader) -> dict[str, Any]:
    try:
        return facts(train.dataset)
    except Exception as error:
        raise UsageError(f"data.train: its first sample cannot be read: {type(error).__name__}: {error}") from error


def _check(config: Config, world: World) -> torch.device:
    """The device to train on.

    Raises:
        UsageError: with all that is wrong with the targets and with what the device cannot do.
    """
    found: list[str] = []
    dataset_known = {"device", "seed", "batch_size"}
    nodes: list[tuple[str, dict[str, Any] | None, set[str]]] = [
        ("data.train", config.data.train, dataset_known),
        ("data.eval", config.data.eval, dataset_known),
        ("model", config.model, set(FACTS)),
        ("task", config.task, set(FACTS)),
        ("optimizer", config.optimizer, {"params"}),
        ("scheduler", config.scheduler, {"optimizer"}),
    ]
    for where, node, known in nodes:
        if node is not None:
            found += targets.problems(where, node, known)
    if config.scheduler is not None and config.optimizer is None:
        found.append("scheduler: there is no optimizer whose rate it could set; set scheduler=none")
    device: torch.device | None = None
    try:
        device = _device(config.trainer.device, world)
    except UsageError as error:
        found += error.problems
    bf16 = config.trainer.precision.value == "bf16"
    if bf16 and device is not None and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        found.append(f"trainer.precision=bf16: {torch.cuda.get_device_name(device)} has no bf16; use fp16")
    if found or device is None:
        raise UsageError(*found)
    return device


def _device(name: str, world: World) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and world.joined and torch.cuda.is_available():
        if world.local_rank >= torch.cuda.device_count():
            raise UsageError(
                f"this machine has {torch.cuda.device_count()} GPUs for the {world.local_size} processes on it; "
                "start one for each, or use trainer.device=cpu"
            )
        torch.cuda.set_device(world.local_rank)
        return torch.device("cuda", world.local_rank)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"trainer.device={name}: no device has that name; use auto, cpu, cuda or cuda:1") from None
    there = {"cpu": 1, "cuda": torch.cuda.device_count()}.get(device.type, 0)
    if (device.index or 0) >= there:
        raise UsageError(
            f"trainer.device={name}: it is not there (torch sees {torch.cuda.device_count()} CUDA devices here); "
            "use trainer.device=auto"
        )
    return device


def _seed(config: Config) -> None:
    random.seed(config.seed)
    np.random.seed(config.seed % 2**32)
    torch.manual_seed(config.seed)
    torch.set_float32_matmul_precision(config.trainer.matmul_precision)
    if config.trainer.threads is not None:
        torch.set_num_threads(config.trainer.threads)
