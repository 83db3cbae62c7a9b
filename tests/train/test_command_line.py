"""``harness train`` has Hydra's whole command line: flags, tab completion, sweeps and launchers."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

from tests import reading
from tests.launch import NOISE, TINY, Command, Launcher, environment, expect_usage_error, python, tree, wait_until


def sweep(harness: Launcher, cwd: Path, *overrides: str) -> Command:
    keys = {text.partition("=")[0] for text in overrides}
    tiny = (text for text in TINY if text.partition("=")[0] not in keys)
    return harness.start("train", "-m", *tiny, *overrides, "logdir=logs", cwd=cwd)


def by_directory(logdir: Path) -> dict[str, str]:
    """Status of every run of the default experiment, by its directory."""
    return {run.parent.name: json.loads(run.read_text())["status"] for run in sorted(logdir.glob("default/*/run.json"))}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--help"], ["Usage: harness train", "model: cnn, custom, matmul", "max_steps: 1000", "harness train -m"]),
        (["model=mlp", "--cfg", "job"], ["_target_: harness.models.MLP", "max_steps: 1000"]),
        (["--cfg", "job", "--package", "trainer"], ["max_steps: 1000"]),
        (["--cfg", "job", "--resolve", "scheduler=cosine"], ["max_steps: 1000", "warmup_steps: 0"]),
        (["--cfg", "hydra"], ["hydra:", "launcher:"]),
        (["--info"], ["Defaults List", "conf"]),
        (["--info", "defaults-tree"], ["model: cnn"]),
        (["--hydra-help"], ["--multirun"]),
        (["--version"], ["Hydra 1."]),
    ],
    ids=" ".join,
)
def test_a_flag_answers_and_runs_nothing(flags: list[str], words: list[str], harness: Launcher, tmp_path: Path) -> None:
    done = harness.run("train", *flags, cwd=tmp_path)
    assert done.status == 0, done.text
    for word in words:
        assert word in done.out, done.text
    assert tree(tmp_path) == []


def test_a_folder_of_ones_own_adds_groups_and_experiments(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "mine" / "experiment").mkdir(parents=True)
    (tmp_path / "mine" / "experiment" / "quick.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /model: mlp\nname: quick\ntrainer:\n  max_steps: 2\n"
    )
    done = harness.run(
        "train", "--config-dir", "mine", "experiment=quick", "profiler=none", "logdir=logs", cwd=tmp_path
    )
    assert done.status == 0, done.text
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["id"].startswith("quick/")


def test_the_module_runs_as_the_command_does(tmp_path: Path) -> None:
    done = python("-m", "harness.train", *TINY, *NOISE, "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    assert done.err.count("step 6/6") == 1
    run = reading.only_run(tmp_path / "logs")
    assert reading.manifest(run)["command"].startswith("python -m harness.train model=mlp")


def test_a_sweep_gives_each_combination_a_run_with_a_readable_safe_name(harness: Launcher, tmp_path: Path) -> None:
    done = sweep(harness, tmp_path, "model.hidden=[8],[4,4]", "optimizer.lr=1e-2,1e-3", "seed=5").wait()
    assert done.status == 0, done.text
    runs = by_directory(tmp_path / "logs")
    assert set(runs.values()) == {"completed"}
    name = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_[0-9a-f]{4}_"
    endings = [re.sub(f"^{name}", "", run) for run in runs]
    assert endings == [
        "000_model.hidden=8,optimizer.lr=0.01",
        "001_model.hidden=8,optimizer.lr=0.001",
        "002_model.hidden=4,4,optimizer.lr=0.01",
        "003_model.hidden=4,4,optimizer.lr=0.001",
    ]
    assert all(re.fullmatch(r"[A-Za-z0-9._=,-]+", run) for run in runs)
    manifests = [json.loads(path.read_text()) for path in (tmp_path / "logs").rglob("run.json")]
    assert len({manifest["sweep"] for manifest in manifests}) == 1
    assert "4 of 4 runs completed" in done.out
    for ending in endings:
        assert ending in done.said.replace(" ", "") or ending in done.out
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"default"}, "nothing beside the experiment"
    beside = {path.name for path in (tmp_path / "logs" / "default").iterdir()} - set(runs)
    assert beside == {f"{manifests[0]['sweep']}.sweep.json", "multirun.yaml"}


def test_a_failing_job_hides_none_of_the_others(harness: Launcher, tmp_path: Path) -> None:
    done = sweep(harness, tmp_path, "optimizer=sgd", "optimizer.lr=1e-2,1e30,1e-3").wait()
    runs = by_directory(tmp_path / "logs")
    assert [(run[25:], status) for run, status in runs.items()] == [
        ("000_optimizer.lr=0.01", "completed"),
        ("001_optimizer.lr=1e30", "failed"),
        ("002_optimizer.lr=0.001", "completed"),
    ]
    assert done.status == 1, done.text
    assert "2 of 3 runs completed" in done.out
    assert "001_optimizer.lr=1e30: the loss of step" in done.said
    assert done.said.count("the loss of step") == 1
    assert "Traceback" not in done.text, done.text


def test_a_job_with_a_mistake_hides_none_of_the_others(harness: Launcher, tmp_path: Path) -> None:
    done = sweep(harness, tmp_path, "data.batch_size=16,5000,32").wait()
    assert list(by_directory(tmp_path / "logs").values()) == ["completed", "failed", "completed"]
    assert done.status in (1, 2), done.text
    assert "2 of 3 runs completed" in done.out
    assert "data.batch_size=5000 is more than" in done.said
    assert "Traceback" not in done.text, done.text


def test_a_sweep_with_a_mistake_that_all_jobs_share_starts_none(harness: Launcher, tmp_path: Path) -> None:
    done = sweep(harness, tmp_path, "seed=0,1", "nonsense=1").wait()
    expect_usage_error(done, "nonsense", logdir=tmp_path / "logs")


def test_a_mistake_of_all_jobs_is_told_once(harness: Launcher, tmp_path: Path) -> None:
    done = sweep(harness, tmp_path, "seed=0,1", "profiler=periodic", "profiler.wait=95").wait()
    assert done.status == 2, done.text
    assert done.said.count("the first window would end with step 100") == 1
    assert "2 runs, default/" in done.said
    assert re.search(r"Go on with it: harness train -m resume=\S+ KEY=VALUE$", done.out, re.MULTILINE)


def test_a_signal_ends_the_whole_sweep_in_order(harness: Launcher, tmp_path: Path) -> None:
    slow = ("data=custom", "data.train._target_=slow_digits.SlowDigits", "+data.train.seconds=0.05")
    command = sweep(harness, tmp_path, *slow, "trainer.max_steps=100", "checkpoint.enabled=true", "seed=0,1")
    wait_until(lambda: "step 1/" in command.text or not command.running, 60)
    command.signal(signal.SIGTERM)
    done = command.wait(30)
    assert done.status == 143, done.text
    assert list(by_directory(tmp_path / "logs").values()) == ["interrupted"]
    assert "Traceback" not in done.text
    assert "0 of 1 runs completed" in done.out


def test_joblib_runs_several_jobs_at_a_time_and_reports_the_one_that_fails(harness: Launcher, tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    launcher = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    done = sweep(harness, tmp_path, *launcher, *NOISE, "optimizer=sgd", "optimizer.lr=1e30,1e-3").wait()
    assert list(by_directory(tmp_path / "logs").values()) == ["failed", "completed"]
    assert done.status == 1, done.text
    assert "1 of 2 runs completed" in done.out
    pids = {json.loads(path.read_text())["pid"] for path in (tmp_path / "logs").rglob("run.json")}
    assert len(pids) == 2


def test_an_experiment_sweeps_by_itself(harness: Launcher, tmp_path: Path) -> None:
    tiny = ("trainer.device=cpu", "trainer.threads=1", "trainer.max_steps=2", "profiler=none", "data.train.size=4,8")
    done = harness.run("train", "-m", "experiment=matmul_sweep", *tiny, "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    names = sorted(path.parent.name[25:] for path in (tmp_path / "logs").glob("matmul_sweep/*/run.json"))
    assert names == ["000_data.train.size=4", "001_data.train.size=8"]


class Shell:
    """An interactive bash in a terminal, with ``harness`` on its path."""

    def __init__(self, folder: Path) -> None:
        (folder / "bin").mkdir()
        command = folder / "bin" / "harness"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from harness.cli import main; main()" "$@"\n')
        command.chmod(0o755)
        env = environment(
            PATH=f"{folder / 'bin'}:{os.environ['PATH']}", PS1="READY>", TERM="dumb", HISTFILE="/dev/null"
        )
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], env)
        self.expect("READY>")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def expect(self, pattern: str, timeout: float = 90) -> str:
        """Read until ``pattern`` has appeared; all that was read."""
        read = ""
        end = time.monotonic() + timeout
        while not re.search(pattern, read):
            ready, _, _ = select.select([self._terminal], [], [], max(0, end - time.monotonic()))
            assert ready, f"waited for {pattern!r} and read {read!r}"
            read += os.read(self._terminal, 4096).decode(errors="replace")
        return read

    def close(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        os.close(self._terminal)


def test_tab_completes_commands_groups_and_options_in_bash(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    try:
        shell.type('eval "$(harness train -sc install=bash)"; echo installed\n')
        shell.expect(r"installed\r\n.*READY>")
        shell.type("harness tra\t")
        shell.expect("harness train ?$")
        shell.type(" model=tran\t")
        shell.expect("model=transformer")
        shell.type(" trainer.max_st\t")
        shell.expect(r"trainer\.max_steps=")
    finally:
        shell.close()


@pytest.mark.parametrize("shell", ["fish", ""])
def test_a_shell_without_completion_is_told(shell: str, harness: Launcher) -> None:
    expect_usage_error(harness.run("train", "-sc", f"install={shell}"), "bash and zsh")


def test_a_terminal_shows_a_bar(harness: Launcher, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    command = harness.start("train", *TINY, "logdir=logs", cwd=tmp_path, stderr=os.ttyname(theirs))
    read = b""
    while command.running or select.select([ours], [], [], 0)[0]:
        if select.select([ours], [], [], 0.05)[0]:
            read += os.read(ours, 65536)
    os.close(ours)
    os.close(theirs)
    assert command.wait().status == 0
    assert b"6/6" in read
    assert b"loss" in read
    assert b"\x1b[" in read, "a terminal gets colours"


def test_the_trainer_for_debugging_fits_the_schedule_that_is_there_by_default(
    harness: Launcher, tmp_path: Path
) -> None:
    done = harness.run("train", "trainer=debug", "model=mlp", "model.hidden=[8]", "logdir=logs", cwd=tmp_path)
    assert done.status == 0, done.text
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["status"] == "completed"
