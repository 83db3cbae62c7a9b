"""The traces of other ranks, on their way into one window."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from harness.publish import Cost, Job, Staging
from harness.publish.ranks import Handover, RankStaging, complete, handed_in
from harness.publish.recover import recover
from harness.publish.worker import Outcome, publish_all
from tests import reading

NAME = "window_00000005"


def trace(rank: int) -> str:
    events = [{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 1, "tid": 1, "ts": 1, "dur": 9}]
    return json.dumps({"traceEvents": events, "harness": {"rank": rank}})


def export(staging: Staging, rank: int) -> None:
    """What torch leaves."""
    staging.raw(NAME).mkdir(parents=True)
    (staging.raw(NAME) / f"host_{rank}.170000000{rank}.pt.trace.json").write_text(trace(rank))


def job(ranks: list[int], timeout_s: float) -> Job:
    return Job(
        first_step=5,
        steps=1,
        partial=False,
        unprofiled_step_us=None,
        profiled_steps_us=[9.0],
        cost=Cost(),
        raw_bytes=100,
        ranks=ranks,
        ranks_timeout_s=timeout_s,
    )


@pytest.fixture
def staging(logdir: Path) -> Staging:
    """Of rank 0, which has recorded."""
    staging = Staging(logdir, "experiment/run")
    export(staging, 0)
    return staging


def hand_in(staging: Staging, rank: int) -> None:
    of_rank = RankStaging(staging.logdir, staging.run, rank)
    export(of_rank, rank)
    handover = Handover(of_rank)
    handover.submit(NAME, job([], 0.0))
    list(handover.drain(10.0))


def publish(staging: Staging) -> list[Any]:
    said: list[Any] = []
    publish_all(staging, said.append)
    return [outcome for outcome in said if isinstance(outcome, Outcome)]


def ranks_in(window: Path) -> list[int]:
    return sorted(reading.read_gz(path)["harness"]["rank"] for path in window.glob("*.pt.trace.json.gz"))


def test_a_window_waits_until_the_last_rank_has_handed_in(staging: Staging) -> None:
    staging.write(NAME, job([1, 2], 30.0))
    hand_in(staging, 1)
    threading.Timer(0.3, hand_in, (staging, 2)).start()
    (outcome,) = publish(staging)
    assert outcome.error is None
    window = staging.profile / NAME
    assert ranks_in(window) == [0, 1, 2]
    assert json.loads((window / "window.json").read_text())["window"]["missing_ranks"] == []
    assert not staging.root.exists() or not list(staging.root.rglob("*window*"))


def test_a_rank_that_does_not_come_is_waited_for_as_long_as_the_job_says(staging: Staging) -> None:
    staging.write(NAME, job([1, 2], 0.4))
    hand_in(staging, 1)
    began = time.monotonic()
    publish(staging)
    assert 0.4 <= time.monotonic() - began < 5
    window = staging.profile / NAME
    assert ranks_in(window) == [0, 1]
    found = json.loads((window / "window.json").read_text())["window"]
    assert found["missing_ranks"] == [2]
    assert any("rank 2" in warning and "incomplete" in warning for warning in found["warnings"])


def test_a_rank_that_has_lost_its_trace_is_not_waited_for(staging: Staging) -> None:
    staging.write(NAME, job([1], 30.0))
    Handover(RankStaging(staging.logdir, staging.run, 1)).lose(NAME)
    began = time.monotonic()
    publish(staging)
    assert time.monotonic() - began < 5
    assert ranks_in(staging.profile / NAME) == [0]


def test_what_a_dead_job_has_left_is_published_with_the_traces_that_nobody_has_compressed(staging: Staging) -> None:
    staging.write(NAME, job([1, 2], 30.0))
    of_rank = RankStaging(staging.logdir, staging.run, 1)
    export(of_rank, 1)
    (raw,) = of_rank.raw(NAME).iterdir()
    of_rank.hand_in(NAME, raw)
    assert list(handed_in(staging, NAME)) == [1]
    assert not complete(staging, NAME, [1])
    began = time.monotonic()
    assert [outcome.status for _, outcome in recover(staging.logdir)] == ["published"]
    assert time.monotonic() - began < 5, "nobody is waited for"
    assert ranks_in(staging.profile / NAME) == [0, 1]


def test_a_new_life_of_the_job_removes_what_belongs_to_no_window(staging: Staging) -> None:
    hand_in(staging, 1)
    export(RankStaging(staging.logdir, staging.run, 2), 2)
    staging.make()
    assert list(staging.folder.iterdir()) == []
