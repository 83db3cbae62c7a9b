"""From a trace file to findings: pure functions over columns, without torch.

report = analyze(read("window.pt.trace.json.gz"))
report = analyze_window(sorted(window.glob("*.pt.trace.json.gz")))  # of several ranks
"""

from harness.trace.analyze import analyze
from harness.trace.errors import TraceError
from harness.trace.file.columns import Trace
from harness.trace.file.reader import read
from harness.trace.ranks.findings import analyze_rank, analyze_window
from harness.trace.schema import WindowReport

__all__ = ["Trace", "TraceError", "WindowReport", "analyze", "analyze_rank", "analyze_window", "read"]
