"""What is wrong with a configuration beyond its types: all of it at once, before anything is built, without torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf

from harness import credentials
from harness.config.misspelt import meant
from harness.config.names import safe_name
from harness.config.schema import SECTIONS, Config, Precision, ProfilerConfig, StrategyKind, schedule
from harness.errors import UsageError
from harness.quantities import parse_bytes, parse_seconds


def checked(composed: DictConfig) -> Config:
    """The configuration as an object; what it says of objects to build is looked at when they are built.

    Raises:
        UsageError: with all that is wrong with its keys and values.
    """
    container = OmegaConf.to_container(composed, resolve=False)
    if missing := list(_missing(container)):
        raise UsageError(*(f"{key} is missing: give {key}=..." for key in missing))
    # Before anything else, which might say them.
    if secret := list(credentials.secrets(container)):
        raise UsageError(*(f"{key}: its address holds a password or a token, and {credentials.HOW}" for key in secret))
    config: Any = OmegaConf.to_object(composed)
    assert isinstance(config, Config)
    if found := [*unknown_keys(composed), *problems(config)]:
        raise UsageError(*found)
    return config


def _missing(node: Any, key: str = "") -> Iterator[str]:
    """The keys without a value; one that refers to them is not among them, and OmegaConf's own search fails at it."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in items:
        here = f"{key}.{name}" if key else str(name)
        if value == MISSING:
            yield here
        yield from _missing(value, here)


def unknown_keys(composed: DictConfig) -> Iterator[str]:
    """Keys that ``+key=value`` has added where the schema knows all there are."""
    for section, owner in SECTIONS.items():
        known = {entry.name for entry in fields(owner)}
        there = OmegaConf.select(composed, section) if section else composed
        for key in sorted(set(map(str, there)) - known):
            yield f"{section}{section and '.'}{key}: there is no such key; {meant(key, known)}"


def problems(config: Config) -> Iterator[str]:
    """What is wrong with the values of ``config``, taken together; torch is not asked."""
    yield from _name_problems(config)
    yield from _count_problems(config)
    limit = config.objective.max_memory_mib
    if limit is not None and not limit > 0:
        yield f"objective.max_memory_mib={limit}: must be more than 0, or null"
    if config.seed < 0:
        yield f"seed={config.seed}: must be at least 0"
    if config.trainer.matmul_precision not in ("highest", "high", "medium"):
        yield f"trainer.matmul_precision={config.trainer.matmul_precision}: choose highest, high or medium"

    yield from _strategy_problems(config)
    profiler = config.profiler
    if not profiler.enabled:
        return
    unknown = sorted(set(profiler.activities) - {"cpu", "cuda"})
    if unknown or not profiler.activities:
        yield f"profiler.activities={profiler.activities}: choose from cpu and cuda, at least one"
    yield from _window_problems(profiler)
    try:
        window = schedule(profiler).next_window(0)
    except ValueError as error:
        yield f"profiler.{error}"
        return
    if window is not None and window.end > config.trainer.max_steps > 0:
        lever = "skip_first" if profiler.skip_first_wait or profiler.skip_first > profiler.wait else "wait"
        fits = getattr(profiler, lever) - (window.end - config.trainer.max_steps)
        how = f"give profiler.{lever}={fits}" if fits >= 0 else "record fewer steps"
        yield (
            f"profiler: the first window would end with step {window.end} (skip_first={profiler.skip_first}, "
            f"wait={profiler.wait}, warmup={profiler.warmup}, active={profiler.active}), after "
            f"trainer.max_steps={config.trainer.max_steps}; {how}, or profiler=none"
        )


def _strategy_problems(config: Config) -> Iterator[str]:
    blocks = config.strategy.blocks
    if blocks is not None and not (isinstance(blocks, list) and all(isinstance(name, str) for name in blocks)):
        yield f"strategy.blocks={blocks}: must be a list of class names, as [Block], or null"
    if config.trainer.max_restarts < 0:
        yield f"trainer.max_restarts={config.trainer.max_restarts}: must be at least 0"
    if config.strategy.kind is not StrategyKind.fsdp2:
        return
    if config.trainer.precision is Precision.fp16:
        yield "trainer.precision=fp16: fsdp2 has no loss scaler here; use bf16, or strategy=ddp"
    for key in ("histograms_every", "graph"):
        if getattr(config.logger, key):
            yield f"logger.{key}: no rank has the whole model with strategy=fsdp2; leave it out, or use strategy=ddp"


