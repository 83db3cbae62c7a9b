"""Kills a process at a chosen call that changes what is on disk, so that "at any instant" can be tried at every one.

From a test: ``harness.run("train", ..., env=kill_at.environment(17, calls, below))`` with the fixture ``harness``; from
a shell: ``python tests/faults/kill_at.py 17 train ...``. Between two such calls nothing changes on disk but the content
of files that have no name of their own yet, or that no reader counts on.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

AT, CALLS, BELOW = "HARNESS_TEST_KILL_AT", "HARNESS_TEST_KILL_CALLS", "HARNESS_TEST_KILL_BELOW"
PATCHED = ("fsync", "link", "mkdir", "rename", "replace", "rmdir", "symlink", "unlink")
"""Functions of :mod:`os`; pathlib and shutil come to them too."""


def environment(at: int, calls: Path, below: Path) -> dict[str, str]:
    """What a process finds in its environment to be killed just before its call ``at``, counted from 1.

    Args:
        at: 0 kills nothing and counts.
        calls: A file that grows by a line with each call.
        below: Only calls for something in this folder count.
    """
    return {AT: str(at), CALLS: str(calls), BELOW: str(below)}


def arm() -> None:
    """Do what the environment of this process says."""
    at, below = int(os.environ.get(AT, "0")), os.environ.get(BELOW, "/")
    log = os.open(os.environ[CALLS], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if CALLS in os.environ else None
    owner, count = os.getpid(), 0

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def before(*arguments: Any, **named: Any) -> Any:
            nonlocal count
            # A child that was forked, as a loader's worker, is another process.
            if os.getpid() == owner and (where := _place(arguments[0])).startswith(below):
                count += 1
                if log is not None:
                    os.write(log, f"{count} {name} {where}\n".encode())
                if count == at:
                    os.kill(owner, signal.SIGKILL)
            return call(*arguments, **named)

        return before

    for name in PATCHED:
        setattr(os, name, counted(name, getattr(os, name)))


def _place(argument: Any) -> str:
    """The path that a call is about."""
    if isinstance(argument, int):
        return os.readlink(f"/proc/self/fd/{argument}")
    return os.path.abspath(os.fsdecode(argument))


if __name__ == "__main__":
    os.environ[AT] = sys.argv[1]
    sys.argv[:2] = ["harness"]
    arm()
    from harness.cli import main

    main()
