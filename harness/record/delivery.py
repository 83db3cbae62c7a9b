"""From a recording to a window in the logdir, and to whom it is shown."""

from __future__ import annotations

import logging
import re
import shutil
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from harness.credentials import HOW, has_secret
from harness.logdir.scan import windows
from harness.publish import Job, Keep, PublishedWindow, Publisher, Staging
from harness.publish.ranks import Handover, RankStaging
from harness.record.ensemble import Ensemble
from harness.record.recording import Place, Recording

log = logging.getLogger(__name__)

PARTIAL_TIMEOUT_S = 10.0
"""How long a window that was cut short waits for other ranks at most: one of them may be what cut it."""
MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions:
    """What becomes of windows; see :class:`harness.record.Profiler`."""

    on_window: Callable[[PublishedWindow], None] | None
    keep: Keep
    max_trace_mib: int | None
    upload: str | None
    ranks_timeout_s: float

    def __post_init__(self) -> None:
        if self.upload is not None and has_secret(self.upload):
            raise ValueError(f"upload: its address holds a password or a token, and {HOW}")


class Delivery:
    """What becomes of this rank's raw traces: rank 0 has a publisher, and the others hand theirs in to it.

    Args:
        logdir: TensorBoard's logdir, absolute.
        run: The run's path below it.
        ensemble: The ranks of the job.
    """

    def __init__(self, logdir: Path, run: str, ensemble: Ensemble, options: DeliveryOptions) -> None:
        self._ensemble = ensemble
        self._options = options
        self._lost: list[str] = []
        self._shared = Staging(logdir, run)
        self._staging = self._shared if ensemble.leads else RankStaging(logdir, run, ensemble.rank)
        self._publisher: Publisher | Handover = (
            Handover(self._staging) if isinstance(self._staging, RankStaging) else Publisher(self._staging)
        )
        self.place = Place(
            staging=self._staging,
            worker=f"{re.sub('[^A-Za-z0-9-]', '-', socket.gethostname())}_{ensemble.rank}",
            rank=ensemble.rank,
            world_size=ensemble.size,
        )

    @property
    def profile(self) -> Path:
        """Where the run's windows appear."""
        return self._staging.profile

    @property
    def waiting(self) -> int:
        """Windows that are recorded and not published yet."""
        return self._publisher.waiting

    @property
    def behind(self) -> bool:
        """Whether so much waits that no more should be recorded."""
        return self._publisher.behind

    def make_room(self) -> None:
        """Make the staging directory.

        Raises:
            OSError: where it cannot be made on the logdir's file system.
        """
        if self._ensemble.leads:
            self._staging.make()

    def start(self) -> None:
        """Start the process that publishes, or on other ranks than 0 the one that compresses."""
        self._publisher.start()

    def has(self, name: str) -> bool:
        """Whether the window is there or on its way."""
        waits = self._publisher.has(name) if self._ensemble.leads else self._shared.has(name)
        return waits or (self.profile / name).exists()

    def names(self) -> set[str]:
        """The windows that are there or staged, of an earlier life of the job too."""
        return {path.name for path in windows(self.profile.parent)} | set(self._shared.jobs())

    def send(self, recording: Recording, raw: Path) -> None:
        """Leave a recording's raw trace to the publisher.

        Raises:
            OSError: where that cannot be; the trace is dropped.
        """
        options, timeout_s = self._options, self._options.ranks_timeout_s
        absent = self._ensemble.absent() if self._ensemble.leads else []
        job = Job(
            first_step=recording.window.first,
            steps=recording.steps,
            partial=not recording.complete,
            unprofiled_step_us=recording.unprofiled_us,
            profiled_steps_us=recording.active_us(),
            cost=recording.cost,
            raw_bytes=raw.stat().st_size,
            max_trace_bytes=None if options.max_trace_mib is None else options.max_trace_mib * MIB,
            keep=options.keep,
            ranks=[rank for rank in self._ensemble.others if rank not in absent] if self._ensemble.leads else [],
            absent_ranks=absent,
            ranks_timeout_s=timeout_s if recording.complete else min(timeout_s, PARTIAL_TIMEOUT_S),
            upload=options.upload,
        )
        try:
            self._publisher.submit(recording.name, job)
        except OSError:
            recording.discard()
            raise

    def lose(self, name: str) -> None:
        """Say that the window has no trace of this rank, so that rank 0 does not wait for it; without rank 0's there is
        none, and what the others have handed in goes."""
        if isinstance(self._publisher, Handover):
            self._publisher.lose(name)
        elif self._ensemble.others:
            self._lost.append(name)

    def forget(self) -> None:
        """Let a forked child hold nothing that is its parent's."""
        self._publisher.forget()

    def show_published(self) -> None:
        """Hand the windows that have been published since to ``on_window``."""
        self._show(self._publisher.poll())

    def drain(self, limit_s: float) -> None:
        """Wait until all windows are published, for ``limit_s`` at most, and hand them to ``on_window``."""
        self._show(self._publisher.drain(limit_s))
        for name in self._lost:
            shutil.rmtree(self._staging.ranks(name), ignore_errors=True)
        if self._lost and not self.waiting:
            self._staging.remove_if_empty()

    def _show(self, windows: Iterable[PublishedWindow]) -> None:
        for window in windows:
            try:
                if self._options.on_window is not None:
                    self._options.on_window(window)
                else:
                    log.info("%s is there", window.path)
            except Exception as error:
                log.warning("%s is published, but could not be shown: %s: %s", window.path, type(error).__name__, error)
