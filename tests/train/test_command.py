"""A command leaves nothing behind in its process: not its name, not its sweep, not what it has told Hydra."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest
from hydra.experimental.callback import Callback
from omegaconf import OmegaConf

from harness.distributed.world import World
from harness.errors import UsageError
from harness.train import sweep
from harness.train.main import main
from harness.train.run import Runs


@pytest.mark.parametrize("more", [(), ("-m",)], ids=["a run", "a sweep"])
def test_a_command_leaves_nothing_behind(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(sys.argv), list(sys.path), os.environ.get("HYDRA_FULL_ERROR")
    assert main([*more, "logdir=logs", "trainer.max_steps=0", "seed=0"]) == 2
    assert "trainer.max_steps=0: must be at least 1" in "".join(capsys.readouterr())
    assert (sys.argv, sys.path, os.environ.get("HYDRA_FULL_ERROR")) == before
    assert not OmegaConf.has_resolver("run_dir")
    assert type(sweep.followed()) is Callback


def test_a_sweep_is_followed_for_as_long_as_it_runs() -> None:
    outer, inner = (sweep.Followed(sweep.Sweep(id=name, arguments=[])) for name in ("outer", "inner"))
    with sweep.following(outer):
        with sweep.following(inner):
            assert sweep.followed() is inner
        with sweep.following(None):
            assert type(sweep.followed()) is Callback
        assert sweep.followed() is outer
    assert type(sweep.followed()) is Callback


def test_a_worker_of_a_launcher_knows_what_the_command_knew() -> None:
    followed = sweep.Followed(sweep.Sweep(id="a sweep", arguments=["seed=0,1"]))
    followed.unsaved = UsageError("the disk is full", "and so is the other")
    train = pickle.loads(pickle.dumps(Runs(world=World(), followed=followed, wants_traceback=True).train))
    runs = train.__self__
    assert (runs.world, runs.wants_traceback) == (World(), True)
    assert runs.followed.sweep == followed.sweep
    assert runs.followed.unsaved.problems == followed.unsaved.problems
