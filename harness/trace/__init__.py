"""From a trace file to findings: pure functions over columns, without torch.

report = analyze(read("window.pt.trace.json.gz"))
"""

from harness.trace.analyze import analyze
from harness.trace.reader import Trace, TraceError, read
from harness.trace.schema import WindowReport

__all__ = ["Trace", "TraceError", "WindowReport", "analyze", "read"]
