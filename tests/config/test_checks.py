"""What the configuration says of windows' cost and of what is kept, checked before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.config.checks import problems
from harness.config.schema import CONF, Config, KeepConfig, ProfilerConfig


def found(**profiler: object) -> list[str]:
    config = Config(model={}, task={}, profiler=ProfilerConfig(**profiler))  # type: ignore[arg-type]
    return [problem for problem in problems(config) if problem.startswith("profiler")]


def test_the_defaults_are_fine_and_every_profile_repeats_none_of_them_wrongly() -> None:
    assert found() == []
    periodic = yaml.safe_load(Path(CONF / "profiler" / "periodic.yaml").read_text())
    default = ProfilerConfig()
    assert periodic["max_overhead"] == default.max_overhead
    assert periodic["max_trace_mib"] == default.max_trace_mib
    assert periodic["drain_s"] == default.drain_s
    assert KeepConfig(**periodic["keep"]) == default.keep


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ({"max_overhead": 0.0}, "profiler.max_overhead=0.0"),
        ({"max_overhead": 1.5}, "profiler.max_overhead=1.5"),
        ({"max_trace_mib": 0}, "profiler.max_trace_mib=0"),
        ({"drain_s": -1.0}, "profiler.drain_s=-1.0"),
        ({"keep": KeepConfig(windows=0)}, "profiler.keep.windows=0"),
        ({"keep": KeepConfig(bytes="many")}, "profiler.keep.bytes=many"),
        ({"keep": KeepConfig(age="3 weeks")}, "profiler.keep.age=3 weeks"),
    ],
)
def test_a_limit_that_cannot_be_is_named(setting: dict[str, object], key: str) -> None:
    (problem,) = found(**setting)
    assert problem.startswith(key)


def test_no_limit_is_a_choice() -> None:
    assert found(max_overhead=None, max_trace_mib=None, keep=KeepConfig(bytes=None)) == []
