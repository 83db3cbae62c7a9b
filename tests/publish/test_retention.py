"""Which traces go, and in which order."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from harness.publish.retention import Keep, Retention, Stored, expendable
from harness.trace import analyze, read

TRACE = Path(__file__).parent.parent / "traces" / "matmul_64.pt.trace.json.gz"
UNLIMITED = Keep(bytes=None)


def windows(verdicts: str, *, slowest: int = 4, size: int = 10) -> list[Stored]:
    """One a day, each of ``size`` bytes; a letter is a verdict."""
    return [
        Stored(step=step, bytes=size, time=step * 86400.0, step_us=200.0 if step == slowest else 100.0, verdict=verdict)
        for step, verdict in enumerate(verdicts)
    ]


def gone(stored: Sequence[Stored], keep: Keep) -> list[int]:
    return [window.step for window in expendable(stored, keep)]


def test_nothing_goes_without_a_limit() -> None:
    assert gone(windows("aaaaaaaa"), UNLIMITED) == []
    assert gone([], Keep(windows=1)) == []


@pytest.mark.parametrize("keep", [Keep(windows=5), Keep(bytes=50), Keep(bytes=59)])
def test_the_oldest_go_first_but_not_the_first_nor_the_slowest(keep: Keep) -> None:
    assert gone(windows("aaaaaaaa", slowest=1), keep) == [2, 3, 4]


def test_both_sides_of_a_change_of_verdict_are_kept_longer() -> None:
    assert gone(windows("aaaabbbb", slowest=0), Keep(windows=5)) == [1, 2, 5]


def test_where_nothing_else_is_left_changes_go_then_the_slowest_then_the_first_and_the_newest_never() -> None:
    stored = windows("aabbaaaa", slowest=6)
    assert gone(stored, Keep(windows=1)) == [5, 1, 2, 3, 4, 6, 0]
    assert gone(stored, Keep(bytes=1)) == [5, 1, 2, 3, 4, 6, 0]


def test_age_takes_only_the_ordinary_ones_and_is_counted_from_the_newest() -> None:
    assert gone(windows("aaaabbbb", slowest=5), UNLIMITED.__class__(bytes=None, age_s=1.5 * 86400)) == [1, 2]


def folder(profile: Path, step: int, *, size: int = 1000) -> Path:
    made = profile / f"window_{step:08d}"
    made.mkdir(parents=True)
    (made / f"host_0.{step}.pt.trace.json.gz").write_bytes(b"x" * size)
    os.utime(made / f"host_0.{step}.pt.trace.json.gz", (step, step))
    (made / "window.json").write_bytes(msgspec.json.encode(analyze(read(TRACE))))
    return made


def traces(profile: Path) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("window_")) for path in profile.glob("*/*.gz"))


def test_only_traces_go_and_they_go_before_the_new_one_comes(tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    for step in range(4):
        folder(profile, step)
    retention = Retention(profile, "window.json")
    incoming = folder(tmp_path, 4, size=1500)
    assert retention.make_room(Keep(bytes=4000), incoming=incoming) == ["window_00000001", "window_00000002"]
    assert traces(profile) == [0, 3]
    assert len(list(profile.glob("*/window.json"))) == 4
    incoming.rename(profile / incoming.name)
    assert retention.make_room(Keep(bytes=4000)) == []
    assert retention.make_room(Keep(windows=2)) == ["window_00000003"]
    assert traces(profile) == [0, 4]


def test_tensorboards_plugin_does_not_miss_a_trace_that_is_gone(tmp_path: Path) -> None:
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.loader import RunLoader

    profile = tmp_path / "profile"
    made = [folder(profile, step) for step in range(3)]
    Retention(profile, "window.json").make_room(Keep(windows=2))
    seen = [root for root, _, files in io.walk(str(tmp_path)) if any(".pt.trace.json" in name for name in files)]
    assert sorted(seen) == [str(made[0]), str(made[2])]
    # One that was about to be read: the run is empty, and nothing fails.
    assert RunLoader("gone", str(made[1]), io.Cache()).load().profiles == {}
