"""File systems that fail in the middle: a command says so and ends with status 2, a job warns and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import reading
from tests.faults.shim import failing
from tests.launch import TINY, Launcher, window_every

JOB = (*(text for text in TINY if text not in ("profiler=none", "checkpoint=none")), *window_every(1, 1, 1))

pytestmark = pytest.mark.xdist_group("failing reads")


@pytest.fixture(scope="module")
def trained(shimmed: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two windows and a checkpoint, in a logdir of its own."""
    logdir = tmp_path_factory.mktemp("trained") / "logs"
    done = shimmed.run("train", *JOB, f"logdir={logdir}", env=failing())
    assert done.status == 0, done.text
    return reading.only_run(logdir)


RULES = [
    f"{call}:{name}={('EIO', 'ESTALE', 'EACCES')[number % 3]}"
    for number, (call, name) in enumerate(
        (
            ("open", "run.json"),
            ("read", "run.json"),
            ("stat", "run.json"),
            ("open", "window.json"),
            ("read", "window.json"),
            ("stat", "window.json"),
            ("open", "*.pt.trace.json.gz"),
            ("read", "*.pt.trace.json.gz"),
            ("opendir", "profile"),
            ("readdir", "profile"),
            ("readdir", "window_00000002"),
            ("opendir", "logs"),
            ("readdir", "logs"),
            ("stat", "window_00000005"),
            ("flock", ".lock"),
        )
    )
]


@pytest.mark.parametrize("rule", RULES)
def test_a_command_says_what_failed(rule: str, trained: Path, shimmed: Launcher) -> None:
    logdir = trained.parents[1]
    for command in (
        ["report", str(trained)],
        ["report", str(logdir), "--format", "json"],
        ["compare", str(trained), str(trained)],
        ["runs", str(logdir)],
        ["trigger", str(trained), "--timeout", "0.1"],
    ):
        done = shimmed.run(*command, env=failing(rule))
        assert "Traceback" not in done.text, f"{rule} {command}:\n{done.text}"
        assert done.status in (0, 2), f"{rule} {command}:\n{done.text}"
        assert done.status == 0 or sum(line.startswith("error:") for line in done.text.splitlines()) == 1, done.text


@pytest.mark.parametrize(
    "rule",
    [
        "open:window.json=EIO",
        "read:*.pt.trace.json=EIO",
        "read:*.job=ESTALE",
        "opendir:profile=EIO",
        "readdir:profile=ESTALE",
        "open:.trigger.request.json=EIO",
        "stat:.trigger.request.json=ESTALE",
        "open:.trigger.lock=EIO",
        "open:train.log=EIO",
        "write:train.log=EIO",
    ],
)
def test_a_job_goes_on(rule: str, shimmed: Launcher, logdir: Path) -> None:
    done = shimmed.run("train", *JOB, f"logdir={logdir}", env=failing(rule))
    assert done.status == 0, f"{rule}:\n{done.text}"
    assert "Traceback" not in done.text, done.text
    manifest = reading.manifest(reading.only_run(logdir))
    assert (manifest["status"], manifest["step"]) == ("completed", 6)