def _ranks_problem(ranks: Any) -> str | None:
    if ranks in ("all", "hosts"):
        return None
    if isinstance(ranks, int) and not isinstance(ranks, bool) and ranks >= 1:
        return None
    if isinstance(ranks, list) and all(isinstance(rank, int) and rank >= 0 for rank in ranks):
        return None if 0 in ranks else "rank 0 has to be among them, since it decides on windows and publishes them"
    return "must be all, hosts, a number of at least 1, or a list of ranks"


def _window_problems(profiler: ProfilerConfig) -> Iterator[str]:
    if profiler.max_overhead is not None and not 0 < profiler.max_overhead <= 1:
        yield f"profiler.max_overhead={profiler.max_overhead}: must be a share, more than 0 and at most 1, or null"
    if profiler.drain_s < 0:
        yield f"profiler.drain_s={profiler.drain_s}: must be at least 0"
    if profiler.ranks_timeout_s < 0:
        yield f"profiler.ranks_timeout_s={profiler.ranks_timeout_s}: must be at least 0"
    if (problem := _ranks_problem(profiler.ranks)) is not None:
        yield f"profiler.ranks={profiler.ranks}: {problem}"
    slow, snapshot = profiler.trigger_on_slow, profiler.memory_snapshot
    if slow.factor is not None and not slow.factor > 1:
        yield f"profiler.trigger_on_slow.factor={slow.factor}: must be more than 1, or null"
    if slow.every_s < 0:
        yield f"profiler.trigger_on_slow.every_s={slow.every_s}: must be at least 0"
    if profiler.upload is not None and credentials.has_secret(profiler.upload):
        yield f"profiler.upload: its address holds a password or a token, and {credentials.HOW}"
    elif profiler.upload is not None and "://" not in profiler.upload:
        yield f"profiler.upload={profiler.upload}: must be an address as s3://bucket/folder or file:///folder"
    for key, count in (
        ("max_trace_mib", profiler.max_trace_mib),
        ("keep.windows", profiler.keep.windows),
        ("trigger_on_slow.steps", slow.steps),
        ("memory_snapshot.every", snapshot.every),
        ("memory_snapshot.max_entries", snapshot.max_entries),
    ):
        if count is not None and count < 1:
            yield f"profiler.{key}={count}: must be at least 1, or null"
    for key, parse, text in (
        ("keep.bytes", parse_bytes, profiler.keep.bytes),
        ("keep.age", parse_seconds, profiler.keep.age),
    ):
        try:
            if text is not None:
                parse(text)
        except ValueError as error:
            yield f"profiler.{key}={text}: {error}"


def _name_problems(config: Config) -> Iterator[str]:
    if not config.name or safe_name(config.name, 1000) != config.name:
        yield f"name={config.name!r}: only letters, digits, '.', '_', '-', '=' and ',' are safe in TensorBoard"


def _count_problems(config: Config) -> Iterator[str]:
    at_least_one = {
        "data.batch_size": config.data.batch_size,
        "data.eval_batch_size": config.data.eval_batch_size,
        "data.prefetch": config.data.prefetch,
        "trainer.max_steps": config.trainer.max_steps,
        "trainer.threads": config.trainer.threads,
        "trainer.grad_accumulation": config.trainer.grad_accumulation,
        "trainer.log_every": config.trainer.log_every,
        "trainer.eval_every": config.trainer.eval_every,
        "trainer.eval_batches": config.trainer.eval_batches,
        "checkpoint.every": config.checkpoint.every,
        "checkpoint.keep": config.checkpoint.keep,
        "logger.histograms_every": config.logger.histograms_every,
    }
    for key, value in at_least_one.items():
        if value is not None and value < 1:
            yield f"{key}={value}: must be at least 1"
    if config.data.workers < 0:
        yield f"data.workers={config.data.workers}: must be at least 0"
    if config.trainer.grad_clip is not None and config.trainer.grad_clip <= 0:
        yield f"trainer.grad_clip={config.trainer.grad_clip}: must be more than 0, or null"
