"""The process that publishes: started once by the training process, at low priority, without torch.

It is told of a new job by a byte on stdin, and answers on stdout with a line of JSON for each window. When stdin ends,
or the process that started it is gone, it publishes what is there and ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from harness.credentials import masked
from harness.files import NotRegularError
from harness.files.locks import Lock
from harness.logdir.layout import FINDINGS, TRACE_SUFFIX
from harness.publish.compress import compress
from harness.publish.job import Job
from harness.publish.ranks import complete, handed_in
from harness.publish.retention import Retention
from harness.publish.staging import Staging
from harness.publish.upload import Uploader
from harness.quantities import MIB
from harness.trace import analyze_window

NICENESS = 10
NOT_ANALYZED = "published without findings"
TRIES = 2
"""Attempts that may have killed the worker; the next one leaves out what can kill it."""
RETRY_S = 10.0
"""Pause after an attempt that failed, as on a full disk."""
JOB_LIMIT_S = 900
"""No window takes this long: whoever hangs, on a file system that is gone, ends and is started again."""
LOOK_S = 1.0
"""How often an idle worker looks whether the process that started it is still there."""
RANKS_LOOK_S = 0.1
"""How often a window that waits for other ranks is looked at."""
UPLOAD_LIMIT_S = 30.0
"""How long the end of a job waits for copies on their way; the next life of the run makes up for the rest."""


class Outcome(msgspec.Struct, kw_only=True, tag=True):
    """What became of a window: a line from the worker."""

    name: str
    status: Literal["published", "dropped", "failed"]
    """``failed`` is tried again; ``dropped`` is gone."""
    error: str | None = None
    """Why there are no findings, or no window."""


class Ready(msgspec.Struct, kw_only=True, tag=True):
    """The worker holds the lock: what is not waiting now, nobody else publishes any more."""

    waiting: list[str]


class Note(msgspec.Struct, kw_only=True, tag=True):
    """Something for the job's log."""

    text: str


def publish(staging: Staging, name: str, retention: Retention) -> Outcome:
    """Bring one window from staging into the logdir; whoever comes again finds it done.

    What is in staging stays until the caller discards it.

    Raises:
        OSError: where it cannot be written; it can be tried again.
    """
    final = staging.profile / name
    if final.exists():
        return Outcome(name=name, status="published", error=None if (final / FINDINGS).exists() else NOT_ANALYZED)
    tries = staging.begin_try(name)
    try:
        job = staging.read(name)
        (raw,) = [path for path in staging.raw(name).iterdir() if path.name.endswith(TRACE_SUFFIX) and path.is_file()]
    except (ValueError, FileNotFoundError, NotADirectoryError, NotRegularError) as error:
        return Outcome(name=name, status="dropped", error=f"what waits in {staging.folder} is damaged: {error}")
    size = raw.stat().st_size
    if job.max_trace_bytes is not None and size > job.max_trace_bytes:
        return Outcome(
            name=name,
            status="dropped",
            error=f"its trace has {size / MIB:,.0f} MiB, and profiler.max_trace_mib allows "
            f"{job.max_trace_bytes / MIB:,.0f}; record less of it: a smaller profiler.active, no with_stack, "
            "no profile_memory, no record_shapes",
        )
    build = staging.build(name)
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    trace = build / f"{raw.name}.gz"
    compress(raw, trace)
    missing = _add_ranks(staging, name, build, job.ranks)
    died = f"the publisher has died of it {tries - 1} times"
    unread = _write_findings(build, job, missing) if tries <= TRIES else died
    retention.make_room(job.keep, incoming=build)
    _sync(build)
    staging.profile.mkdir(parents=True, exist_ok=True)
    build.rename(final)
    _sync(staging.profile)
    return Outcome(name=name, status="published", error=unread and f"{NOT_ANALYZED}: {unread}")


def _add_ranks(staging: Staging, name: str, build: Path, ranks: list[int]) -> list[int]:
    """Bring the traces of other ranks into the window; the ranks whose is missing."""
    there = handed_in(staging, name)
    for path in (there[rank] for rank in ranks if rank in there):
        if path.suffix != ".gz":
            compress(path, build / f"{path.name}.gz")
            continue
        try:
            # What is in staging stays there until the window is published.
            (build / path.name).hardlink_to(path)
        except OSError:
            shutil.copyfile(path, build / path.name)
    return [rank for rank in ranks if rank not in there]


def _write_findings(build: Path, job: Job, missing: list[int]) -> str | None:
    """Read the packed traces and put their findings beside them; else why there are none."""
    try:
        # One after another: the job has better uses for its cores.
        report = analyze_window(sorted(build.iterdir()), processes=1)
        warnings = list(report.window.warnings)
        if job.absent_ranks:
            warnings.append(f"rank {', '.join(map(str, job.absent_ranks))} had no profiler: the window is without it")
        if missing:
            warnings.append(f"no trace of rank {', '.join(map(str, missing))} came in time: the window is incomplete")
        # The trace itself could not yet know what its stop and its export would take.
        window = msgspec.structs.replace(
            report.window,
            cost_us=job.cost.total_us,
            stalls_us=job.cost.stalls_us,
            missing_ranks=sorted({*missing, *job.absent_ranks}),
            warnings=warnings,
        )
        findings = msgspec.json.encode(msgspec.structs.replace(report, window=window))
    except Exception as error:  # whatever is odd in a trace; its window is published all the same
        return f"{type(error).__name__}: {error}"
    _write(build / FINDINGS, findings)
    return None


