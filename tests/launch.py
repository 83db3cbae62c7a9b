"""Real ``harness`` processes for the tests, and what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 180.0

TINY = (
    "model=mlp",
    "model.hidden=[8]",
    "data.batch_size=16",
    "trainer.device=cpu",
    "trainer.threads=1",
    "trainer.max_steps=6",
    "trainer.log_every=1",
    "trainer.eval_every=null",
    "profiler=none",
    "checkpoint=none",
)
"""The smallest real job."""

NOISE = ("data=synthetic_images", "data.train.shape=[1,8,8]", "data.train.num_classes=10", "data.batch_size=16")
"""Data for the MLP that import nothing, for jobs whose processes start from nothing."""


def window_every(wait: int, warmup: int, active: int, repeat: int = 0) -> tuple[str, ...]:
    """Overrides for this schedule."""
    return (
        "profiler=periodic",
        f"profiler.wait={wait}",
        f"profiler.warmup={warmup}",
        f"profiler.active={active}",
        f"profiler.repeat={repeat}",
        "profiler.activities=[cpu]",
        "profiler.record_shapes=false",
    )


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with this checkout and its tests to import from, and one thread a process."""
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *([before] if before else [])])
    # Hundreds of processes that each compile the same modules again are most of a suite's time.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **changes}


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit status as a shell would say it, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    @property
    def said(self) -> str:
        """What it printed, without the places where lines were broken."""
        return " ".join(self.text.split())


class Command:
    """A running ``harness`` command, in a session of its own."""

    def __init__(self, pid: int, out: Path, err: Path, status: Path, token: str) -> None:
        self.pid = pid
        self._token = token
        self._out, self._err, self._status = out, err, status

    def signal(self, number: signal.Signals) -> None:
        if self._status.exists():
            return
        os.kill(self.pid, number)

    @property
    def running(self) -> bool:
        return not self._status.exists()

    @property
    def text(self) -> str:
        """All that it has printed so far."""
        return "".join(path.read_text(errors="replace") for path in (self._out, self._err) if path.is_file())

    def wait(self, timeout: float = TIMEOUT_S) -> Ended:
        wait_until(lambda: not self.running, timeout, lambda: f"the command's end; it said:\n{self.text}")
        status = int(self._status.read_text())
        out, err = (path.read_text(errors="replace") if path.is_file() else "" for path in (self._out, self._err))
        return Ended(128 - status if status < 0 else status, out, err)

    def kill_session(self) -> None:
        """End the command and every process that it has started, and no other that has got its number since."""
        for pid in session(self.pid):
            try:
                if self._token.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


class Launcher:
    """Starts ``harness`` commands from a process that has torch in memory already; see ``zygote.py``.

    Args:
        folder: Where they start, and their output goes.
        env: Changes to the environment of that process, for what only its start can bring in, as a preloaded library.
    """

    def __init__(self, folder: Path, **env: str) -> None:
        self._folder = folder
        self._count = 0
        self._started: list[Command] = []
        # What the zygote is started with, all that come from it inherit.
        self._token = f"HARNESS_TESTS={folder}"
        self._zygote = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(HARNESS_TESTS=str(folder), **env),
            cwd=folder,
        )

    def start(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stderr: str | None = None,
        main: str = "harness.cli:main",
    ) -> Command:
        """Start ``harness ARGUMENTS...``.

        Args:
            cwd: Where; a folder apart from this checkout unless given.
            env: Changes to the environment.
            stderr: Where its stderr goes in place of a file, as a terminal's device.
            main: What to call in place of the command: a module and its function.
        """
        return self._start({"argv": ["harness", *arguments], "main": main}, cwd, env, stderr)

    def script(
        self, code: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = TIMEOUT_S
    ) -> Ended:
        """Run a script of somebody's own to its end, in ``cwd``."""
        return self.start_script(code, *arguments, cwd=cwd, env=env).wait(timeout)

    def start_script(self, code: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> Command:
        """Start a script of somebody's own, in ``cwd``."""
        path = self._folder / f"script_{self._count}.py"
        path.write_text(code)
        return self._start({"argv": [str(path), *arguments], "script": str(path)}, cwd, env, None)

    def _start(
        self, what: dict[str, Any], cwd: Path | None, env: Mapping[str, str] | None, stderr: str | None
    ) -> Command:
        self._count += 1
        out, err, status = (self._folder / f"{self._count}.{kind}" for kind in ("out", "err", "status"))
        request: dict[str, Any] = {
            **what,
            "cwd": str(cwd or self._folder),
            "env": environment(HARNESS_TESTS=str(self._folder), **(env or {})),
            "stdout": str(out),
            "stderr": stderr or str(err),
            "status": str(status),
        }
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.write(json.dumps(request).encode() + b"\n")
        self._zygote.stdin.flush()
        command = Command(int(self._zygote.stdout.readline()), out, err, status, self._token)
        self._started.append(command)
        return command

    def run(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = TIMEOUT_S,
    ) -> Ended:
        """Run ``harness ARGUMENTS...`` to its end."""
        return self.start(*arguments, cwd=cwd, env=env).wait(timeout)

    def living(self) -> list[int]:
        """The processes of all commands started so far that are still there, publishers that go on among them."""
        return session(*(command.pid for command in self._started))

    def end_all(self) -> None:
        """End what is left of the commands started so far."""
        for command in self._started:
            command.kill_session()
        self._started.clear()

    def close(self) -> None:
        self.end_all()
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait(30)


def python(*arguments: str, cwd: Path, timeout: float = TIMEOUT_S, **env: str) -> Ended:
    """Run a Python of its own, started from nothing."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def session(*leaders: int) -> list[int]:
    """The living processes of a session, or of several, zombies left out (Linux)."""
    return [pid for pid, (_, _, sid) in _living().items() if int(sid) in leaders]


def children(naming: str) -> list[int]:
    """The living processes that this one has started with this text in their command line (Linux)."""
    found = []
    for pid, (parent, _, _) in _living().items():
        with suppress(OSError):
            if int(parent) == os.getpid() and naming.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def _living() -> dict[int, list[str]]:
    """Each process's parent, group and session, zombies left out."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, *kin = stat.read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                found[int(stat.parent.name)] = kin
    return found


def wait_until(
    true: Callable[[], object], timeout: float, what: Callable[[], str] | str = "it", every: float = 0.01
) -> None:
    """Wait for a condition; an AssertionError names what never came."""
    end = time.monotonic() + timeout
    while not true():
        assert time.monotonic() < end, f"waited {timeout} s for {what if isinstance(what, str) else what()}"
        time.sleep(every)


def tree(folder: Path) -> list[str]:
    """Every path below ``folder``, sorted; empty where there is no such folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def expect_usage_error(done: Ended, *words: str, logdir: Path | None = None, left: Sequence[str] = ()) -> None:
    """One message, without a traceback, that holds ``words``; status 2; nothing in ``logdir`` but ``left``."""
    assert done.status == 2, done.text
    assert "Traceback" not in done.text, done.text
    assert done.text.count("error:") == 1, done.text
    for word in words:
        assert word in " ".join(done.err.split()), f"{word!r} is not in:\n{done.text}"
    if logdir is not None:
        assert tree(logdir) == sorted(left)
        assert not (logdir.parent / f".{logdir.name}.staging").exists()
