"""Colours with a meaning."""

from __future__ import annotations

from harness.trace.schema import VerdictLabel

STYLE_OF_VERDICT: dict[VerdictLabel, str] = {
    "compute-bound": "bold green",
    "memory-bound": "bold green",
    "device-bound": "bold green",
    "undetermined": "bold yellow",
}
"""Green where the device works, red where it waits."""
WAITING = "bold red"


def verdict_style(label: VerdictLabel) -> str:
    """Rich's style for a label."""
    return STYLE_OF_VERDICT.get(label, WAITING)
