"""From a raw trace in staging to a window in the logdir, in a process of its own. Nothing here imports torch.

::

    training process: torch stops, exports ──> staging/<window>/ + <window>.job ──> Publisher.submit
    worker process:   read, analyze, compress, make room ──> rename into profile/ ──> a line back

The job files are the truth: whoever holds the run's lock publishes what they name, once, and may die at any moment.
"""

from harness.publish.job import Cost, Job
from harness.publish.published import PublishedWindow
from harness.publish.publisher import Publisher
from harness.publish.retention import Keep
from harness.publish.staging import Staging

__all__ = ["Cost", "Job", "Keep", "PublishedWindow", "Publisher", "Staging"]
