"""Windows of many ranks: the same steps, one directory, nobody waits."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

from tests import reading
from tests.distributed.jobs import SLOW, start, train, wait_for
from tests.launch import TINY, Launcher, tree, wait_until, window_every


def steps_by_rank(window: Path) -> dict[int, list[int]]:
    """The recorded steps of every rank whose trace is there."""
    found = {}
    for path in window.glob("*.pt.trace.json.gz"):
        trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        matches = (re.fullmatch(r"ProfilerStep#(\d+)", name) for name in reading.names(trace, "user_annotation"))
        rank = trace["harness"]["rank"]
        assert re.search(rf"_{rank}\.\d+\.pt", path.name), path.name
        found[rank] = [int(match[1]) for match in matches if match]
    return found


def findings(window: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((window / "window.json").read_text())
    return found


def test_every_rank_records_the_same_steps_into_one_directory(harness: Launcher, logdir: Path) -> None:
    # Evaluations and checkpoints fall due inside windows, and wait for their end on every rank.
    train(
        harness,
        2,
        *TINY,
        *window_every(4, 1, 2),
        f"logdir={logdir}",
        "trainer.max_steps=21",
        "trainer.eval_every=6",
        "checkpoint=default",
        "checkpoint.every=5",
        "profiler.max_overhead=null",
    )
    run = reading.only_run(logdir)
    windows = reading.windows(run)
    assert [window.name for window in windows] == [f"window_{first:08d}" for first in (5, 12, 19)]
    for window, first in zip(windows, (5, 12, 19), strict=True):
        assert steps_by_rank(window) == {rank: [first, first + 1] for rank in (0, 1)}
        assert findings(window)["window"]["missing_ranks"] == []
    assert not (logdir.parent / ".logs.staging").exists(), tree(logdir.parent)
    assert sorted(reading.scalars(run, "eval/loss")) == [7, 14, 18, 21], "the first two were due at 6 and 12"


def test_only_the_ranks_that_are_asked_for_record(harness: Launcher, logdir: Path) -> None:
    # An evaluation falls due in the window, for those that do not record too.
    train(
        harness,
        4,
        *TINY,
        *window_every(3, 1, 2, repeat=1),
        f"logdir={logdir}",
        "profiler.ranks=[0,3]",
        "trainer.eval_every=5",
        "trainer.max_steps=8",
        "data.batch_size=4",
    )
    (window,) = reading.windows(reading.only_run(logdir))
    assert steps_by_rank(window) == {rank: [4, 5] for rank in (0, 3)}


def test_a_request_and_slow_steps_reach_every_rank_and_the_late_one_is_named(
    harness: Launcher, logdir: Path, tmp_path: Path
) -> None:
    hold = tmp_path / "hold"
    job = start(
        harness,
        2,
        *SLOW,
        *window_every(90000, 1, 2),
        f"+data.train.hold={hold}",
        "+data.train.rank=1",
        "data.train.seconds=0.03",
        "profiler.trigger_on_slow.factor=20",
        "profiler.trigger_on_slow.steps=1",
        "profiler.trigger_on_slow.every_s=0",
        f"logdir={logdir}",
    )
    run = wait_for(job, logdir, "*/*/.trigger.lock").parent
    asked = harness.run("trigger", str(run), "--steps", "3", "--timeout", "30")
    assert asked.status == 0, asked.text + job.text
    window = Path(asked.out.strip())
    first = int(window.name.removeprefix("window_"))
    assert steps_by_rank(window) == {rank: [first, first + 1, first + 2] for rank in (0, 1)}
    found = findings(window)
    assert found["window"]["trigger"] == "request"
    late = found["ranks"]["straggler"]
    assert (late["rank"], late["reason"], late["where"]) == (1, "input", "data"), found["ranks"]

    before = set(reading.windows(run))
    hold.touch()
    time.sleep(1.0)
    hold.unlink()
    wait_until(lambda: set(reading.windows(run)) - before, 30, lambda: f"a window of slow steps; {job.text}")
    (window,) = set(reading.windows(run)) - before
    first = int(window.name.removeprefix("window_"))
    assert steps_by_rank(window) == {rank: [first, first + 1] for rank in (0, 1)}
    assert findings(window)["window"]["trigger"] == "slow"
