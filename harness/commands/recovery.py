"""What commands publish first that a killed job has left."""

from __future__ import annotations

from pathlib import Path

from harness import console
from harness.publish.recover import recover


def publish_what_waits(path: Path) -> None:
    """Publish the finished windows of the runs at or below a path, and say so."""
    for staging, outcome in recover(path):
        what = {"published": "is published now", "dropped": "was dropped", "failed": "cannot be published"}
        reason = f": {outcome.error}" if outcome.error else ""
        console.err.print(
            console.plain(
                f"{staging.run}: {outcome.name}, which a killed job had left, {what[outcome.status]}{reason}"
            ),
            highlight=False,
            soft_wrap=True,
        )
