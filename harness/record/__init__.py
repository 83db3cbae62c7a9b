"""Recording windows of training steps, inside the training process.

::

    from harness.record import Profiler, Schedule
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.publish import Keep, PublishedWindow
    from harness.record.profiler import Profiler
    from harness.record.recording import TraceOptions
    from harness.record.spans import span
    from harness.schedule import Schedule

__all__ = ["Keep", "Profiler", "PublishedWindow", "Schedule", "TraceOptions", "span"]


def __getattr__(name: str) -> Any:
    """Each name when it is asked for: a schedule is checked without torch, which takes seconds to load."""
    home = {
        "Keep": "harness.publish",
        "Profiler": "harness.record.profiler",
        "PublishedWindow": "harness.publish",
        "Schedule": "harness.schedule",
        "TraceOptions": "harness.record.recording",
        "span": "harness.record.spans",
    }
    if name not in home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home[name]), name)
