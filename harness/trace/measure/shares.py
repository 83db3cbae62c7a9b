"""How a step's time divides between the device's work and the reasons for its idleness."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from harness.trace.measure.device_time import CAUSES, Gaps, device_sets
from harness.trace.measure.intervals import union
from harness.trace.measure.launches import Work
from harness.trace.measure.steps import Steps


class Shares(NamedTuple):
    """Fractions of the step on the busiest device. compute + communication + copy is how busy it is; the rest
    is idle by reason, in the traced proportions, and `unexplained` where no traced gap tells."""

    device: int
    step_us: float
    """Of which these are the fractions: unprofiled where known, else the traced median, else the span."""
    unprofiled: bool
    compute: float
    communication: float
    """Exposed: no compute beside it."""
    copy: float
    """Exposed: nothing beside it."""
    input: float
    sync: float
    host: float
    """Late host and launch latency."""
    dependency: float
    """Between kernels that were queued: the device's own time."""
    unexplained: float
    waiting: float = 0.0
    """Exposed, in a collective that another rank has not joined: only several ranks' traces tell it from
    communication, of which it is no part."""

    @property
    def busy(self) -> float:
        return self.compute + self.communication + self.copy

    def less_waiting(self, fraction: float) -> Shares:
        """The same with this fraction of the exposed communication as waiting for other ranks."""
        waiting = self.communication * fraction
        return self._replace(communication=self.communication - waiting, waiting=waiting)


def shares(
    work: Work, steps: Steps, gaps: dict[int, Gaps], step_us: float | None, *, unprofiled: bool
) -> Shares | None:
    """Of the work that the window's steps launched; of all work where there are no steps. None without any.

    step_us: the unprofiled step time, or the traced one. A profiled kernel may be a little slower than an
    unprofiled one, so busy time beyond the step is cut to it.
    """
    if len(steps.start):
        owned = steps.of(work.launched_at) >= 0
    else:
        owned, step_us = np.ones(len(work.event), bool), None
    if not owned.any():
        return None
    busiest = max(work.devices, key=lambda d: _busy(work, owned & (work.device == d)))
    mine = work.where(owned & (work.device == busiest))
    sets = device_sets(mine)
    working = union(
        np.concatenate((sets.compute.start, sets.communication.start)),
        np.concatenate((sets.compute.end, sets.communication.end)),
    )
    whole = step_us * 1000 * len(steps.start) if step_us else float(sets.span)
    busy = sets.busy.total
    whole_or_busy = max(whole, float(busy))
    if not whole_or_busy:
        return None
    idle = whole_or_busy - busy
    parts = dict.fromkeys(CAUSES, 0)
    if busiest in gaps:
        found = gaps[busiest]
        ends_owned = owned[work.device == busiest][found.next]
        parts = dict(zip(CAUSES, found.parts[ends_owned].sum(axis=0).tolist(), strict=True))
    explained = sum(parts.values()) - parts["unattributed"]
    scale = idle / explained / whole_or_busy if explained else 0.0
    return Shares(
        device=busiest,
        step_us=whole / 1000 / max(len(steps.start), 1),
        unprofiled=unprofiled,
        compute=sets.compute.total / whole_or_busy,
        communication=(sets.communication.total - sets.communication.overlap(sets.compute)) / whole_or_busy,
        copy=(sets.memcpy.total - sets.memcpy.overlap(working)) / whole_or_busy,
        input=parts["input"] * scale,
        sync=parts["sync"] * scale,
        host=(parts["host_late"] + parts["launch"]) * scale,
        dependency=parts["dependency"] * scale,
        unexplained=idle / whole_or_busy if not explained else 0.0,
    )


def _busy(work: Work, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    return union(work.start[chosen], work.end[chosen]).total
