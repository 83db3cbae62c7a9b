"""Recording windows of training steps, inside the training process.

::

    from harness.record import Profiler, Schedule
"""

from harness.publish import Keep, PublishedWindow
from harness.record.profiler import Profiler
from harness.record.recording import TraceOptions
from harness.record.schedule import Schedule
from harness.record.spans import span

__all__ = ["Keep", "Profiler", "PublishedWindow", "Schedule", "TraceOptions", "span"]
