"""The schema of ``conf/``: every key, its type and its meaning, and the checks that no type can make.

Hydra merges the files of ``conf/`` into :class:`Config`, so a key that is not here, or a value of another type,
is an error before anything runs. What a ``_target_`` takes is not repeated here: its own signature is its schema
(:mod:`harness.train.build`).
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from harness import credentials
from harness.config.misspelt import meant
from harness.errors import UsageError

if TYPE_CHECKING:
    from harness.record.schedule import Schedule

HERE = Path(__file__).parents[1]
CONF = HERE / "conf" if (HERE / "conf").is_dir() else HERE.parent / "conf"
"""In a wheel the files lie in the package, in a checkout beside it."""


class StrategyKind(Enum):
    auto = "auto"
    ddp = "ddp"
    fsdp2 = "fsdp2"


class Precision(Enum):
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


@dataclass(kw_only=True)
class DataConfig:
    """Where batches come from."""

    train: dict[str, Any] = MISSING
    """``_target_`` of the training set; see :mod:`harness.data`."""
    eval: Any = None
    """``_target_`` of the evaluation set; null evaluates nothing."""
    batch_size: int = 64
    """Samples a batch, on each rank."""
    eval_batch_size: int | None = None
    """null: as ``batch_size``."""
    workers: int = 0
    """Loader processes; 0 loads in the training process."""
    prefetch: int = 2
    """Batches that each worker keeps ready."""
    pin_memory: bool | None = None
    """Load into page-locked memory, so that copies to the device do not wait; null: where there is a GPU."""


@dataclass(kw_only=True)
class TrainerConfig:
    """The loop."""

    max_steps: int = 1000
    """Updates of the parameters, in all."""
    device: str = "auto"
    """``cpu``, ``cuda``, ``cuda:1``; ``auto`` takes the first GPU, or the CPU. Of several ranks each takes its own."""
    devices: Any = 1
    """Processes on this machine, a device each; ``auto``: as many as there are GPUs. Where torchrun has started the
    processes, it has decided."""
    max_restarts: int = 0
    """How often ``devices`` processes are started again, from the newest checkpoint, after one has failed."""
    precision: Precision = Precision.fp32
    """``bf16`` and ``fp16`` are autocast; fp16 with a loss scaler."""
    compile: bool = False
    """Run the model through torch.compile."""
    matmul_precision: str = "highest"
    """torch.set_float32_matmul_precision: ``highest`` is fp32, ``high`` allows TF32, ``medium`` bf16."""
    threads: int | None = None
    """CPU threads of torch; null leaves it to torch."""
    grad_accumulation: int = 1
    """Batches a step."""
    grad_clip: float | None = None
    """Largest norm of all gradients together."""
    log_every: int = 50
    """Steps between two points of the curves. Logging waits for the device; between, nothing does."""
    eval_every: int | None = None
    """Steps between two evaluations; null: one at the end."""
    eval_batches: int | None = None
    """Batches of an evaluation; null: all."""


@dataclass(kw_only=True)
class StrategyConfig:
    """How the model is spread over the ranks."""

    kind: StrategyKind = StrategyKind.auto
    """``ddp`` keeps all of it on each, ``fsdp2`` a part; ``auto``: ddp where there are several ranks."""
    activation_checkpointing: bool = False
    """Compute each block's activations again in the backward pass in place of keeping them."""
    blocks: Any = None
    """Class names of the blocks that fsdp2 gathers, and activation checkpointing runs again, at a time; null: the
    repeated parts of a ModuleList or Sequential."""
    find_unused_parameters: bool = False
    """ddp: for a model that leaves out parameters in some steps."""
    reshard_after_forward: bool = True
    """fsdp2: free a block's parameters between its forward and its backward pass."""


@dataclass(kw_only=True)
class KeepConfig:
    """Which traces of a run stay on disk. Its findings, ``window.json``, always do."""

    windows: int | None = None
    """Traces at most; null: any number."""
    bytes: str | None = "20 GiB"
    """Of all traces together: ``500 MB``, ``20 GiB``; null: no limit."""
    age: str | None = None
    """Oldest, counted from the newest: ``12h``, ``30d``; null: any age."""


