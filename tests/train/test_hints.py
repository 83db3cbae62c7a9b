"""What is printed to be pasted can be pasted, whatever a path is made of, and what a shell hands over is taken."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import QuotedString
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from harness.config import overrides
from harness.errors import UsageError
from harness.train import resume
from tests import reading
from tests.launch import TINY, Launcher, expect_usage_error, wait_until
from tests.train.test_resume import SLOW

ODD = "a b'c\"d=e,f$g[h]{i}é(j)日\\"
"""Signs that a shell, Hydra, OmegaConf, Rich or a pattern of files take for something else."""
JOB = (*(text for text in TINY if not text.startswith(("checkpoint", "trainer.max_steps"))), "checkpoint.every=2")


def command_in(text: str, beginning: str) -> list[str]:
    """The arguments of the one ``harness`` command that begins so, as a shell splits it."""
    (line,) = [line for line in text.splitlines() if beginning in line]
    pasted = line[line.index(beginning) :]
    split = subprocess.run(
        ["sh", "-c", f"printf '%s\\0' {pasted}"], capture_output=True, text=True, check=True
    ).stdout.split("\0")[:-1]
    assert split == shlex.split(pasted)
    assert split[0] == "harness"
    return split[1:]


@pytest.mark.parametrize("terminal", [False, True], ids=["", "in a narrow terminal"])
def test_the_command_that_a_stopped_run_prints_goes_on_with_it(
    terminal: bool, harness: Launcher, tmp_path: Path
) -> None:
    logdir = tmp_path / ODD / "logs of mine"
    forever = ("trainer.max_steps=100000", *SLOW, "+data.train.seconds=0.02", "data.eval=null")
    env = {"FORCE_COLOR": "1", "COLUMNS": "40"} if terminal else {}
    command = harness.start("train", *JOB, *forever, overrides.assign("logdir", logdir), cwd=tmp_path, env=env)
    wait_until(lambda: "step 1/" in command.text or "train" in command.text or not command.running, 60)
    wait_until(
        lambda: any(tmp_path.glob("*/*/*/*/checkpoints/step_*")) or not command.running, 60, lambda: command.text
    )
    command.signal(signal.SIGTERM)
    done = command.wait(60)
    assert done.status == 143, done.text
    (run,) = [path.parent for path in tmp_path.rglob("run.json")]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.err)
    arguments = command_in(text, "harness train")
    step = reading.manifest(run)["step"]
    again = harness.run(*arguments, f"trainer.max_steps={step + 2}", cwd=tmp_path)
    assert again.status == 0, again.text
    assert (reading.manifest(run)["step"], reading.manifest(run)["resumed_from"]) == (step + 2, [step])
    assert len(list(tmp_path.rglob("run.json"))) == 1

    # As a shell completes it, which knows nothing of Hydra; and from the folder itself.
    more = harness.run("train", f"resume={run}", f"trainer.max_steps={step + 3}", cwd=tmp_path)
    assert more.status == 0, more.text
    here = harness.run("train", "resume=.", f"trainer.max_steps={step + 4}", cwd=run)
    assert here.status == 0, here.text
    assert reading.manifest(run)["step"] == step + 4

    refused = harness.run("trigger", str(run), cwd=tmp_path)
    assert refused.status == 2
    assert command_in(refused.err, "harness train") == arguments


def test_the_command_that_a_sweep_prints_goes_on_with_it(harness: Launcher, tmp_path: Path) -> None:
    logdir = tmp_path / ODD / "logs"
    given = [*JOB, "trainer.max_steps=4", "optimizer.lr=1e-3,1e-2", "data.eval=null"]
    done = harness.run("train", "-m", *given, overrides.assign("logdir", logdir), cwd=tmp_path)
    assert done.status == 0, done.text
    runs = sorted(path.parent for path in logdir.glob("*/*/run.json"))
    (runs[1] / "run.json").write_text(json.dumps(reading.manifest(runs[1]) | {"status": "interrupted"}))
    said = harness.run("runs", str(logdir), "--sweep", cwd=tmp_path)
    again = harness.run(*command_in(said.out, "harness train"), "trainer.max_steps=6", cwd=tmp_path)
    assert again.status == 0, again.text
    assert reading.manifest(runs[1])["step"] == 6
    assert "1 of 2" not in again.out
    assert sorted(path.parent for path in logdir.glob("*/*/run.json")) == runs
    board = command_in(said.out, "harness board")
    assert board == ["board", str(logdir)]


def test_several_ranks_train_and_go_on_where_the_path_is_odd(harness: Launcher, tmp_path: Path) -> None:
    logdir = tmp_path / ODD
    several = [*JOB, "trainer.max_steps=4", "data.eval=null", "trainer.devices=2"]
    done = harness.run("train", *several, overrides.assign("logdir", logdir), cwd=tmp_path)
    assert done.status == 0, done.text
    (run,) = [path.parent for path in tmp_path.rglob("run.json")]
    assert run.is_relative_to(logdir)
    again = harness.run("train", overrides.assign("resume", run), "trainer.max_steps=6", cwd=tmp_path)
    assert again.status == 0, again.text
    assert (reading.manifest(run)["step"], reading.manifest(run)["world_size"]) == (6, 2)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_hydra_takes_an_assigned_value_to_the_letter(text: str) -> None:
    written = overrides.assign("resume", text)
    value = OverridesParser.create().parse_override(written).value()
    plain = value.text if isinstance(value, QuotedString) else value
    assert OmegaConf.create({"resume": plain})["resume"] == text
    assert overrides.value(written) == text
    assert overrides.key(written) == "resume"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resume=tb_logs/a/b", "tb_logs/a/b"),
        ("resume='with spaces'", "with spaces"),
        ('++resume="a\\"b"', 'a"b'),
        ("resume=a\\,b", "a,b"),
        ("resume=${oc.env:HARNESS_TEST_FOLDER}/run", "/somewhere/run"),
        ("resume=1.50", "1.50"),
        ("resume=a=b", "a=b"),
        ("resume=día", "día"),
        ("resume=null", None),
        ("resume=", None),
    ],
)
def test_a_path_is_taken_as_hydra_takes_it_and_else_as_it_stands(
    text: str, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARNESS_TEST_FOLDER", "/somewhere")
    assert overrides.path(text) == expected


def test_an_empty_resume_starts_a_run_of_its_own() -> None:
    assert resume.complete(["resume=null", "seed=1"]) == ["resume=null", "seed=1"]
    assert resume.complete(["seed=1"]) == ["seed=1"]
    with pytest.raises(UsageError, match="no such directory"):
        resume.complete(["++resume='not here'", "seed=1"])


def test_overrides_stand_together_wherever_the_flags_are(harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("train", *JOB, "trainer.max_steps=4", "data.eval=null", "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    run = reading.only_run(tmp_path / "logs")
    (tmp_path / "conf").mkdir()
    again = harness.run("train", "--config-dir", "conf", f"resume={run}", "trainer.max_steps=6", cwd=tmp_path)
    assert again.status == 0, again.text
    assert reading.manifest(run)["step"] == 6
    expect_usage_error(harness.run("train", f"resume={run}", "trainer.max_steps=6", cwd=tmp_path), "step 6 of 6")
