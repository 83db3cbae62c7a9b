"""What is settled before a loop is recorded: its schedule, whatever it was given as, its name, and whose run it is."""

from __future__ import annotations

import inspect
import itertools
import logging
import os
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from harness.files.locks import Lock
from harness.logdir import request
from harness.logdir.scan import windows_in
from harness.publish.staging import Staging
from harness.schedule import Schedule

log = logging.getLogger(__name__)

LONGEST = 200
"""Characters of a part of a run's name: file systems take 255, and windows and lock files add to it."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._=,-]+")


def schedule_of(given: Schedule | Callable[[int], Any] | None) -> Schedule | None:
    """The schedule itself, or the one that :func:`torch.profiler.schedule` has made a function of.

    Raises:
        TypeError: for another function, whose windows nobody can know ahead.
    """
    if given is None or isinstance(given, Schedule):
        return given
    try:
        told: Mapping[str, Any] = inspect.getclosurevars(given).nonlocals
    except TypeError:
        told = {}
    names = {field.name for field in fields(Schedule)}
    if getattr(given, "__module__", None) != "torch.profiler.profiler" or not {"wait", "warmup", "active"} <= set(told):
        raise TypeError(
            f"schedule {given!r}: give harness.record.Schedule(wait=, warmup=, active=), or what "
            "torch.profiler.schedule returns"
        )
    return Schedule(**{name: value for name, value in told.items() if name in names})


def safe_name(run: str) -> str:
    """The run's name with every run of characters that breaks TensorBoard's plugin as one ``-``.

    Raises:
        ValueError: where nothing is left of it, or it leads out of the logdir.
    """
    parts = run.split("/")
    if any(not part.strip(". ") for part in parts):
        raise ValueError(
            f"run {run!r} is no path below the logdir; give only letters, digits, '.', '_', '-', '=' and ',', in parts "
            "with '/' between them"
        )
    cleaned = "/".join(map(_safe_part, parts))
    if cleaned != run:
        log.warning("run %r is written as %s: other characters break TensorBoard's plugin", run, cleaned)
    return cleaned


def _safe_part(part: str) -> str:
    safe = part
    if _UNSAFE.search(part):
        # Of a letter with a mark, the letter.
        plain = unicodedata.normalize("NFKD", part).encode("ascii", "ignore").decode()
        safe = _UNSAFE.sub("-", plain).strip("-")
    if safe and len(safe) <= LONGEST:
        return safe
    # Nothing is left, as of other scripts, or too much: the name is another one's in no case.
    return f"{safe[: LONGEST - 9] or 'run'}-{zlib.crc32(part.encode()):08x}"


class Claim(NamedTuple):
    """A run that is this process's."""

    run: str
    lock: Lock | None
    """None where the folder cannot be written to or made now."""
    made: list[Path]
    """The folders that were made to lay the lock in, innermost first."""


def claim(logdir: Path, run: str, *, resumes: bool) -> Claim:
    """Take the run for this process, or the next free name after it, as ``run_2``.

    One that another process records into is that one's. One that has windows is the run of an earlier job, unless this
    one ``resumes`` it.
    """
    reason = ""
    for name in _names(run):
        folder = logdir / name
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = request.hold(folder)
        except OSError as error:
            log.warning("harness trigger will not reach this job: %s", error)
            return Claim(name, None, made)
        if lock is not None and (resumes or not _has_windows(logdir, name)):
            if name != run:
                log.warning("%s %s: this job's windows go to %s", logdir / run, reason, folder)
            lock.warn()
            return Claim(name, lock, made)
        reason = reason or ("is another process's run" if lock is None else "holds the windows of an earlier job")
        if lock is not None:
            lock.close()
    raise AssertionError


def ranks_without_a_group(joined: int) -> str | None:
    """What to say where the launcher has started several processes and they have no process group; else None."""
    size = os.environ.get("WORLD_SIZE", "")
    if joined > 1 or not size.isdecimal() or len(size) > 9 or int(size) < 2:
        return None
    return (
        f"WORLD_SIZE is {size} and torch.distributed is not initialized: only RANK 0 records, and only its own steps. "
        "Enter the profiler after init_process_group for windows of all ranks"
    )


def rank_of_environment() -> int:
    """RANK, as launchers set it; 0 where none does."""
    rank = os.environ.get("RANK", "")
    return int(rank) if rank.isdecimal() and len(rank) < 10 else 0


def _names(run: str) -> Iterator[str]:
    yield run
    for number in itertools.count(2):
        yield f"{run}_{number}"


def _has_windows(logdir: Path, run: str) -> bool:
    staging = Staging(logdir, run)
    return bool(staging.jobs()) or bool(windows_in(staging.profile))
