"""Scalars, text, images and hyperparameters, written from the training process without stalling it."""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams as hparams_summaries

from harness.board.events.points import VERDICTS
from harness.logdir import tags

log = logging.getLogger(__name__)

QUEUE = 10_000
"""Events that may wait for the writer's thread; TensorBoard's default of 10 blocks the loop."""
FLUSH_S = 5.0
RETRY_S = 60.0
"""How long a logger whose file could not be written waits before it opens another one."""

LAYOUT = {
    "Training": {
        "loss": ["Multiline", [tags.LOSS, tags.EVAL_LOSS]],
        "accuracy": ["Multiline", [tags.EVAL_ACCURACY]],
        "learning rate": ["Multiline", [tags.LEARNING_RATE]],
        "gradient norm": ["Multiline", [tags.GRADIENT_NORM]],
    },
    "Speed": {
        "throughput per second": ["Multiline", [tags.per_second("samples"), tags.per_second("tokens")]],
        "a step and its wait for data, ms": ["Multiline", [tags.STEP_MS, tags.DATA_WAIT_MS]],
    },
    "Memory": {
        "device, MiB": [
            "Multiline",
            [tags.ALLOCATED_MIB, tags.PEAK_ALLOCATED_MIB, tags.RESERVED_MIB],
        ],
        "what it is made of, MiB": [
            "Multiline",
            [
                tags.memory_of("parameters"),
                tags.memory_of("gradients"),
                tags.memory_of("optimizer state"),
                tags.memory_of("activations and rest"),
            ],
        ],
    },
    "Windows": {
        "device busy, of the step": ["Multiline", [tags.WINDOW_BUSY]],
        "step with and without the profiler, ms": ["Multiline", [tags.WINDOW_STEP_MS]],
        "parts of the step, share of the host's time": ["Multiline", [tags.PHASES]],
        "parts of the step, share of the device's time": ["Multiline", [tags.PHASES_ON_DEVICE]],
        "why the device is idle, ms a step": ["Multiline", [tags.IDLE]],
        "exposed copies and communication, ms a step": ["Multiline", [tags.WINDOW_EXPOSED]],
        "operators, self time, ms a step": ["Multiline", [tags.OPERATORS]],
        "peak memory, MiB": ["Multiline", [tags.WINDOW_PEAK]],
        "cost of a window, ms": ["Multiline", [tags.WINDOW_COST_MS, tags.WINDOW_STALL_MS]],
        "share of the job's time that windows cost": ["Multiline", [tags.WINDOW_OVERHEAD]],
        "lost events": ["Multiline", [tags.WINDOW_LOST_EVENTS]],
    },
    "Ranks": {
        "waiting for other ranks, share of the step": ["Multiline", [tags.WAITING]],
        "the rank that is late, -1 for none": ["Multiline", [tags.STRAGGLER]],
        "bus bandwidth, GB/s": ["Multiline", [tags.BUS_GB_PER_S]],
        "largest over mean, less one": ["Multiline", [tags.COMPUTE_IMBALANCE, tags.MEMORY_IMBALANCE]],
    },
}
"""The Custom Scalars page: what belongs together in one chart. A tag is a regular expression, matched at the start."""


def _describe(experiment: Summary) -> None:
    """Say on the HParams tab what a verdict's number stands for."""
    plugin = experiment.value[0].metadata.plugin_data
    data = HParamsPluginData.FromString(plugin.content)
    for info in data.experiment.metric_infos:
        if info.name.tag == tags.VERDICT:
            info.display_name = "verdict"
            info.description = ", ".join(f"{number}: {label}" for number, label in enumerate(VERDICTS))
    plugin.content = data.SerializeToString()


def _quiet_writer_threads(arguments: threading.ExceptHookArgs) -> None:
    """A writer's thread that fails hands its error to the next write; its traceback on stderr tells nobody more."""
    if type(arguments.thread).__name__ != "_AsyncWriterThread":
        threading.__excepthook__(arguments)


def _let_the_second_pass(directory: Path) -> None:
    """TensorBoard reads a run's event files in the order of their names, which begin with the second: a life that
    begins within that of the one before it might be read first, and take the other's points away."""
    seconds = [path.name.split(".")[3] for path in directory.glob("events.out.tfevents.*.*")]
    newest = max((int(text) for text in seconds if re.fullmatch("[0-9]{1,12}", text)), default=0)
    time.sleep(min(max(0.0, newest + 1 - time.time()), 1.0))


