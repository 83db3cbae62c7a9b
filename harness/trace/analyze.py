"""All findings of a trace."""

from __future__ import annotations

from harness.trace.reader import Trace
from harness.trace.schema import WindowReport


def analyze(trace: Trace, *, step_ms: float | None = None, peaks: object = None) -> WindowReport:
    raise NotImplementedError