@dataclass(kw_only=True)
class SlowConfig:
    """A window where steps are slow."""

    factor: float | None = None
    """Times the running median of the steps; null does not look, which saves two clock reads a step. On a GPU
    the host's times are those of the work only where the loop waits for the device."""
    steps: int = 3
    """So many in a row."""
    every_s: float = 600.0
    """Seconds between two such windows at least; the budget counts besides."""


@dataclass(kw_only=True)
class SnapshotConfig:
    """The CUDA allocator's history and what is allocated, as torch.cuda.memory._dump_snapshot writes it."""

    every_window: bool = False
    every: int | None = None
    """Steps between two; null: none."""
    on_oom: bool = False
    """When the device runs out of memory, with a list of what is allocated."""
    max_entries: int = 100_000
    """Of the history: some hundred bytes each, in memory and in the file."""


@dataclass(kw_only=True)
class ProfilerConfig:
    """Windows: torch.profiler.schedule on the job's global step, and what torch.profiler records in them."""

    enabled: bool = True
    skip_first: int = 0
    """Steps before the first cycle."""
    skip_first_wait: bool = False
    """Begin the first cycle with its warm-up."""
    wait: int = 95
    """Steps between two windows."""
    warmup: int = 2
    """Steps with the profiler on, thrown away."""
    active: int = 3
    """Steps recorded."""
    repeat: int = 0
    """Windows at most; 0: for ever."""
    activities: list[str] = field(default_factory=lambda: ["cpu", "cuda"])
    """A device that is not there is left out."""
    record_shapes: bool = True
    """Shapes of every operator's inputs; FLOPs and the roofline need them."""
    profile_memory: bool = False
    """Every allocation."""
    with_stack: bool = False
    """Python call stacks; they slow the recorded steps most."""
    with_flops: bool = False
    """FLOPs in torch's own tables."""
    max_overhead: float | None = 0.01
    """Share of the job's time that windows may take; past it, cycles pass without one. null: no limit."""
    max_trace_mib: int | None = 1024
    """A window whose raw trace is larger is dropped; null: none is."""
    keep: KeepConfig = field(default_factory=KeepConfig)
    ranks: Any = "all"
    """Who records: ``all``, ``hosts`` (the first rank of each), a number (so many ranks, evenly spread), or a list of
    ranks with 0 among them."""
    ranks_timeout_s: float = 60.0
    """Seconds that a window waits for the traces of other ranks; then it appears without them, marked."""
    drain_s: float = 60.0
    """Seconds that the end of a job waits for windows that are not published yet."""
    trigger_on_slow: SlowConfig = field(default_factory=SlowConfig)
    memory_snapshot: SnapshotConfig = field(default_factory=SnapshotConfig)
    nvtx: bool = False
    """Spans as NVTX ranges too, inside windows and outside; for Nsight Systems."""
    upload: str | None = None
    """An fsspec address to which published windows are copied, ``s3://bucket/folder``; null copies nothing."""


@dataclass(kw_only=True)
class CheckpointConfig:
    """What a job can go on from."""

    enabled: bool = True
    every: int | None = 500
    """Steps between two; null: one at the end."""
    keep: int = 3
    """The newest that stay; the best one stays beside them."""


@dataclass(kw_only=True)
class LoggerConfig:
    """What goes to TensorBoard beside the curves."""

    images: bool = True
    """A grid of the first batch's images."""
    graph: bool = False
    """The model's graph, traced by torch.jit."""
    histograms_every: int | None = None
    """Steps between two histograms of all parameters and gradients."""


@dataclass(kw_only=True)
class ObjectiveConfig:
    """What a sweeper that searches is told of each run."""

    metric: str | None = None
    """A curve's newest value, as ``perf/samples_per_second``; null: the evaluation's loss, or else the training's."""
    maximize: bool = False
    """Whether more of it is better, as ``hydra.sweeper.direction`` says to the sweeper."""
    max_memory_mib: float | None = None
    """A run whose peak is higher counts as worse than all that keep to it; null: no limit."""


