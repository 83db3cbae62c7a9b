"""The schema of ``conf/``: every key, its type and its meaning.

Hydra merges the files of ``conf/`` into :class:`Config`, so a key that is not here, or a value of another type,
is an error before anything runs. What no type can say is checked by :mod:`harness.config.checks`. What a ``_target_``
takes is not repeated here: its own signature is its schema (:mod:`harness.config.targets`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from harness.schedule import (
    DRAIN_S,
    KEEP_BYTES,
    MAX_OVERHEAD,
    MAX_TRACE_MIB,
    RANKS_TIMEOUT_S,
    SLOW_EVERY_S,
    SLOW_STEPS,
    Schedule,
)

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
    bytes: str | None = KEEP_BYTES
    """Of all traces together: ``500 MB``, ``20 GiB``; null: no limit."""
    age: str | None = None
    """Oldest, counted from the newest: ``12h``, ``30d``; null: any age."""


@dataclass(kw_only=True)
class SlowConfig:
    """A window where steps are slow."""

    factor: float | None = None
    """Times the running median of the steps; null does not look, which saves two clock reads a step. On a GPU
    the host's times are those of the work only where the loop waits for the device."""
    steps: int = SLOW_STEPS
    """So many in a row."""
    every_s: float = SLOW_EVERY_S
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
    """Shapes of every operator's inputs; FLOPs and the roofline need them. In a loop of one's own they are off, as
    torch.profiler has it (:class:`harness.record.TraceOptions`)."""
    profile_memory: bool = False
    """Every allocation."""
    with_stack: bool = False
    """Python call stacks; they slow the recorded steps most."""
    with_flops: bool = False
    """FLOPs in torch's own tables."""
    max_overhead: float | None = MAX_OVERHEAD
    """Share of the job's time that windows may take; past it, cycles pass without one. null: no limit."""
    max_trace_mib: int | None = MAX_TRACE_MIB
    """A window whose raw trace is larger is dropped; null: none is."""
    keep: KeepConfig = field(default_factory=KeepConfig)
    ranks: Any = "all"
    """Who records: ``all``, ``hosts`` (the first rank of each), a number (so many ranks, evenly spread), or a list of
    ranks with 0 among them."""
    ranks_timeout_s: float = RANKS_TIMEOUT_S
    """Seconds that a window waits for the traces of other ranks; then it appears without them, marked."""
    drain_s: float = DRAIN_S
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


def register() -> None:
    """Make the schema known to Hydra."""
    ConfigStore.instance().store(name="schema", node=Config)


def schedule(profiler: ProfilerConfig) -> Schedule:
    """When to record.

    Raises:
        ValueError: for numbers of steps that cannot be.
    """
    return Schedule(
        wait=profiler.wait,
        warmup=profiler.warmup,
        active=profiler.active,
        repeat=profiler.repeat,
        skip_first=profiler.skip_first,
        skip_first_wait=profiler.skip_first_wait,
    )
