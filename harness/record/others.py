"""Other profilers of torch in the process: whether one is there, and when one begins."""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._C._autograd import _profiler_enabled
from torch.autograd import profiler as autograd_profiler
from torch.autograd import profiler_legacy
from torch.profiler import ProfilerAction, profile

_STEP = "ProfilerStep"
"""The name under which torch counts the steps of its scheduled profilers."""
_WAYS_IN: tuple[tuple[type, str], ...] = (
    (autograd_profiler.profile, "_prepare_trace"),
    (autograd_profiler.emit_itt, "__enter__"),
    (autograd_profiler.emit_nvtx, "__enter__"),
    (profiler_legacy.profile, "__enter__"),
)
_watched: list[tuple[type, str, Any]] = []
_asked_for_loudness = False


class Occupied(RuntimeError):
    """Another profiler is in the way; the message says which."""


def is_one_there() -> bool:
    """Whether another profiler of torch records, in whatever thread, or warms up, so that ours would end it."""
    return _profiler_enabled() or autograd_profiler._is_profiler_enabled or _warms_up()


def watch(give_way: Callable[[], object]) -> None:
    """Call ``give_way`` before another profiler of torch begins, until :func:`unwatch`."""
    for kind, name in _WAYS_IN:
        original = kind.__dict__[name]
        setattr(kind, name, _giving_way(original, give_way))
        _watched.append((kind, name, original))


def unwatch() -> None:
    """Leave torch's classes as they were."""
    while _watched:
        kind, name, original = _watched.pop()
        setattr(kind, name, original)


def step_counted() -> bool:
    """Whether some scheduled profiler of torch has been made and has not left its ``with``."""
    return _STEP in autograd_profiler.KinetoStepTracker._step_dict


def forget_steps() -> None:
    """Take our own profiler out of that account."""
    autograd_profiler.KinetoStepTracker.erase_step_count(_STEP)


@contextmanager
def quiet_kineto() -> Iterator[None]:
    """Start a profiler without a device, of which Kineto would complain on stderr at every window.

    It asks the environment how loud to be, once; processes that the job starts later do not inherit the answer.
    """
    global _asked_for_loudness
    if _asked_for_loudness or "KINETO_LOG_LEVEL" in os.environ:
        yield
        return
    _asked_for_loudness = True
    os.environ["KINETO_LOG_LEVEL"] = "6"
    try:
        yield
    finally:
        os.environ.pop("KINETO_LOG_LEVEL", None)


def _giving_way(original: Any, give_way: Callable[[], object]) -> Any:
    @functools.wraps(original)
    def begin(self: Any, *arguments: Any, **named: Any) -> Any:
        if getattr(self, "enabled", True):
            give_way()
        return original(self, *arguments, **named)

    return begin


def _warms_up() -> bool:
    """Whether a scheduled profiler is prepared and does not record yet, which torch itself tells nobody."""
    if not step_counted():
        return False
    kinds = [profile]
    for kind in kinds:
        kinds += kind.__subclasses__()
    # An object refers to its class, so those of a class are found without looking at every object there is.
    found = (each for each in gc.get_referrers(*kinds) if isinstance(each, profile))
    return any(
        each.profiler is not None and each.profiler.kineto_results is None
        for each in found
        if each.current_action == ProfilerAction.WARMUP
    )
