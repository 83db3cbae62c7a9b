"""Looks at a logdir all the time that jobs run in it: what is visible is whole, and stays; and kills in the act."""

from __future__ import annotations

import hashlib
import json
import math
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.inotify import APPEARS, DELETE, MOVED_FROM, MOVED_TO, Event, Inotify

LOOK_S = 0.005
"""How often it looks where nothing happens."""
_WINDOW = re.compile(r"logs/(.+)/profile/(window_\d+)")
_JOB = re.compile(r"\.logs\.staging/(.+)/(window_\d+)\.job")
_CHECKPOINT = re.compile(r"logs/(.+)/checkpoints/step_(\d+)(?:\.pt)?")
_MANIFEST = re.compile(r"logs/(.+)/run\.json")

Files = dict[str, str]
"""Digests by name."""


@dataclass(frozen=True)
class Instant:
    """When to kill: so many seconds after the ``number``-th event whose path matches, and no later than ``latest``."""

    latest: float
    """Seconds after the start."""
    pattern: str | None = None
    number: int = 1
    delay: float = 0.0


@dataclass
class Seen:
    """What was visible, or said to be done."""

    windows: dict[str, Files] = field(default_factory=dict)
    """By path below the logdir, as they were at first sight."""
    recorded: set[str] = field(default_factory=set)
    """Windows that were declared finished, by path below the logdir."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """The newest step of which a checkpoint stood under its own name, by run."""
    runs: set[str] = field(default_factory=set)
    """Whose ``run.json`` was there."""
    faults: list[str] = field(default_factory=list)
    """What must never be seen."""


class Watch:
    """Sees what jobs do below ``folder / "logs"``, from a thread.

    Args:
        folder: Of the logdir ``logs`` and its staging.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inotify = Inotify(folder)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._shoot: Callable[[], object] = lambda: None
        self._instant: Instant | None = None
        self._matched = 0
        self._at = math.inf
        self.shot = threading.Event()
        self.hit = ""
        """The instant of the last shot, in words: empty where it was the latest that was allowed."""
        self.seen = Seen()
        self._thread = threading.Thread(target=self._watch, name="watch")

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._inotify.close()

    def aim(self, instant: Instant, shoot: Callable[[], object]) -> None:
        """Call ``shoot`` at the instant; :attr:`shot` is set then."""
        with self._lock:
            self.shot.clear()
            self._instant, self._shoot, self._matched, self.hit = instant, shoot, 0, ""
            self._at = time.monotonic() + instant.latest

    def stand_down(self) -> None:
        """Shoot no more."""
        with self._lock:
            self._instant, self._at = None, math.inf

    def settle(self) -> None:
        """Wait until all that has happened so far is seen."""
        time.sleep(2 * LOOK_S)
        with self._lock:
            self._take(self._inotify.take())

    def _watch(self) -> None:
        while not self._over.is_set():
            left = min(LOOK_S, self._at - time.monotonic())
            if left > 0:
                # Woken by what happens, with the lock free for who aims.
                self._inotify.wait(left)
            with self._lock:
                events = self._inotify.take()
                self._shoot_if_due(events)
                self._take(events)

    def _shoot_if_due(self, events: list[Event]) -> None:
        instant = self._instant
        if instant is None:
            return
        if not self.hit and instant.pattern is not None:
            paths = [event.path for event in events if re.search(instant.pattern, event.path)]
            self._matched += len(paths)
            if self._matched >= instant.number:
                self.hit = f"{instant.delay * 1e3:.1f} ms after {paths[-1]}"
                self._at = min(self._at, time.monotonic() + instant.delay)
        if time.monotonic() >= self._at:
            self._instant, self._at = None, math.inf
            self._shoot()
            self.shot.set()

    def _take(self, events: list[Event]) -> None:
        for event in events:
            if event.kind & APPEARS:
                self._appeared(event)
            elif event.kind & (DELETE | MOVED_FROM) and (match := _WINDOW.fullmatch(event.path)):
                self._fault(f"window: {match[1]}/{match[2]} was visible and vanished")
        for run in self.seen.runs:
            self._look_at_manifest(run)

    def _appeared(self, event: Event) -> None:
        if match := _WINDOW.fullmatch(event.path):
            name = f"{match[1]}/profile/{match[2]}"
            if name not in self.seen.windows:
                try:
                    self.seen.windows[name] = digests(self._folder / event.path)
                except OSError as error:
                    self._fault(f"window: {name} could not be read when it appeared: {error}")
        elif match := _JOB.fullmatch(event.path):
            self.seen.recorded.add(f"{match[1]}/profile/{match[2]}")
        elif (match := _CHECKPOINT.fullmatch(event.path)) and event.kind & MOVED_TO:
            run, step = match[1], int(match[2])
            self.seen.acknowledged[run] = max(step, self.seen.acknowledged.get(run, 0))
        elif match := _MANIFEST.fullmatch(event.path):
            self.seen.runs.add(match[1])

    def _look_at_manifest(self, run: str) -> None:
        try:
            json.loads((self._folder / "logs" / run / "run.json").read_bytes())
        except (OSError, ValueError) as error:
            self._fault(f"manifest: run.json of {run} was there, and then could not be read: {error}")

    def _fault(self, text: str) -> None:
        if text not in self.seen.faults:
            self.seen.faults.append(text)


def digests(window: Path) -> Files:
    """What is in a window."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(window.iterdir())}
