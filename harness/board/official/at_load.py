"""Whether the plugin is repaired, or left alone."""

from __future__ import annotations

import logging
from typing import NamedTuple

from harness.board.official import pinned

log = logging.getLogger(__name__)


class RepairState(NamedTuple):
    """What became of the plugin."""

    patched: bool
    message: str
    """One line for the user."""


_state: RepairState | None = None


def repair() -> RepairState:
    """Repair the plugin in this process, once; later calls only say how it went.

    It may be called before or after TensorBoard has loaded the plugin's class, but before it is instantiated. Where the
    installed plugin is another than the one that the repair was written for, it is left untouched, with a warning.
    """
    global _state
    if _state is None:
        _state = _repair()
        if not _state.patched:
            log.warning("%s", _state.message)
    return _state


def _repair() -> RepairState:
    at = pinned.folder()
    if at is None:
        return RepairState(
            False, f"profiler plugin: not installed (pip install {pinned.DISTRIBUTION}=={pinned.VERSION})"
        )
    difference = pinned.difference(at)
    if difference is not None:
        return RepairState(False, f"profiler plugin: untouched, with its known faults, because {difference}")
    from harness.board.official import plugin

    plugin.apply()
    return RepairState(True, f"profiler plugin: {pinned.VERSION}, repaired")
