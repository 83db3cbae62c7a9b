"""Checkpoints: whole or not there, loaded without running code, the newest and the best kept."""

from __future__ import annotations

import logging
import random
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.errors import UsageError
from harness.files import atomic_write

log = logging.getLogger(__name__)

FORMAT = 1
_NAME = re.compile(r"step_(\d{8,})\.pt")
BEST = "best.pt"


class Checkpoints:
    """A run's ``checkpoints/`` directory.

    Args:
        directory: Made at the first save.
        keep: How many of the newest stay; the best one stays beside them, and ``best.pt`` links to it.
    """

    def __init__(self, directory: Path, *, keep: int = 3) -> None:
        self.directory = directory
        self._keep = keep

    def save(self, state: dict[str, Any], *, step: int, best_step: int | None = None) -> Path | None:
        """Write the checkpoint of ``step`` and remove those that are no longer kept.

        A full disk is logged and costs the new checkpoint only: None comes back, and the last good one stays.

        Args:
            state: Tensors and plain values, loadable with ``weights_only``.
            best_step: The step whose checkpoint is the best so far.
        """
        path = self.save_aside(f"step_{step:08d}.pt", state)
        if path is not None:
            self._point_to_best(best_step)
            self._remove_old(best_step)
        return path

    def save_aside(self, name: str, state: dict[str, Any]) -> Path | None:
        """Write ``state`` under a name that no resumption looks at; None where it could not be written."""
        path = self.directory / name
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as file:
                torch.save({"format": FORMAT, **state}, file)
        except (OSError, RuntimeError) as error:
            # torch reports a failed write of its own as RuntimeError.
            log.warning("checkpoint %s could not be written, training goes on: %s", path, error)
            return None
        return path

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in order."""
        matches = (_NAME.fullmatch(path.name) for path in self.directory.glob("step_*.pt"))
        return sorted(int(match[1]) for match in matches if match)

    def load_newest(self) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, on the CPU; damaged ones are reported and passed over.

        Raises:
            UsageError: where there are checkpoints and none is whole.
        """
        steps = self.steps()
        for step in reversed(steps):
            path = self.directory / f"step_{step:08d}.pt"
            try:
                return load(path)
            except UsageError as error:
                log.warning("%s; trying the one before it", error)
        if steps:
            raise UsageError(f"{self.directory}: none of the {len(steps)} checkpoints can be read")
        return None

    def _point_to_best(self, best_step: int | None) -> None:
        if best_step not in self.steps():
            return
        link, temporary = self.directory / BEST, self.directory / f".{BEST}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(f"step_{best_step:08d}.pt")
        temporary.replace(link)

    def _remove_old(self, best_step: int | None) -> None:
        for step in self.steps()[: -self._keep]:
            if step != best_step:
                (self.directory / f"step_{step:08d}.pt").unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """A checkpoint's state, on the CPU, every byte checked against the archive's checksums.

    Raises:
        UsageError: where it is damaged, is no checkpoint, or is of a newer format.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
            # torch takes an entry that says it is a folder for an empty one, and the tensor is whatever was in memory.
            broken = broken or next((info.filename for info in archive.infolist() if info.external_attr & 0x10), None)
        state = None if broken else torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to say
        raise UsageError(f"checkpoint {path} is damaged or none ({error})") from error
    if broken:
        raise UsageError(f"checkpoint {path} is damaged (in {broken})")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"checkpoint {path} is none of this version's, whose format is {FORMAT}")
    return state


def random_state() -> dict[str, Any]:
    """The state of every global random generator."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": (str(kind), torch.from_numpy(np.asarray(keys).astype(np.int64)), position, has_gauss, gauss),
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put every global random generator where :func:`random_state` found it."""
    torch.set_rng_state(state["torch"])
    random.setstate(state["python"])
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
