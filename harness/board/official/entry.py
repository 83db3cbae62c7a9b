"""What TensorBoard loads, whoever starts it: an entry point that repairs the profiler plugin and adds none of its own.

TensorBoard imports every entry point before it makes the first plugin, so the order of the entry points is no matter.
"""

from __future__ import annotations

from tensorboard.plugins import base_plugin

from harness.board.official import repair

repair()


class Repair(base_plugin.TBLoader):  # type: ignore[misc]  # tensorboard ships no types
    """A loader of nothing."""

    def load(self, context: base_plugin.TBContext) -> None:
        return None
