"""``harness trigger``: a window of a running job, now."""

from __future__ import annotations

import socket
import time
from pathlib import Path

from harness import console
from harness.errors import UsageError
from harness.logdir.request import Answer, Request, listener, new_request, place, read_answer, withdraw
from harness.logdir.run import MANIFEST, PROFILE, read_manifest
from harness.schedule import STEPS_AT_MOST

LOOK_S = 0.2
"""Between two looks at the run directory."""


def trigger(run: Path, *, steps: int | None, with_stack: bool, memory: bool, timeout_s: float) -> Path:
    """Ask the job that trains in ``run`` for a window, and wait until it stands in the logdir.

    Raises:
        UsageError: where nothing runs there, another request waits, or the time is over.
    """
    if steps is not None and not 1 <= steps <= STEPS_AT_MOST:
        raise UsageError(f"{steps} steps: a window has between 1 and {STEPS_AT_MOST:,}")
    _require_listener(run)
    request = new_request(steps=steps, with_stack=with_stack, memory=memory)
    try:
        placed = place(run, request)
    except OSError as error:
        raise UsageError(f"{run} cannot be written, so the job cannot be asked: {error}") from error
    if not placed:
        raise UsageError(f"{run}: another request waits there; wait until the job has taken it")
    try:
        return _wait(run, request, timeout_s)
    finally:
        withdraw(run, request)


def _require_listener(run: Path) -> None:
    if not run.is_dir():
        raise UsageError(f"{run} is no run: there is no such directory")
    if _listens(run):
        return
    if (found := listener(run)) is not None:
        raise UsageError(f"{run} is not running: process {found[0].pid}, which listened there, has ended")
    if not (run / MANIFEST).exists():
        raise UsageError(f"{run} is no run, or its job has no profiler that listens: there is no {MANIFEST} in it")
    status = read_manifest(run).status
    if status == "running":
        raise UsageError(f"{run}: the job's profiler is off (profiler=none), has failed, or has not begun yet")
    # Hydra's grammar takes a while to import, and only this needs it.
    from harness.config import overrides

    raise UsageError(f"{run} is not running, it is {status}; go on with it: {overrides.resume_command(run)}")


def _wait(run: Path, request: Request, timeout_s: float) -> Path:
    """The window's path, once it is complete."""
    until = time.monotonic() + timeout_s
    answer: Answer | None = None
    while True:
        newer = read_answer(run, request)
        if newer is not None and newer != answer:
            answer = newer
            if answer.state == "failed":
                raise UsageError(f"{run}: no window: {answer.reason}")
            if answer.state == "planned" and answer.first_step is not None and answer.steps is not None:
                last = answer.first_step + answer.steps - 1
                console.err.print(f"steps {answer.first_step:,} to {last:,} will be recorded", highlight=False)
        if answer is not None and answer.window is not None:
            path = run / PROFILE / answer.window
            if path.is_dir():
                return path
        if time.monotonic() >= until:
            what = "has not taken the request" if answer is None else "has not finished the window"
            raise UsageError(f"{run}: after {timeout_s:g} s the job {what}; give a longer --timeout")
        if not _listens(run) and (answer is None or answer.state == "planned") and read_answer(run, request) == answer:
            raise UsageError(f"{run}: the job ended before it had recorded the window")
        time.sleep(LOOK_S)


def _listens(run: Path) -> bool:
    """Whether a profiler does; where this host cannot tell, it does."""
    found = listener(run)
    # Not every network file system carries a lock from host to host, and some have none.
    return found is not None and (found[1] is not False or found[0].host != socket.gethostname())