@dataclass(kw_only=True)
class Config:
    """The whole job."""

    logdir: str = "tb_logs"
    """TensorBoard's logdir; runs lie in ``<logdir>/<name>/<run>``."""
    name: str = "default"
    """The experiment."""
    seed: int = 0
    resume: str | None = None
    """A run directory to go on with: its own configuration, and the overrides given now."""
    sweep: str | None = None
    """The sweep that this run belongs to; ``-m`` sets it."""
    model: dict[str, Any] = MISSING
    data: DataConfig = field(default_factory=DataConfig)
    task: dict[str, Any] = MISSING
    optimizer: Any = None
    scheduler: Any = None
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    strategy: StrategyConfig = field(default_factory=StrategyConfig)
    profiler: ProfilerConfig = field(default_factory=ProfilerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)


def register() -> None:
    """Make the schema and the resolvers of ``conf/`` known to Hydra."""
    ConfigStore.instance().store(name="schema", node=Config)
    for name, resolver in (("run_dir", run_dir), ("sweep_subdir", sweep_subdir)):
        OmegaConf.register_new_resolver(name, resolver, replace=True)


_this_run = ""


def name_this_run(agree: Callable[[str], str] = lambda name: name) -> str:
    """Take a new name for this process's next run or sweep: it sorts by time, and no other job has it.

    Args:
        agree: From the name that this process has thought of, the one that all ranks of the job take.
    """
    global _this_run
    _this_run = agree(f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{secrets.token_hex(2)}")
    return _this_run


def run_dir(logdir: str, name: str, resume: str | None) -> str:
    """Where a single run lies: in the run that it resumes, or in one of its own."""
    return resume or f"{logdir}/{name}/{_this_run}"


def sweep_subdir(sweep: str | None, number: int, overrides: str) -> str:
    """The directory of one of a sweep's runs, below the experiment: readable, and safe for TensorBoard's plugin."""
    return f"{sweep or _this_run}_{number:03d}" + (f"_{safe_name(overrides)}" if overrides else "")


def safe_name(text: str, longest: int = 120) -> str:
    """``text`` with letters, digits and ``. _ - = ,`` alone; one that had to be cut ends in a hash of the whole."""
    safe = re.sub(r"[^A-Za-z0-9._=,-]+", "-", re.sub(r"[\[\]{}()'\"\s+]", "", text)).strip("-.,")
    if len(safe) <= longest:
        return safe
    return f"{safe[: longest - 9]}-{sha256(text.encode()).hexdigest()[:8]}"


SECTIONS: dict[str, type[Any]] = {
    "": Config,
    "data": DataConfig,
    "trainer": TrainerConfig,
    "strategy": StrategyConfig,
    "profiler": ProfilerConfig,
    "profiler.keep": KeepConfig,
    "profiler.trigger_on_slow": SlowConfig,
    "profiler.memory_snapshot": SnapshotConfig,
    "checkpoint": CheckpointConfig,
    "logger": LoggerConfig,
    "objective": ObjectiveConfig,
}


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


def schedule(profiler: ProfilerConfig) -> Schedule:
    """When to record.

    Raises:
        ValueError: for numbers of steps that cannot be.
    """
    from harness.record.schedule import Schedule

    return Schedule(
        wait=profiler.wait,
        warmup=profiler.warmup,
        active=profiler.active,
        repeat=profiler.repeat,
        skip_first=profiler.skip_first,
        skip_first_wait=profiler.skip_first_wait,
    )


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
        yield (
            f"profiler: the first window would end with step {window.end} (skip_first={profiler.skip_first}, "
            f"wait={profiler.wait}, warmup={profiler.warmup}, active={profiler.active}), after "
            f"trainer.max_steps={config.trainer.max_steps}; shorten profiler.{lever}, or set profiler.enabled=false"
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
    from harness.publish.retention import parse_bytes, parse_seconds

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
