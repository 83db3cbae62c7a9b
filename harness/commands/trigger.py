"""``harness trigger``: a window of a running job, now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness import console
from harness.errors import UsageError
from harness.schedule import STEPS_AT_MOST

if TYPE_CHECKING:
    from harness.logdir.request import Answer


def trigger(
    run: Annotated[Path, typer.Argument(help="The run directory of a job that runs.")],
    steps: Annotated[
        int | None,
        typer.Option(help="Steps to record; the schedule's number where none is given.", min=1, max=STEPS_AT_MOST),
    ] = None,
    with_stack: Annotated[bool, typer.Option("--with-stack", help="Python call stacks; they slow the steps most.")] = (
        False
    ),
    memory: Annotated[bool, typer.Option("--memory", help="Every allocation.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the window.", min=0)] = 600.0,
) -> None:
    """Ask a running job for a window soon; prints the window's path when it is there."""
    print(ask(run, steps=steps, with_stack=with_stack, memory=memory, timeout_s=timeout))


def ask(run: Path, *, steps: int | None, with_stack: bool, memory: bool, timeout_s: float) -> Path:
    """Ask the job that trains in ``run`` for a window, and wait until it stands in the logdir.

    Raises:
        UsageError: where nothing runs there, another request waits, or the time is over.
    """
    from harness.logdir.request import fulfilled, new_request, place, withdraw

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
        return fulfilled(run, request, timeout_s, _say_which)
    finally:
        withdraw(run, request)


def _require_listener(run: Path) -> None:
    from harness.logdir.layout import MANIFEST
    from harness.logdir.manifest import read_manifest
    from harness.logdir.request import listener, listens

    if not run.is_dir():
        raise UsageError(f"{run} is no run: there is no such directory")
    if listens(run):
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


def _say_which(answer: Answer) -> None:
    assert answer.first_step is not None
    assert answer.steps is not None
    last = answer.first_step + answer.steps - 1
    console.err.print(f"steps {answer.first_step:,} to {last:,} will be recorded", highlight=False)
