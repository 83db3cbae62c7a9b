"""One owner of each default: what is configured and what a loop of somebody's own hands over are the same things."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from harness.config.schema import (
    CONF,
    CheckpointConfig,
    DataConfig,
    KeepConfig,
    ProfilerConfig,
    SlowConfig,
    SnapshotConfig,
    TrainerConfig,
)
from harness.data import Loader
from harness.publish import Keep
from harness.quantities import parse_bytes
from harness.record import Profiler, Schedule, TraceOptions
from harness.record.slow import SlowSteps
from harness.record.snapshots import MemorySnapshots
from harness.train.checkpoint import Checkpoints
from harness.train.trainer import Trainer

DIFFER = {
    "activities": "a list, as YAML has it",
    "precision": "a name",
    "record_shapes": "on for FLOPs and the roofline; in a loop of one's own as torch.profiler has it, off",
    "checkpoint_every": "a trainer alone saves at the end only",
    "factor": "has to be given where it is looked for",
}


def defaults(takes: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(takes).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not inspect.Parameter.empty}


@pytest.mark.parametrize(
    ("section", "takes"),
    [
        (ProfilerConfig, Profiler),
        (ProfilerConfig, TraceOptions),
        (ProfilerConfig, Schedule),
        (SlowConfig, SlowSteps),
        (SnapshotConfig, MemorySnapshots),
        (CheckpointConfig, Checkpoints),
        (DataConfig, Loader),
        (TrainerConfig, Trainer),
    ],
    ids=lambda kind: kind.__name__,
)
def test_where_nothing_is_said_the_same_holds(section: type, takes: Callable[..., Any]) -> None:
    configured, taken = vars(section()), defaults(takes)
    shared = set(configured) & set(taken) - set(DIFFER)
    # An object of a section's own, a path, a choice between ranks: said in another way on each side.
    shared -= {name for name in shared if dataclasses.is_dataclass(configured[name])} | {"ranks", "pin_memory"}
    assert shared
    assert {name: configured[name] for name in shared} == {name: taken[name] for name in shared}


def test_as_much_is_kept() -> None:
    assert parse_bytes(str(KeepConfig().bytes)) == Keep().bytes
    assert (KeepConfig().windows, KeepConfig().age) == (Keep().windows, Keep().age_s) == (None, None)


def test_shapes_are_recorded_where_windows_are_configured_and_asked_for_elsewhere() -> None:
    assert ProfilerConfig().record_shapes
    assert not TraceOptions().record_shapes


def test_the_file_that_shows_all_of_the_profiler_shows_what_holds() -> None:
    shown = yaml.safe_load((CONF / "profiler" / "periodic.yaml").read_text())
    assert shown == OmegaConf.to_container(OmegaConf.structured(ProfilerConfig()))
