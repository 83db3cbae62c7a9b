"""Recording windows of training steps, inside the training process.

::

    from harness.record import Profiler, Schedule
"""

from harness.record.profiler import Profiler, RecordedWindow
from harness.record.recording import TraceOptions
from harness.record.schedule import Schedule
from harness.record.spans import span

__all__ = ["Profiler", "RecordedWindow", "Schedule", "TraceOptions", "span"]