class Logger:
    """Writes one run's event file.

    Nothing here raises for a disk that is full or gone: it is logged, and another file is begun later.

    Args:
        directory: The run directory.
        resumed_from: The step that a resumed run goes on from; what an earlier life of the run wrote beyond it,
            TensorBoard no longer shows. None for a new run.
    """

    def __init__(self, directory: Path, *, resumed_from: int | None = None) -> None:
        threading.excepthook = _quiet_writer_threads
        self._directory = directory
        self._purge_step = None if resumed_from is None else resumed_from + 1
        if resumed_from is not None:
            _let_the_second_pass(directory)
        self._writer: SummaryWriter | None = None
        self._not_before = 0.0

    def scalars(self, values: Mapping[str, float], step: int) -> None:
        """Points of curves, by tag; in one event, since each takes the loop about 25 µs."""
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])
        self._write(lambda writer: writer._get_file_writer().add_summary(summary, step))

    def layout(self) -> None:
        """The Custom Scalars page."""
        self._write(lambda writer: writer.add_custom_scalars(LAYOUT))

    def text(self, tag: str, markdown: str, step: int = 0) -> None:
        self._write(lambda writer: writer.add_text(tag, markdown, step))

    def hparams(self, values: Mapping[str, Any], metrics: Sequence[str]) -> None:
        """The run's hyperparameters, and the tags of the scalars that the HParams tab shows beside them."""
        plain = {key: value for key, value in values.items() if isinstance(value, bool | int | float | str)}
        experiment, start, _ = hparams_summaries(plain, dict.fromkeys(metrics, 0.0))
        _describe(experiment)
        self._write(lambda writer: [writer._get_file_writer().add_summary(s) for s in (experiment, start)])

    def end_hparams(self) -> None:
        """Mark the run as over for the HParams tab."""
        *_, end = hparams_summaries({}, {})
        self._write(lambda writer: writer._get_file_writer().add_summary(end))

    def images(self, tag: str, images: Tensor, step: int = 0) -> None:
        """A grid of the first 16 of ``images``, float [batch, 1 or 3, height, width], stretched to 0..1."""
        from torchvision.utils import make_grid

        shown = images[:16].detach().float().cpu()
        grid = make_grid(shown, nrow=math.ceil(len(shown) ** 0.5), normalize=True)
        self._write(lambda writer: writer.add_image(tag, grid, step))

    def histograms(self, model: nn.Module, step: int) -> None:
        """Every parameter's values and gradients."""

        def write(writer: SummaryWriter) -> None:
            for name, parameter in model.named_parameters():
                writer.add_histogram(f"parameters/{name}", parameter.detach().float(), step)
                if parameter.grad is not None:
                    writer.add_histogram(f"gradients/{name}", parameter.grad.detach().float(), step)

        self._write(write)

    def graph(self, model: nn.Module, inputs: Tensor) -> None:
        """The model as torch.jit traces it; one that cannot be traced is logged and left out."""
        training = model.training
        try:
            model.eval()
            with torch.random.fork_rng():
                self._write(lambda writer: writer.add_graph(model, inputs))
        except Exception as error:
            log.warning("no graph of the model in TensorBoard: torch.jit cannot trace it: %s", error)
        finally:
            model.train(training)

    def flush(self) -> None:
        """Wait until all that was written is on disk."""
        if self._writer is not None:
            self._write(lambda writer: writer.flush())

    def close(self) -> None:
        """Flush, and end the file."""
        if self._writer is not None:
            self._write(lambda writer: writer.close())
            self._writer = None

    def _write(self, write: Callable[[SummaryWriter], object]) -> None:
        if self._writer is None and time.monotonic() < self._not_before:
            return
        try:
            if self._writer is None:
                self._writer = SummaryWriter(
                    str(self._directory),
                    purge_step=self._purge_step,
                    max_queue=QUEUE,
                    flush_secs=int(FLUSH_S),
                )
            write(self._writer)
        except OSError as error:
            log.warning("TensorBoard's event file cannot be written, training goes on: %s", error)
            self._writer = None
            self._not_before = time.monotonic() + RETRY_S


class NoLogger(Logger):
    """Of a rank that writes nothing."""

    def _write(self, write: Callable[[SummaryWriter], object]) -> None:
        return
