"""The training process's side of publishing: starts the worker, hands over, hears back, never waits before the end."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from harness import search_path
from harness.logdir.findings import Unreadable, read_findings
from harness.logdir.layout import FINDINGS
from harness.publish.job import Job
from harness.publish.published import PublishedWindow
from harness.publish.staging import Staging
from harness.publish.worker import NOT_ANALYZED, Note, Outcome, Ready
from harness.trace import WindowReport

log = logging.getLogger(__name__)

WAITING = 3
"""Windows that may wait to be published, of any size."""
WAITING_BYTES = 64 * 1024**2
"""More than :data:`WAITING` may, if they have no more than this together: a burst of small ones is no backlog."""
WAITING_AT_MOST = 100
DEATHS_BEFORE_OFF = 5
"""Deaths of the worker in a row, without one outcome between them, after which it is left alone."""
SAY_AFTER_S = 1.0

_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Publisher:
    """Publishes a run's windows by another process, which it starts again where it dies.

    Args:
        staging: Of the run; what an earlier life of the run has left in it is published too.
    """

    def __init__(self, staging: Staging) -> None:
        self._staging = staging
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._ended = False
        self._ready = False
        self._waiting: dict[str, Job] = {}
        self._complained: set[str] = set()
        self._deaths = 0
        for name in staging.jobs():
            with suppress(OSError, msgspec.MsgspecError):
                self._waiting[name] = staging.read(name)
        self._used = bool(self._waiting)

    @property
    def waiting(self) -> int:
        """Windows that are recorded and not published yet."""
        return len(self._waiting)

    @property
    def behind(self) -> bool:
        """Whether so much waits that no more should be recorded."""
        if len(self._waiting) < WAITING:
            return False
        size = sum(job.raw_bytes for job in self._waiting.values())
        return size > WAITING_BYTES or len(self._waiting) >= WAITING_AT_MOST

    def has(self, name: str) -> bool:
        """Whether this window waits."""
        return name in self._waiting

    def start(self) -> None:
        """Start the worker, ahead of the first window."""
        if self._process is None and self._deaths <= DEATHS_BEFORE_OFF:
            self._spawn()

    def submit(self, name: str, job: Job) -> None:
        """Hand over a window whose raw trace lies in staging.

        Raises:
            OSError: where the job cannot be written; the window is not handed over then.
        """
        self._staging.write(name, job)
        self._waiting[name], self._used = job, True
        self.start()
        with suppress(OSError):
            self._tell(b".")

    def poll(self) -> list[PublishedWindow]:
        """What has been published since; does not wait. A worker that has died is started again."""
        process = self._process
        if process is None:
            return []
        found = self._hear()
        if self._ended:
            self._bury(process)
            if self._waiting:
                self._revive()
        return found

    def drain(self, limit_s: float) -> Iterator[PublishedWindow]:
        """Wait until all is published, for ``limit_s`` at most, and let the worker end.

        What remains then, the worker goes on with by itself if it lives.
        """
        started, said = time.monotonic(), False
        if self._process is not None and not self._used:
            # It never had anything in hand; to wait until it has come up and gone down is a waste.
            self._process.kill()
            self._bury(self._process)
        while self._process is not None:
            process = self._process
            self._close_inbox(process)
            left = started + limit_s - time.monotonic()
            if left <= 0:
                break
            if not said and self._waiting and time.monotonic() - started > SAY_AFTER_S:
                said = True
                log.info("publishing the last %s, for at most %.0f s", _windows(self.waiting), limit_s)
            assert process.stdout is not None
            select.select([process.stdout], [], [], min(left, SAY_AFTER_S))
            yield from self._hear()
            if not self._ended:
                continue
            self._bury(process)
            if self._waiting and process.returncode != 0:
                self._revive()
        self._leave(limit_s)

    def forget(self) -> None:
        """Let a forked child have no end of the worker's pipes, which tell it that the job lives."""
        process, self._process = self._process, None
        self._waiting.clear()
        if process is not None:
            self._close_inbox(process)

    def _leave(self, limit_s: float) -> None:
        if self._process is not None:
            log.warning(
                "%s not published after %.0f s; the publisher goes on in the background. What it does not get to, "
                "`harness report` of the run publishes",
                _windows(self.waiting),
                limit_s,
            )
            return
        if self._waiting:
            log.warning(
                "%s not published and kept in %s; `harness report` of the run tries again",
                _windows(self.waiting),
                self._staging.folder,
            )
        if self._staging.root.is_dir():
            with suppress(OSError):
                lock = self._staging.acquire()
                if lock is not None:
                    self._staging.release(lock)

    def _spawn(self) -> None:
        arguments = (str(self._staging.logdir), self._staging.run, str(os.getpid()))
        try:
            process = subprocess.Popen(
                search_path.command("harness.publish.worker:main", *arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **_ONE_THREAD},
                process_group=0,
            )
        except OSError as error:
            self._deaths = DEATHS_BEFORE_OFF + 1
            log.warning("the publisher cannot be started, windows stay in %s: %s", self._staging.folder, error)
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._process, self._unread, self._ended, self._ready = process, b"", False, False

    def _revive(self) -> None:
        self._deaths += 1
        if self._deaths <= DEATHS_BEFORE_OFF:
            log.warning("the publisher has died and is started again; %s waiting", _windows(self.waiting))
            self._spawn()
        elif self._deaths == DEATHS_BEFORE_OFF + 1:
            log.warning("the publisher keeps dying; windows stay in %s", self._staging.folder)

    def _bury(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self._close_inbox(process)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None

    def _close_inbox(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is not None and not process.stdin.closed:
            with suppress(OSError):
                process.stdin.close()

    def _tell(self, message: bytes) -> None:
        if self._process is not None and self._process.stdin is not None:
            os.write(self._process.stdin.fileno(), message)

    def _hear(self) -> list[PublishedWindow]:
        if self._process is None or self._process.stdout is None:
            return []
        # The worker tells of a window before it clears it away. What is gone by now, and not told of in what is read
        # next, another one has published.
        gone = self._gone() if self._ready else []
        with suppress(BlockingIOError):
            while chunk := os.read(self._process.stdout.fileno(), 65536):
                self._unread += chunk
            self._ended = True
            gone = self._gone()
        *lines, self._unread = self._unread.split(b"\n")
        found = []
        for line in lines:
            said = msgspec.json.decode(line, type=Outcome | Ready | Note)
            if isinstance(said, Outcome):
                self._deaths = 0
                found += self._take(said)
            elif isinstance(said, Note):
                log.warning("%s", said.text)
            else:
                self._ready = True
        return found + self._settle(gone)

    def _take(self, outcome: Outcome) -> list[PublishedWindow]:
        name = outcome.name
        if outcome.status == "failed":
            if name not in self._complained:
                log.warning("%s waits in %s: it cannot be published: %s", name, self._staging.folder, outcome.error)
                self._complained.add(name)
            return []
        job = self._waiting.pop(name, None)
        if job is None:
            return []
        if outcome.status == "dropped":
            log.warning("%s was dropped: %s", name, outcome.error)
            return []
        if outcome.error is not None:
            log.warning("%s: %s", name, outcome.error)
        return [self._published(name, job, outcome.error)]

    def _gone(self) -> list[str]:
        return [name for name in self._waiting if not self._staging.has(name)]

    def _settle(self, gone: list[str]) -> list[PublishedWindow]:
        """What another process, as the worker of an earlier life of the run, has published in the meantime."""
        jobs = [(name, self._waiting.pop(name)) for name in gone if name in self._waiting]
        return [
            self._published(name, job, None if (self._staging.profile / name / FINDINGS).exists() else NOT_ANALYZED)
            for name, job in jobs
            if (self._staging.profile / name).exists()
        ]

    def _published(self, name: str, job: Job, error: str | None) -> PublishedWindow:
        path = self._staging.profile / name
        report = None
        if error is None:
            report, error = _report(path / FINDINGS)
        return PublishedWindow(
            path=path,
            first_step=job.first_step,
            steps=job.steps,
            partial=job.partial,
            unprofiled_step_us=job.unprofiled_step_us,
            profiled_steps_us=job.profiled_steps_us,
            stalls_us=job.cost.stalls_us,
            cost_us=job.cost.total_us,
            report=report,
            error=error,
        )


def _report(path: Path) -> tuple[WindowReport | None, str | None]:
    try:
        return read_findings(path, WindowReport), None
    except Unreadable as error:
        return None, f"{path.parent}: {error}"


def _windows(count: int) -> str:
    return "1 window" if count == 1 else f"{count} windows"
