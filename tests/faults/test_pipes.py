"""Pipes, devices, folders and links under every name that is read: no command waits, none ends in a traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import reading
from tests.launch import TINY, Launcher, tree, window_every

LIMIT_S = 60.0
JOB = (*(text for text in TINY if text not in ("profiler=none", "checkpoint=none")), *window_every(1, 1, 1))

pytestmark = pytest.mark.xdist_group("pipes")


@pytest.fixture(scope="module")
def trained(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two windows and a checkpoint, which can be gone on with."""
    logdir = tmp_path_factory.mktemp("trained") / "logs"
    done = launcher.run("train", *JOB, "trainer.max_steps=6", f"logdir={logdir}")
    assert done.status == 0, done.text
    return reading.only_run(logdir)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def directory(path: Path) -> None:
    path.mkdir()


def dangling(path: Path) -> None:
    path.symlink_to("nothing")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


KINDS = [pipe, device, directory, dangling, loop, huge]
NAMES = [
    "run.json",
    "profile/window_00000002/window.json",
    "profile/window_00000002/*.pt.trace.json.gz",
    ".hydra/overrides.yaml",
    ".trigger.lock",
    ".trigger.request.json",
    ".trigger.answer.json",
    ".lock",
    "checkpoints/step_00000006.pt",
]


READ = """
import io, json, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from harness.cli import main

for arguments in json.loads(sys.argv[1]):
    sys.argv = ["harness", *arguments]
    said, status = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace"), 0
    with redirect_stdout(said), redirect_stderr(said):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
        except BaseException:
            traceback.print_exc()
            status = 1
        said.flush()
    print(json.dumps([status, said.buffer.getvalue().decode()]), flush=True)
"""
"""Commands one after the other in one process; a start takes longer than most of them."""

RESUMED = ("run.json", ".hydra/overrides.yaml", ".lock", "checkpoints/step_00000006.pt")
"""What going on with a run asks, beside the windows' findings."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_name_holds_a_command_up(
    kind: Callable[[Path], None], trained: Path, harness: Launcher, tmp_path: Path
) -> None:
    for number, name in enumerate(NAMES):
        logdir = tmp_path / str(number)
        run = Path(shutil.copytree(trained, logdir / "default" / trained.name, symlinks=True))
        path = next(run.glob(name), run / name)
        path.unlink(missing_ok=True)
        kind(path)
        commands = [
            ["report", str(run)],
            ["report", str(run), "--window", "2", "--format", "json"],
            ["report", str(path)],
            ["compare", str(run), str(run)],
            ["runs", str(logdir)],
            ["trigger", str(run), "--timeout", "0.1"],
        ]
        read = harness.script(READ, json.dumps(commands), cwd=tmp_path, timeout=LIMIT_S)
        ended = [json.loads(line) for line in read.out.splitlines()]
        assert len(ended) == len(commands), read.text
        if name in RESUMED:
            commands.append(["train", f"resume={run}", "trainer.max_steps=7"])
            done = harness.run(*commands[-1], timeout=LIMIT_S)
            ended.append([done.status, done.text])
        for command, (status, text) in zip(commands, ended, strict=True):
            assert "Traceback" not in text, f"{kind.__name__} {name} {command}:\n{text}"
            assert status in (0, 2), f"{kind.__name__} {name} {command}:\n{text}"
            assert status == 0 or text.count("error:") == 1, text


def test_a_pipe_in_staging_holds_nobody_up(trained: Path, harness: Launcher, tmp_path: Path) -> None:
    """Of a job that was killed, as the report publishes it."""
    logdir = tmp_path / "logs"
    run = Path(shutil.copytree(trained, logdir / "default" / trained.name, symlinks=True))
    staging = tmp_path / ".logs.staging" / "default" / trained.name
    job = {
        "first_step": 9, "steps": 1, "partial": False, "unprofiled_step_us": None, "profiled_steps_us": [],
        "cost": {}, "raw_bytes": 1, "ranks": [1],
    }  # fmt: skip
    for step, what in ((9, "job"), (10, "trace"), (11, "rank"), (12, "tries")):
        name = f"window_{step:08d}"
        (staging / name).mkdir(parents=True)
        (staging / f"{name}.ranks").mkdir()
        trace = staging / name / "host_0.1.pt.trace.json"
        (os.mkfifo if what == "trace" else Path.touch)(trace)
        (staging / f"{name}.job").write_text(json.dumps({**job, "first_step": step}))
        if what == "job":
            (staging / f"{name}.job").unlink()
            os.mkfifo(staging / f"{name}.job")
        if what == "rank":
            os.mkfifo(staging / f"{name}.ranks" / "host_1.1.pt.trace.json")
        if what == "tries":
            os.mkfifo(staging / f"{name}.tries")
    (staging / ("window_" + "9" * 200 + ".job")).touch()
    (staging / "window_²²²²²²²².job").touch()
    done = harness.run("report", str(run), "--window", "2", timeout=LIMIT_S)
    assert done.status == 0, done.text
    assert "Traceback" not in done.text
    assert not any("9999" in name for name in tree(run / "profile"))
