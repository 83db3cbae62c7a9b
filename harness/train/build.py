"""From a configuration, checked, to the objects that it describes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from harness.config import targets
from harness.config.schema import Config, Precision, StrategyKind
from harness.data import Loader, facts
from harness.distributed import world as distributed
from harness.distributed.strategy import Replicated, Sharded, Strategy, checkpoint_activations, find_blocks
from harness.distributed.world import World
from harness.errors import UsageError
from harness.train.tasks import Task

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
        distributed.alone()
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
