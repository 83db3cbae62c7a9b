"""What a run says of itself before its first step: its configuration on disk, and its pages in TensorBoard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from harness import credentials
from harness.board.events.logger import Logger
from harness.board.events.points import HEADLINE
from harness.errors import UsageError
from harness.logdir import tags
from harness.logdir.directory import RunDirectory
from harness.logdir.layout import HYDRA
from harness.train import resume
from harness.train.tasks import Task


def keep_configuration(composed: DictConfig, run: RunDirectory) -> None:
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


def introduce(
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
    yield tags.LOSS
    if composed.data.eval:
        yield from (tags.EVAL_LOSS, tags.EVAL_ACCURACY)
    yield from (tags.per_second(task.unit), tags.STEP_MS)
    if torch.cuda.is_available():
        yield tags.PEAK_ALLOCATED_MIB
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
