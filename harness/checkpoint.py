"""Checkpoints: whole or not there, loaded without running code, the newest and the best kept.

::

    checkpoints/step_00000500.pt     the whole state, in one file
    checkpoints/step_00000500/       of a sharded model: every rank's part, as torch.distributed.checkpoint writes it,
                                     and state.pt with the rest, and with the size that each part has to have
    checkpoints/best.pt, best        a link to the best one
"""

from __future__ import annotations

import logging
import os
import pickle
import random
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.distributed import World
from harness.errors import UsageError
from harness.files import TEMPORARY, atomic_write, open_regular

log = logging.getLogger(__name__)

FORMAT = 2
_NAME = re.compile(r"step_([0-9]{8,18})(\.pt)?")
_NAMED_IN = re.compile(r"\bGLOBAL ([\w.]+)")
BEST = "best"
STATE = "state.pt"
SHARDED = "sharded"
"""The key under which a loaded state names the folder of its tensors."""


class Checkpoints:
    """A run's ``checkpoints/`` directory.

    Args:
        directory: Made at the first save.
        keep: How many of the newest stay; the best one stays beside them, and a link leads to it.
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
            self._tidy(best_step)
        return path

    def save_sharded(
        self,
        state: dict[str, Any],
        write: Callable[[Path], object],
        *,
        step: int,
        best_step: int | None = None,
        name: str | None = None,
        world: World,
    ) -> None:
        """Write the checkpoint of a sharded model; every rank's to call.

        As for :meth:`save`, what cannot be written is logged. A rank that dies in the middle leaves no checkpoint.

        Args:
            state: What is not sharded; rank 0's is written.
            write: Writes this rank's part into a folder, together with all other ranks.
            name: In place of the step's; no resumption looks at it.
        """
        final = self.directory / (name or f"step_{step:08d}")
        build = self.directory / f".{final.name}{TEMPORARY}"
        problem: str | None = None
        if world.leads:
            try:
                shutil.rmtree(build, ignore_errors=True)
                build.mkdir(parents=True)
            except OSError as error:
                problem = str(error)
        problem = world.gather(problem)[0]
        try:
            if problem is None:
                write(build)
                if world.leads:
                    self._complete(build, final, state)
        except (OSError, RuntimeError) as error:
            problem = str(error)
        if problem is not None:
            log.warning("checkpoint %s could not be written, training goes on: %s", final, problem.splitlines()[0])
            if world.leads:
                shutil.rmtree(build, ignore_errors=True)
        elif world.leads and name is None:
            self._tidy(best_step)

    def _complete(self, build: Path, final: Path, state: dict[str, Any]) -> None:
        sizes = {path.name: path.stat().st_size for path in build.iterdir()}
        with atomic_write(build / STATE) as file:
            torch.save({"format": FORMAT, "sizes": sizes, **state}, file)
        if final.exists():
            # One that was damaged, or a life of the run that was given up.
            shutil.rmtree(final)
        build.rename(final)
        handle = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _tidy(self, best_step: int | None) -> None:
        self._point_to_best(best_step)
        self._remove_old(best_step)

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
        return sorted(self._found())

    def _found(self) -> dict[int, Path]:
        matches = ((path, _NAME.fullmatch(path.name)) for path in self.directory.glob("step_*"))
        return {int(match[1]): path for path, match in matches if match}

    def load_newest(self, world: World | None = None) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, on the CPU; damaged ones are reported and passed over.

        Of several ranks, each reads the one that rank 0 has found to be whole. A sharded one comes back without its
        tensors, with the folder where they lie under :data:`SHARDED`.

        Raises:
            UsageError: where there are checkpoints and none is whole.
        """
        world = world or World()
        state: dict[str, Any] | None = None
        error: Exception | None = None
        if world.leads:
            try:
                state = self._newest()
            except UsageError as problem:
                error = problem
        world.check(error)
        step = world.gather(state and state["state"]["step"])[0] if world.size > 1 else None
        return state if step is None or world.leads else load(self._found()[step])

    def _newest(self) -> dict[str, Any] | None:
        found = self._found()
        for step in sorted(found, reverse=True):
            try:
                return load(found[step])
            except UsageError as error:
                log.warning("%s; trying the one before it", error)
        if found:
            raise UsageError(f"{self.directory}: none of the {len(found)} checkpoints can be read")
        return None

    def _point_to_best(self, best_step: int | None) -> None:
        best = None if best_step is None else self._found().get(best_step)
        if best is None:
            return
        link = self.directory / f"{BEST}{best.suffix}"
        temporary = self.directory / f".{link.name}.tmp"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(best.name)
        temporary.replace(link)

    def _remove_old(self, best_step: int | None) -> None:
        found = self._found()
        for step in sorted(found)[: -self._keep]:
            if step == best_step:
                continue
            if found[step].is_dir():
                shutil.rmtree(found[step], ignore_errors=True)
            else:
                found[step].unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """A checkpoint's state, on the CPU, every byte checked against the archive's checksums; of a sharded one all but
    its tensors, whose files have the sizes that they had.

    Raises:
        UsageError: where it is damaged, is no checkpoint, or is of another format.
    """
    if path.is_dir():
        rest = load(path / STATE)
        for name, size in rest["sizes"].items():
            if not (path / name).is_file() or (path / name).stat().st_size != size:
                raise UsageError(f"checkpoint {path} is damaged (in {name})")
        return {**rest, SHARDED: path}
    try:
        with open_regular(path) as file:
            with zipfile.ZipFile(file) as archive:
                broken = archive.testzip()
                # torch takes an entry that says it is a folder for an empty one, and the tensor is whatever was in
                # memory.
                entries = archive.infolist()
                broken = broken or next((info.filename for info in entries if info.external_attr & 0x10), None)
            file.seek(0)
            state = None if broken else torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UsageError(f"checkpoint {path} is refused: {why_refused(error)}") from error
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to say
        raise UsageError(f"checkpoint {path} is damaged or none ({error})") from error
    if broken:
        raise UsageError(f"checkpoint {path} is damaged (in {broken})")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"checkpoint {path} is none of this version's, whose format is {FORMAT}")
    return state


def why_refused(error: Exception) -> str:
    """Of a file that names what it may not have: the name, as torch or our own reader says it; else what is wrong."""
    named = _NAMED_IN.search(str(error))
    if named is None:
        # Without torch's advice to load it all the same.
        lines = str(error).rpartition("WeightsUnpickler error: ")[2].strip().splitlines()
        return lines[0] if lines else type(error).__name__
    return f"it names {named[1]}, which no checkpoint needs; nothing of it was run"


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
