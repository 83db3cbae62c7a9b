"""Every name that the harness gives to what lies on disk, and the one parser of each.

::

    <logdir>/<experiment>/<run>/
      run.json  .lock  .hydra/  train.log  checkpoints/
      profile/window_00000120/        the step at which recording began
        <host>_<rank>.<ns>.pt.trace.json.gz     one a rank
        window.json                             the findings
    .<logdir>.staging/<experiment>/<run>/       windows that are not complete yet
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

MANIFEST = "run.json"
LOCK = ".lock"
CHECKPOINTS = "checkpoints"
PROFILE = "profile"
HYDRA = ".hydra"
PASSED_OVER = ".passed_over.json"
"""Of a loop of somebody's own, which has no manifest: the cycles that had no window, when it ended."""
LOG_FILE = "train.log"
SWEEP_SUFFIX = ".sweep.json"
"""Of a sweep's file beside its runs."""
BEST, STATE, DIVERGED = "best", "state.pt", "diverged.pt"
"""In ``checkpoints/``: the link to the best one, what of a sharded one is no tensor, a diverged job."""
LISTENER, REQUEST, ANSWER = ".trigger.lock", ".trigger.request.json", ".trigger.answer.json"
"""What ``harness trigger`` and a job leave each other; see :mod:`harness.logdir.request`."""
RUN_NAME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}_[0-9]{2}-[0-9]{2}-[0-9]{2}_[0-9a-f]{4}(_[0-9]{3}.*)?")
"""Of a run's directory, as :mod:`harness.config.names` makes it."""

FINDINGS = "window.json"
_WINDOW = "window_"
_WINDOW_NAME = re.compile(_WINDOW + "([0-9]{1,18})")
"""No job comes to a step of more digits; a name of thousands would be a number that takes long, or none at all."""

TRACE_SUFFIX = ".pt.trace.json"
TRACE_SUFFIXES = (TRACE_SUFFIX, f"{TRACE_SUFFIX}.gz")
_TRACE = re.compile(rf"(.*?)(?:\.([0-9]{{1,20}}))?{re.escape(TRACE_SUFFIX)}(?:\.gz)?", re.DOTALL)
_RANK = re.compile(r"(?:_|rank)([0-9]{1,18})$")


def window_name(first_step: int) -> str:
    """The directory of the window whose recording begins at ``first_step``; sorts by step."""
    return f"{_WINDOW}{first_step:08d}"


def step_of_window(name: str) -> int | None:
    """At which the window in a directory of this name began to record; None where the name is no window's."""
    match = _WINDOW_NAME.fullmatch(name)
    return int(match[1]) if match else None


class TraceName(NamedTuple):
    """What a trace file's name tells."""

    worker: str
    """``<host>_<rank>``, or whatever stands there."""
    time: int | None
    """When it was recorded, by the clock of who did."""

    @property
    def rank(self) -> int | None:
        match = _RANK.search(self.worker)
        return int(match[1]) if match else None

    @property
    def of_all_ranks(self) -> str:
        """The worker without its rank."""
        return _RANK.split(self.worker)[0]


def trace_name(name: str) -> TraceName | None:
    """The parts of a trace file's name; None where the name is none of a trace."""
    match = _TRACE.fullmatch(name)
    return TraceName(match[1], int(match[2]) if match[2] else None) if match else None


def staging_root(logdir: Path) -> Path:
    """Where windows of runs below ``logdir`` are kept until they are complete: a hidden folder beside it."""
    logdir = Path(os.path.abspath(logdir))
    return logdir.parent / f".{logdir.name}.staging"
