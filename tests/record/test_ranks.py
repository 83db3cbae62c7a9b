"""Loops of one's own on several ranks: who takes part is known on entry, and nobody waits for who does not."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from tests import reading
from tests.launch import Command, Ended, Launcher

LOOP = """
import json, logging, os, sys, time
import torch, torch.distributed as dist
from harness.record import Profiler, Schedule, TraceOptions

logging.basicConfig(level=logging.WARNING)
rank = int(os.environ["RANK"])
join = lambda: dist.init_process_group("gloo")

def new(**more):
    return Profiler("tb", "a", Schedule(wait=2, warmup=1, active=2), TraceOptions(activities=("cpu",)),
                    max_overhead=None, **more)

def loop(step=lambda: None, steps=12):
    for _ in range(steps):
        x = torch.ones(4) * rank
        dist.all_reduce(x)
        step()
"""


def ranks(harness: Launcher, folder: Path, code: str, *, size: int = 2) -> list[Ended]:
    """How the script has ended on each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started: list[Command] = [
        harness.start_script(
            LOOP + code,
            cwd=folder,
            env={"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        )
        for rank in range(size)
    ]
    done = [each.wait() for each in started]
    assert [each.status for each in done] == [0] * size, "\n".join(each.text for each in done)
    return done


def report(folder: Path, step: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"tb/a/profile/window_{step:08d}/window.json").read_bytes())
    return found


def traces(folder: Path, run: str = "a") -> list[int]:
    """How many ranks' traces are in each window."""
    return [len(list(path.glob("*.pt.trace.json.gz"))) for path in reading.windows(folder / "tb" / run)]


def test_a_profiler_made_before_the_process_group_belongs_to_its_rank(harness: Launcher, tmp_path: Path) -> None:
    done = ranks(
        harness,
        tmp_path,
        """
profiler = new()
join()
with profiler:
    loop(profiler.step)
""",
    )
    assert traces(tmp_path) == [2, 2]
    assert not any("WARNING" in each.text for each in done), done
    assert not (tmp_path / ".tb.staging").exists()


def test_one_on_rank_0_alone_waits_for_nobody(harness: Launcher, tmp_path: Path) -> None:
    done = ranks(
        harness,
        tmp_path,
        """
join()
if rank == 0:
    with new(ranks_timeout_s=300, drain_s=300) as profiler:
        loop(profiler.step)
        # Only this rank knows of it; the group must not end before.
    dist.barrier()
else:
    loop()
    dist.barrier()
""",
    )
    assert traces(tmp_path) == [1, 1]
    assert "rank 1 has entered no Profiler" in done[0].text
    assert done[0].text.count("has entered no Profiler") == 1
    window = report(tmp_path, 3)["window"]
    assert window["missing_ranks"] == [1]
    assert any("had no profiler" in warning for warning in window["warnings"])


def test_one_on_another_rank_alone_has_no_windows_and_waits_for_nobody(harness: Launcher, tmp_path: Path) -> None:
    done = ranks(
        harness,
        tmp_path,
        """
join()
if rank == 1:
    with new(drain_s=300) as profiler:
        loop(profiler.step)
else:
    loop()
dist.barrier()
""",
    )
    assert reading.windows(tmp_path / "tb/a") == []
    assert "rank 0 has not joined" in done[1].text


def test_all_ranks_follow_rank_0_to_the_name_that_it_takes(harness: Launcher, tmp_path: Path) -> None:
    for _ in range(2):
        ranks(
            harness,
            tmp_path,
            """
join()
with new() as profiler:
    loop(profiler.step)
""",
        )
    assert traces(tmp_path, "a") == traces(tmp_path, "a_2") == [2, 2]
    assert sorted(path.name for path in (tmp_path / "tb").iterdir()) == ["a", "a_2"]
    assert not (tmp_path / ".tb.staging").exists()


def test_ranks_that_resume_before_windows_that_are_there_pass_them_together(harness: Launcher, tmp_path: Path) -> None:
    for first, steps in ((0, 12), (1, 16)):
        ranks(
            harness,
            tmp_path,
            f"""
join()
with new(first_step={first}) as profiler:
    loop(profiler.step, {steps})
""",
        )
    assert traces(tmp_path) == [2, 2, 2]
    assert [path.name for path in reading.windows(tmp_path / "tb/a")] == [f"window_{first:08d}" for first in (3, 8, 13)]


@pytest.mark.parametrize("whose", [0, 1])
def test_a_profiler_of_the_users_on_one_rank_costs_that_ranks_part_only(
    whose: int, harness: Launcher, tmp_path: Path
) -> None:
    ranks(
        harness,
        tmp_path,
        f"whose = {whose}\n"
        + """
join()
from torch.profiler import ProfilerActivity, profile
step = 0
with new() as profiler:
    def on_step():
        global step
        if rank == whose and step in (2, 3):  # before the first window's recording, and in it
            with profile(activities=[ProfilerActivity.CPU]) as theirs:
                torch.ones(2) + 1
            assert any(event.key == "aten::add" for event in theirs.key_averages())
        profiler.step()
        step += 1
    loop(on_step, 17)
    dist.barrier()
""",
    )
    # Without rank 0's there is no window.
    assert traces(tmp_path) == ([1, 2, 2] if whose else [2, 2])
    assert report(tmp_path, 3 if whose else 8)["window"]["missing_ranks"] == ([1] if whose else [])
    assert not (tmp_path / ".tb.staging").exists()