def attempt(staging: Staging, name: str, retention: Retention) -> Outcome:
    """:func:`publish`, with a limit of time; an error of the file system becomes an outcome."""
    signal.alarm(JOB_LIMIT_S)
    try:
        return publish(staging, name, retention)
    except OSError as error:
        with suppress(OSError):
            shutil.rmtree(staging.build(name), ignore_errors=True)
            staging.forget_tries(name)
        return Outcome(name=name, status="failed", error=str(error))
    finally:
        signal.alarm(0)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Put a folder's entries on disk, so that a power cut leaves no window half there."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish_all(
    staging: Staging,
    say: Callable[[Outcome | Ready], object],
    wait: Callable[[], bool] = lambda: False,
    uploads: Uploads | None = None,
    *,
    patient: bool = True,
) -> None:
    """Publish what waits, and what comes.

    Args:
        staging: Locked by the caller.
        say: Told of every outcome, before the window's traces in staging go.
        wait: Waits for more work, for a second at most; False where none will come.
        uploads: Told of every window that is published.
        patient: Wait for the traces of other ranks.
    """
    retention = Retention(staging.profile, FINDINGS)
    not_before: dict[str, float] = {}
    patience = Patience(staging, limit_s=None if patient else 0.0)
    more = True
    say(Ready(waiting=staging.jobs()))
    while True:
        now = time.monotonic()
        due = [name for name in staging.jobs() if now >= not_before.get(name, 0.0) and patience.is_over(name)]
        for name in due:
            outcome = attempt(staging, name, retention)
            say(outcome)
            if outcome.status == "failed":
                not_before[name] = time.monotonic() + RETRY_S
            else:
                if uploads is not None:
                    uploads.published(staging, name)
                staging.discard(name)
        if due:
            continue
        if more and not patience.waits:
            more = wait()
            if not more:
                # One last attempt at what has failed.
                not_before.clear()
        elif patience.waits:
            time.sleep(RANKS_LOOK_S)
        else:
            return


class Patience:
    """Waits for the traces of other ranks, each window for as long as its job says, or for ``limit_s``."""

    def __init__(self, staging: Staging, *, limit_s: float | None = None) -> None:
        self._staging, self._limit_s = staging, limit_s
        self._until: dict[str, float] = {}
        self._ranks: dict[str, list[int]] = {}

    def is_over(self, name: str) -> bool:
        """Whether the window has what it waits for, or has waited long enough."""
        if name not in self._until:
            try:
                job = self._staging.read(name)
            except (OSError, msgspec.MsgspecError):
                return True
            limit_s = job.ranks_timeout_s if self._limit_s is None else self._limit_s
            self._until[name], self._ranks[name] = time.monotonic() + limit_s, job.ranks
        return time.monotonic() >= self._until[name] or complete(self._staging, name, self._ranks[name])

    @property
    def waits(self) -> bool:
        """Whether some window still does."""
        return any(not self.is_over(name) for name in self._staging.jobs())


class Uploads:
    """Copies windows to where their jobs say; nothing where they do not."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._uploaders: dict[str, Uploader] = {}

    def published(self, staging: Staging, name: str) -> None:
        """A window stands in the logdir; its job still in staging."""
        try:
            address = staging.read(name).upload
        except (OSError, msgspec.MsgspecError):
            return
        if address is None:
            return
        if address not in self._uploaders:
            self._uploaders[address] = Uploader(staging.profile, address, self._say)
        self._uploaders[address].window_published()

    def close(self) -> None:
        """Give what is on its way a last chance."""
        for address, uploader in self._uploaders.items():
            if not uploader.close(UPLOAD_LIMIT_S):
                self._say(f"not all windows are at {masked(address)}; the run's next windows take them along")


def main(logdir: str, run: str, job: str) -> None:
    """Serve the training process that has the number ``job`` until it is done or gone."""
    # Ctrl-C and the end of a batch job reach every process at once; this one ends after the one it serves.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    staging = Staging(Path(logdir), run)
    said_to_nobody = said_why = False

    def say(what: Outcome | Ready | Note) -> None:
        nonlocal said_to_nobody
        if not said_to_nobody:
            try:
                sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
                sys.stdout.buffer.flush()
            except OSError:
                said_to_nobody = True

    def wait() -> bool:
        readable, _, _ = select.select([0], [], [], LOOK_S)
        return os.getppid() == int(job) and not (readable and not os.read(0, 4096))

    def acquire() -> Lock | None:
        nonlocal said_why
        try:
            return staging.acquire()
        except OSError as error:
            # A file system that is away comes back, or the next life of the run makes up for it.
            if not said_why:
                say(Note(text=f"windows wait in {staging.folder}: {error}"))
            said_why = True
            return None

    while (lock := acquire()) is None:
        if not wait():
            return
    uploads = Uploads(lambda text: say(Note(text=text)))
    try:
        publish_all(staging, say, wait, uploads)
        uploads.close()
    finally:
        staging.release(lock)
        # What could not be said to a pipe that nobody reads must not be said at exit.
        if said_to_nobody:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
