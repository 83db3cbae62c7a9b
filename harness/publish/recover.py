"""Publishing what a job that is dead has left in staging."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from harness.logdir.layout import staging_root, step_of_window
from harness.publish.staging import JOB, Staging
from harness.publish.worker import Outcome, Ready, publish_all


def recover(path: Path) -> Iterator[tuple[Staging, Outcome]]:
    """Publish the finished windows that wait for the run at ``path``, or for the runs below it, and for which no
    living process is responsible.

    Nothing is raised for what may not be written here: whoever may, does it another time.
    """
    for staging in _waiting(path):
        said: list[Outcome | Ready] = []
        try:
            lock = staging.acquire()
            if lock is None:
                continue
            try:
                publish_all(staging, said.append, patient=False)
            finally:
                staging.release(lock)
        except OSError:
            continue
        yield from ((staging, outcome) for outcome in said if isinstance(outcome, Outcome))


def _waiting(path: Path) -> Iterator[Staging]:
    path = Path(os.path.abspath(path))
    for logdir in (path, *path.parents):
        root = staging_root(logdir)
        if os.path.isdir(root):  # which takes a name that is too long for one that is not there
            jobs = (root / path.relative_to(logdir)).rglob(f"*{JOB}")
            runs = {job.parent for job in jobs if step_of_window(job.stem) is not None}
            for run in sorted(runs):
                yield Staging(logdir, str(run.relative_to(root)))
