"""Asking a running job for a window: the files that a command and the job's profiler leave each other.

They lie in the run directory, so any host that shares the file system can ask. A request is linked into place
whole, and only where none is waiting; an answer is renamed into place. ::

    .trigger.lock           the profiler's, held while it listens: its host and process
    .trigger.request.json   a command's, until the profiler takes it
    .trigger.answer.json    the profiler's, to the request that it took last
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from harness.errors import UsageError
from harness.files import atomic_write, locks, read_regular
from harness.logdir.layout import ANSWER, LISTENER, PROFILE, REQUEST

T = TypeVar("T")

LOOK_S = 0.2
"""Between two looks at the run directory."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One window, please."""

    id: str
    steps: int | None = None
    """None records as many as the schedule's windows do."""
    with_stack: bool = False
    memory: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a request."""

    id: str
    state: Literal["planned", "recorded", "failed"]
    window: str | None = None
    """The name of the window's directory."""
    first_step: int | None = None
    steps: int | None = None
    reason: str | None = None
    """Why it failed."""


def new_request(*, steps: int | None, with_stack: bool, memory: bool) -> Request:
    return Request(id=secrets.token_hex(8), steps=steps, with_stack=with_stack, memory=memory)


def place(run: Path, request: Request) -> bool:
    """Leave a request in the run; False where another one waits there."""
    temporary = run / f"{REQUEST}.{request.id}"
    try:
        temporary.write_bytes(msgspec.json.encode(request))
        try:
            os.link(temporary, run / REQUEST)
        except FileExistsError:
            return False
        except OSError:
            # A file system without links: two that ask in the same instant are not kept apart.
            if (run / REQUEST).exists():
                return False
            temporary.rename(run / REQUEST)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def withdraw(run: Path, request: Request) -> None:
    """Take the request back if it still waits."""
    if read_request(run) == request:
        (run / REQUEST).unlink(missing_ok=True)


def read_request(run: Path) -> Request | None:
    """The request that waits in the run; None where there is none that can be understood."""
    return _read(run / REQUEST, Request)


def write_answer(run: Path, answer: Answer) -> None:
    with atomic_write(run / ANSWER) as file:
        file.write(msgspec.json.encode(answer))


def read_answer(run: Path, request: Request) -> Answer | None:
    """The answer to this request; None until there is one."""
    answer = _read(run / ANSWER, Answer)
    return answer if answer is not None and answer.id == request.id else None


def hold(run: Path) -> locks.Lock | None:
    """Hold the run's lock file, which the end of the process releases too; None where another process does."""
    return locks.take(run / LISTENER)


def listener(run: Path) -> tuple[locks.Holder, bool | None] | None:
    """Who has listened last in the run, and whether it still does, None where this host cannot tell; None where nobody
    has."""
    found = locks.holder(run / LISTENER)
    return None if found is None else (found, locks.is_held(run / LISTENER))


def listens(run: Path) -> bool:
    """Whether a profiler does; where this host cannot tell, it does."""
    found = listener(run)
    # Not every network file system carries a lock from host to host, and some have none.
    return found is not None and (found[1] is not False or found[0].host != socket.gethostname())


def fulfilled(run: Path, request: Request, timeout_s: float, planned: Callable[[Answer], object]) -> Path:
    """Wait for the window of a request that was placed; its path, once it is complete.

    Args:
        planned: Told once what the job is going to record.

    Raises:
        UsageError: where the job cannot record it or has ended, or the time is over.
    """
    until = time.monotonic() + timeout_s
    answer: Answer | None = None
    while True:
        newer = read_answer(run, request)
        if newer is not None and newer != answer:
            answer = newer
            if answer.state == "failed":
                raise UsageError(f"{run}: no window: {answer.reason}")
            if answer.state == "planned" and answer.first_step is not None and answer.steps is not None:
                planned(answer)
        if answer is not None and answer.window is not None:
            path = run / PROFILE / answer.window
            if path.is_dir():
                return path
        if time.monotonic() >= until:
            what = "has not taken the request" if answer is None else "has not finished the window"
            raise UsageError(f"{run}: after {timeout_s:g} s the job {what}; give a longer --timeout")
        if not listens(run) and (answer is None or answer.state == "planned") and read_answer(run, request) == answer:
            raise UsageError(f"{run}: the job ended before it had recorded the window")
        time.sleep(LOOK_S)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(read_regular(path), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None
