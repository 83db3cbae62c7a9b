"""The loop: what a step does to the parameters, what is logged, evaluated and saved, and when."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from harness import console
from harness.board.events.logger import Logger
from harness.data import Digits, Loader
from harness.errors import DivergedError, UsageError
from harness.models import CNN, MLP, Transformer
from harness.record import Profiler, Schedule, TraceOptions
from harness.train.checkpoint import Checkpoints, load
from harness.train.schedulers import warmup_cosine
from harness.train.summary import Summary
from harness.train.tasks import Classification, Inference, LanguageModeling
from harness.train.trainer import Trainer
from tests import reading

CPU = torch.device("cpu")


@dataclass
class Job:
    """A trainer and all that it works on, small enough for hundreds of steps a second."""

    folder: Path
    max_steps: int = 10
    batch_size: int = 16
    model: nn.Module | None = None
    optimizer: Callable[..., torch.optim.Optimizer] | None = torch.optim.SGD
    lr: float = 0.1
    scheduler: Callable[..., Any] | None = None
    dataset: Any = None
    evaluation: Loader | None = None
    task: Any = field(default_factory=Classification)
    schedule: Schedule | None = None
    checkpoints: Checkpoints | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.model = self.model or MLP(in_channels=1, image_size=8, num_classes=10, hidden=(16,))
        self.logged: dict[int, dict[str, float]] = {}
        optimizer = self.optimizer and self.optimizer(self.model.parameters(), lr=self.lr)
        self.logger = Logger(self.folder / "logs" / "a" / "b")
        self.trainer = Trainer(
            **{
                "model": self.model,
                "task": self.task,
                "optimizer": optimizer,
                "scheduler": self.scheduler and self.scheduler(optimizer),
                "train": Loader(self.dataset or Digits(), batch_size=self.batch_size),
                "evaluation": self.evaluation,
                "device": CPU,
                "max_steps": self.max_steps,
                "log_every": 1,
                "logger": self.logger,
                "checkpoints": self.checkpoints,
                "progress": console.progress(0, self.max_steps, live=False),
                "on_log": lambda step, metrics: self.logged.setdefault(step, {}).update(metrics),
                **self.settings,
            }
        )
        self.profiler = Profiler(
            self.folder / "logs",
            "a/b",
            self.schedule,
            TraceOptions(activities=("cpu",)),
            on_window=self.trainer.window_recorded,
        )

    def fit(self) -> Summary:
        summary = self.trainer.fit(self.profiler)
        self.logger.close()
        return summary

    @property
    def losses(self) -> list[float]:
        return [metrics["train/loss"] for metrics in self.logged.values() if "train/loss" in metrics]

    @property
    def weights(self) -> Tensor:
        assert self.model is not None
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])


def test_a_model_learns(tmp_path: Path) -> None:
    job = Job(tmp_path, max_steps=200, evaluation=Loader(Digits("eval"), batch_size=64))
    summary = job.fit()
    assert summary.step == 200
    assert summary.metrics["eval/accuracy"] > 0.6
    assert summary.last_loss == job.losses[-1] < job.losses[0] == summary.first_loss
    assert summary.stopped_by is None


def test_accumulated_gradients_equal_those_of_a_bigger_batch(tmp_path: Path) -> None:
    whole = Job(tmp_path / "whole", batch_size=32, max_steps=8)
    parts = Job(tmp_path / "parts", batch_size=8, max_steps=8, settings={"grad_accumulation": 4})
    assert torch.equal(whole.weights, parts.weights)
    whole.fit()
    parts.fit()
    assert parts.losses == pytest.approx(whole.losses, rel=1e-4)
    assert torch.allclose(parts.weights, whole.weights, atol=1e-5)
    assert parts.trainer.state.batches == 32


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision_trains_close_to_fp32(precision: str, tmp_path: Path) -> None:
    full = Job(tmp_path / "fp32", max_steps=60)
    mixed = Job(
        tmp_path / precision,
        max_steps=60,
        settings={"precision": precision},
        checkpoints=Checkpoints(tmp_path / "checkpoints"),
        evaluation=Loader(Digits("eval"), batch_size=64),
    )
    full.fit()
    mixed.fit()
    assert mixed.losses != full.losses
    assert mixed.losses[-1] == pytest.approx(full.losses[-1], abs=0.15)
    assert mixed.weights.dtype == torch.float32
    scaler = load(tmp_path / "checkpoints" / "step_00000060.pt")["scaler"]
    assert (scaler is not None) == (precision == "fp16")


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_clipping_bounds_the_norm_of_all_gradients_together(precision: str, tmp_path: Path) -> None:
    job = Job(tmp_path, max_steps=1, lr=1.0, settings={"grad_clip": 0.01, "precision": precision})
    before = job.weights
    job.fit()
    assert float((job.weights - before).norm()) == pytest.approx(0.01, rel=0.02)
    assert job.logged[1]["train/grad_norm"] > 0.1, "the norm is told as it was before clipping"


def test_the_gradient_norm_is_the_same_whether_it_is_clipped_or_only_told(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / str(clip), max_steps=3, settings={"grad_clip": clip}) for clip in (None, 1e6)]
    for job in jobs:
        job.fit()
    norms = [[metrics["train/grad_norm"] for metrics in job.logged.values()] for job in jobs]
    assert norms[0] == pytest.approx(norms[1])


def test_the_scheduler_is_stepped_once_an_update(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        max_steps=7,
        lr=1.0,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1),
        settings={"grad_accumulation": 3},
    )
    job.fit()
    assert [metrics["train/lr"] for metrics in job.logged.values()] == pytest.approx(
        [1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


def test_the_cosine_warms_up_linearly_and_ends_at_its_final_rate() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    scheduler = warmup_cosine(optimizer, warmup_steps=4, max_steps=12, final=0.1)
    rates = []
    for _ in range(13):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[:5] == pytest.approx([0.5, 1.0, 1.5, 2.0, 2.0])
    assert rates[8] == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))
    assert rates[12] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(rates[4:]))


def test_a_logged_loss_is_the_mean_since_the_one_before(tmp_path: Path) -> None:
    every, third = Job(tmp_path / "1"), Job(tmp_path / "3", settings={"log_every": 3})
    every.fit()
    third.fit()
    means = [sum(every.losses[i : i + 3]) / len(every.losses[i : i + 3]) for i in range(0, 10, 3)]
    assert third.losses == pytest.approx(means)
    assert list(third.logged) == [3, 6, 9, 10]


class Few(Dataset[Any]):
    """The first digits of the evaluation."""

    def __init__(self, length: int) -> None:
        self._digits = Digits("eval")
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._digits[index]


@pytest.mark.parametrize(("eval_batches", "samples"), [(None, 10), (2, 8), (99, 10)])
def test_an_evaluation_weighs_each_batch_by_its_size(eval_batches: int | None, samples: int, tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        evaluation=Loader(Few(10), batch_size=4),
        settings={"eval_batches": eval_batches},
    )
    metrics = job.fit().metrics
    assert job.model is not None
    images, labels = Digits("eval").batch(torch.arange(samples))
    with torch.no_grad():
        logits = job.model.eval()(images)
    assert metrics["eval/loss"] == pytest.approx(nn.functional.cross_entropy(logits, labels).item(), rel=1e-4)
    assert metrics["eval/accuracy"] == pytest.approx((logits.argmax(-1) == labels).float().mean().item())


def test_evaluations_change_nothing_of_the_training(tmp_path: Path) -> None:
    def trained(folder: str, eval_every: int | None) -> Job:
        torch.manual_seed(0)
        model = nn.Sequential(CNN(in_channels=1, num_classes=10, widths=(4,)), nn.Dropout(0.3))
        evaluation = Loader(Digits("eval"), batch_size=100)
        job = Job(tmp_path / folder, model=model, evaluation=evaluation, settings={"eval_every": eval_every})
        job.fit()
        return job

    rare, often = trained("rare", None), trained("often", 2)
    assert often.losses == rare.losses
    assert torch.equal(often.weights, rare.weights)
    assert [step for step, metrics in often.logged.items() if "eval/loss" in metrics] == [2, 4, 6, 8, 10]
    assert [step for step, metrics in rare.logged.items() if "eval/loss" in metrics] == [10]


class Poisoned(Classification):
    """The loss of one batch is not finite."""

    def __init__(self, batch: int, value: float) -> None:
        super().__init__()
        self._left, self._value = batch, value

    def loss(self, output: Tensor, batch: Any) -> Tensor:
        loss = super().loss(output, batch)
        if torch.is_grad_enabled():
            self._left -= 1
            if self._left == -1:
                return loss * self._value
        return loss


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("step", "settings"),
    [
        (7, {"log_every": 5, "checkpoint_every": 5}),
        (0, {"log_every": 5, "checkpoint_every": 5}),
        (9, {"log_every": 100, "checkpoint_every": 5}),
        (19, {"log_every": 100, "checkpoint_every": 5}),
        (11, {"log_every": 100, "checkpoint_every": 100, "eval_every": 12}),
    ],
)
def test_a_loss_that_is_not_finite_stops_the_job_and_names_its_step(
    step: int, settings: dict[str, Any], value: float, tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=9)
    job = Job(
        tmp_path,
        max_steps=20,
        task=Poisoned(step, value),
        checkpoints=checkpoints,
        evaluation=Loader(Few(4), batch_size=4),
        settings=settings,
    )
    with pytest.raises(DivergedError, match=rf"step {step} is (nan|-?inf)"):
        job.fit()

    assert checkpoints.steps() == [
        saved for saved in (5, 10, 15) if saved <= step and settings["checkpoint_every"] == 5
    ]
    for saved in checkpoints.steps():
        assert all(tensor.isfinite().all() for tensor in load_model(checkpoints, saved).values())
    assert load(checkpoints.directory / "diverged.pt")["state"]["step"] > step


def load_model(checkpoints: Checkpoints, step: int) -> dict[str, Tensor]:
    model: dict[str, Tensor] = load(checkpoints.directory / f"step_{step:08d}.pt")["model"]
    return model


def test_one_bad_batch_of_an_accumulated_step_is_enough(tmp_path: Path) -> None:
    job = Job(tmp_path, task=Poisoned(14, math.nan), settings={"grad_accumulation": 4})
    with pytest.raises(DivergedError, match="step 3 is nan"):
        job.fit()


def test_a_job_that_diverges_inside_a_window_leaves_the_window(tmp_path: Path) -> None:
    job = Job(tmp_path, task=Poisoned(6, math.nan), schedule=Schedule(wait=3, warmup=1, active=9))
    with pytest.raises(DivergedError):
        job.fit()
    assert reading.recorded(tmp_path / "logs/a/b")["window_00000004"][:3] == [4, 5, 6]


class Spy(Few):
    """An evaluation set, and checkpoints, that note whether a window was under way when they were used."""

    profiler: Profiler
    read_in_window: list[bool]

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.read_in_window.append(self.profiler.in_window)
        return super().__getitem__(index)


class SpyingCheckpoints(Checkpoints):
    profiler: Profiler

    def save(self, state: dict[str, Any], *, step: int, best_step: int | None = None) -> Path | None:
        self.saved[step] = self.profiler.in_window
        return super().save(state, step=step, best_step=best_step)

    saved: dict[int, bool]


@pytest.mark.parametrize(
    ("schedule", "saved"),
    [
        # Steps 3 to 6 of every seven are under way: due at 4, 8, 12, 16, 20, 24, and put off to the window's end.
        (Schedule(wait=3, warmup=1, active=3), [7, 8, 14, 16, 21, 24]),
        (Schedule(wait=0, warmup=1, active=4), [5, 10, 15, 20, 24]),
        (Schedule(wait=0, warmup=0, active=24), [24]),
        (None, [4, 8, 12, 16, 20, 24]),
    ],
    ids=["periodic", "back to back", "one window", "off"],
)
def test_no_evaluation_and_no_checkpoint_falls_into_a_window(
    schedule: Schedule | None, saved: list[int], tmp_path: Path
) -> None:
    spy, checkpoints = Spy(4), SpyingCheckpoints(tmp_path / "checkpoints", keep=99)
    job = Job(
        tmp_path,
        max_steps=24,
        schedule=schedule,
        evaluation=Loader(spy, batch_size=4),
        checkpoints=checkpoints,
        settings={"eval_every": 4, "checkpoint_every": 4, "log_every": 100},
    )
    spy.profiler = checkpoints.profiler = job.profiler
    spy.read_in_window, checkpoints.saved = [], {}
    job.fit()
    assert list(checkpoints.saved) == saved
    assert not any(checkpoints.saved.values())
    assert [step for step, metrics in job.logged.items() if "eval/loss" in metrics] == saved
    assert len(spy.read_in_window) == 4 * len(saved)
    assert not any(spy.read_in_window)


def test_windows_hold_the_named_parts_of_every_step(tmp_path: Path) -> None:
    job = Job(tmp_path, schedule=Schedule(wait=3, warmup=2, active=3, repeat=1), settings={"grad_accumulation": 2})
    summary = job.fit()
    (window,) = summary.windows
    assert (window.first_step, window.steps, window.partial) == (5, 3, False)
    assert reading.steps(window.path) == [5, 6, 7]
    spans = reading.names(reading.trace(window.path), "user_annotation")
    assert {name: spans.count(name) for name in ("data", "forward", "loss", "backward", "optimizer")} == {
        "data": 6,
        "forward": 6,
        "loss": 6,
        "backward": 6,
        "optimizer": 3,
    }
    assert list(reading.scalars(tmp_path / "logs/a/b", "window/stall_ms")) == [5]


def test_the_best_checkpoint_is_the_one_with_the_lowest_evaluation_loss(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        max_steps=40,
        evaluation=Loader(Few(64), batch_size=64),
        checkpoints=Checkpoints(tmp_path / "checkpoints", keep=1),
        scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 if step < 20 else -1),
        settings={"eval_every": 4},
    )
    job.fit()
    losses = {step: metrics["eval/loss"] for step, metrics in job.logged.items() if "eval/loss" in metrics}
    best = min(losses, key=losses.__getitem__)
    assert best < 40
    saved = load(tmp_path / "checkpoints" / "best.pt")
    assert saved["state"] == {"step": best, "batches": best, "best_loss": losses[best], "best_step": best}
    assert job.checkpoints is not None
    assert job.checkpoints.steps() == [best, 40]


def test_a_task_without_a_loss_runs_the_model_and_trains_nothing(tmp_path: Path) -> None:
    job = Job(tmp_path, task=Inference(), optimizer=None, evaluation=Loader(Few(8), batch_size=4))
    before = job.weights
    summary = job.fit()
    assert summary.step == 10
    assert summary.last_loss is None
    assert torch.equal(job.weights, before)
    assert summary.metrics["perf/samples_per_second"] > 0


def test_throughput_counts_tokens_where_tokens_are_trained_on(tmp_path: Path) -> None:
    from harness.data import SyntheticTokens

    tokens = SyntheticTokens(vocab_size=20, context_length=6, batch_size=5, device="cpu", seed=0)
    model = Transformer(vocab_size=20, context_length=6, width=8, depth=1, heads=2)
    job = Job(tmp_path, dataset=tokens, model=model, task=LanguageModeling(), max_steps=4)
    metrics = job.fit().metrics
    assert "perf/samples_per_second" not in metrics
    per_step = metrics["perf/tokens_per_second"] * metrics["perf/step_time_ms"] / 1e3
    assert per_step == pytest.approx(30, rel=1e-3)


class Slow(Few):
    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        import time

        time.sleep(0.005)
        return super().__getitem__(index)


def test_waiting_for_data_is_told_apart_from_the_step(tmp_path: Path) -> None:
    job = Job(tmp_path, dataset=Slow(64), batch_size=4, max_steps=6, settings={"log_every": 3})
    metrics = job.fit().metrics
    assert 20 <= metrics["perf/data_wait_ms"] < metrics["perf/step_time_ms"]


def test_an_evaluation_counts_neither_into_step_time_nor_into_throughput(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        max_steps=12,
        evaluation=Loader(Slow(60), batch_size=60),  # 0.3 s
        settings={"log_every": 6, "eval_every": 2},
    )
    job.fit()
    assert all(metrics["perf/step_time_ms"] < 100 for metrics in job.logged.values() if "perf/step_time_ms" in metrics)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_rehearsal_leaves_everything_as_it_was(dropout: float, tmp_path: Path) -> None:
    model = nn.Sequential(CNN(in_channels=1, num_classes=10, widths=(4,)), nn.Dropout(dropout))
    job = Job(tmp_path, model=model)
    before = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    inputs, _ = job.trainer.rehearse()
    assert inputs.shape == (16, 1, 8, 8)
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), before[1])
    job.profiler.close()


def test_what_does_not_fit_together_is_told_before_a_step_is_taken(tmp_path: Path) -> None:
    job = Job(tmp_path, model=CNN(in_channels=3, num_classes=10, widths=(4,)))
    with pytest.raises(UsageError, match="CNN, Classification and Digits do not fit together"):
        job.trainer.rehearse()
    job.profiler.close()


def test_a_loss_without_an_optimizer_is_told_before_a_step_is_taken(tmp_path: Path) -> None:
    job = Job(tmp_path, optimizer=None)
    with pytest.raises(UsageError, match="optimizer"):
        job.trainer.rehearse()
    job.profiler.close()


def test_histograms_show_parameters_and_their_gradients(tmp_path: Path) -> None:
    Job(tmp_path, max_steps=6, settings={"histograms_every": 3}).fit()
    events = reading.events(tmp_path / "logs/a/b")
    tags = events.Tags()["histograms"]
    assert {"parameters/layers.0.weight", "gradients/layers.0.weight"} <= set(tags)
    assert [event.step for event in events.Histograms("gradients/layers.0.weight")] == [3, 6]
    assert events.Histograms("gradients/layers.0.weight")[0].histogram_value.max > 0


def test_a_parameter_that_is_frozen_stays(tmp_path: Path) -> None:
    model = MLP(in_channels=1, image_size=8, num_classes=10, hidden=(16,))
    model.layers[0].weight.requires_grad_(False)
    before = model.layers[0].weight.clone()
    job = Job(tmp_path, model=model, settings={"grad_clip": 1.0})
    job.fit()
    assert torch.equal(model.layers[0].weight, before)
