"""Checkpoints: whole or not there, loaded without running code, the newest and the best kept.

::

    checkpoints/step_00000500.pt     the whole state, in one file
    checkpoints/step_00000500/       of a sharded model: every rank's part, as torch.distributed.checkpoint writes it,
                                     and state.pt with the rest, and with each part's size and checksum
    checkpoints/best.pt, best        a link to the best one
"""

from __future__ import annotations

import logging
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import torch
from isal.isal_zlib import crc32

from harness.distributed.world import World
from harness.errors import UsageError
from harness.files import TEMPORARY, atomic_write, open_regular, reason, remove_folder, sync_folder, why_refused
from harness.logdir.layout import BEST, STATE

log = logging.getLogger(__name__)

FORMAT = 2
_NAME = re.compile(r"step_([0-9]{8,18})(\.pt)?")
THREADS = 8
"""That read the parts of a sharded checkpoint at the same time."""
CHUNK = 1 << 24
SHARDED = "sharded"
"""The key under which a loaded state names the folder of its tensors."""


class Checkpoints:
    """A run's ``checkpoints/`` directory.

    Only what was read back whole counts: a new one takes its name after that, one of an earlier life is read once
    before others go in its favour. A damaged one stays where it is and is said to be so.

    Args:
        directory: Made at the first save.
        keep: How many of the newest whole ones stay; the best one stays beside them, and a link leads to it.
    """

    def __init__(self, directory: Path, *, keep: int = 3) -> None:
        self.directory = directory
        self.problem: str | None = None
        """Why the newest save has failed; None where it has not."""
        self.closing = False
        """Whether no training goes on behind the next save."""
        self._keep = keep
        self._known: dict[Path, tuple[Any, bool]] = {}
        """Of those that this process has read back: how they looked then, and whether they were whole."""

    def save(self, state: dict[str, Any], *, step: int, best_step: int | None = None) -> Path | None:
        """Write the checkpoint of ``step`` and remove those that are no longer kept.

        A full disk is logged and costs the new checkpoint only: None comes back, and the last good one stays.

        Args:
            state: Tensors and plain values, loadable with ``weights_only``.
            best_step: The step whose checkpoint is the best so far.
        """
        path = self.save_aside(f"step_{step:08d}.pt", state)
        if path is not None:
            self.tidy(best_step)
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
    ) -> Path | None:
        """Write the checkpoint of a sharded model; every rank's to call.

        As for :meth:`save`, what cannot be written is logged, and None comes back on every rank. A rank that dies in
        the middle leaves no checkpoint.

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
        sums: dict[str, int] = {}
        if problem is None:
            try:
                write(build)
                # Each rank reads its own back: rank 0 would take as many times as long.
                sums = _checksums(build.glob(f"__{world.rank}_*"))
            except (OSError, RuntimeError) as error:
                problem = reason(error)
            told = world.gather((problem, sums))
            problem = next((one for one, _ in told if one is not None), None)
            if problem is None and world.leads:
                try:
                    self._complete(build, final, state, {name: one for _, found in told for name, one in found.items()})
                except (OSError, RuntimeError) as error:
                    problem = reason(error)
            problem = world.gather(problem)[0]
        self.problem = problem
        if problem is not None:
            if world.leads:
                self._complain(final)
                shutil.rmtree(build, ignore_errors=True)
            return None
        if world.leads:
            self._known[final] = (_look(final), True)
            if name is None:
                self.tidy(best_step)
        return final

    def _complete(self, build: Path, final: Path, state: dict[str, Any], sums: dict[str, int]) -> None:
        parts = list(build.iterdir())
        sums |= _checksums(path for path in parts if path.name not in sums)
        sizes = {path.name: path.stat().st_size for path in parts}
        with atomic_write(build / STATE, check=_require_whole) as file:
            torch.save({"format": FORMAT, "sizes": sizes, "checksums": sums, **state}, file)
        if final.exists():
            # One that was damaged, or a life of the run that was given up.
            remove_folder(final)
        build.rename(final)
        sync_folder(self.directory)

    def tidy(self, best_step: int | None) -> None:
        """Point to the best one and remove those that need not stay; what the disk says to that is logged."""
        try:
            self._point_to_best(best_step)
            self._remove_old(best_step)
        except OSError as error:
            log.warning("%s could not be tidied up: %s", self.directory, error)

    def _complain(self, path: Path) -> None:
        what = "" if self.closing else ", training goes on"
        log.warning("checkpoint %s could not be written%s: %s", path, what, self.problem)

    def save_aside(self, name: str, state: dict[str, Any]) -> Path | None:
        """Write ``state`` under a name that no resumption looks at; None where it could not be written."""
        path = self.directory / name
        self.problem = None
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with atomic_write(path, check=_require_whole) as file:
                torch.save({"format": FORMAT, **state}, file)
        except (OSError, RuntimeError) as error:
            # torch reports a failed write of its own as RuntimeError.
            self.problem = reason(error)
            self._complain(path)
            return None
        self._known[path] = (_look(path), True)
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
        found: tuple[Path, dict[str, Any]] | None = None
        error: Exception | None = None
        if world.leads:
            try:
                found = self._newest()
            except UsageError as problem:
                error = problem
        world.check(error)
        name = world.gather(found and found[0].name)[0]
        if name is None or found is not None:
            return found and found[1]
        return load(self.directory / name, parts=False)

    def _newest(self) -> tuple[Path, dict[str, Any]] | None:
        found = self._found()
        for step in sorted(found, reverse=True):
            path = found[step]
            seen = _look(path)
            try:
                state = _load_step(path, step)
            except UsageError as error:
                self._known[path] = (seen, False)
                log.warning("%s; trying the one before it", error)
            else:
                self._known[path] = (seen, True)
                return path, state
        if found:
            raise UsageError(f"{self.directory}: none of the {len(found)} checkpoints can be read")
        return None

    def newest_whole(self) -> Path | None:
        """The checkpoint that a resumption would take."""
        found = self._found()
        return next((found[step] for step in sorted(found, reverse=True) if self._is_whole(found[step])), None)

    def _is_whole(self, path: Path) -> bool:
        """Whether a resumption could take it; it is read at most once, unless it changes."""
        seen = _look(path)
        known = self._known.get(path)
        if known is None or known[0] != seen:
            try:
                _load_step(path, int(path.name[5:].removesuffix(".pt")), mapped=True)
                known = (seen, True)
            except UsageError as error:
                log.warning("%s; it stays where it is and counts for nothing", error)
                known = (seen, False)
            self._known[path] = known
        return known[1]

    def _point_to_best(self, best_step: int | None) -> None:
        found = self._found()
        best = None if best_step is None else found.get(best_step)
        if best is None or not self._is_whole(best):
            for link in self._links():
                target = self.directory / link.readlink()
                if target not in found.values() or not self._is_whole(target):
                    link.unlink()
            return
        link = self.directory / f"{BEST}{best.suffix}"
        temporary = self.directory / f".{link.name}.tmp"
        try:
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(best.name)
            temporary.replace(link)
        finally:
            temporary.unlink(missing_ok=True)

    def _links(self) -> list[Path]:
        return [link for link in (self.directory / BEST, self.directory / f"{BEST}.pt") if link.is_symlink()]

    def _remove_old(self, best_step: int | None) -> None:
        found = self._found()
        # The best one may have no checkpoint yet, and the link leads to the one before it.
        spared = {self.directory / link.readlink() for link in self._links()}
        if best_step in found:
            spared.add(found[best_step])
        kept = 0
        for step in sorted(found, reverse=True):
            path = found[step]
            if (kept >= self._keep and path in spared) or not self._is_whole(path):
                continue
            if kept < self._keep:
                kept += 1
                continue
            self._known.pop(path, None)
            if path.is_dir():
                remove_folder(path)
            else:
                path.unlink(missing_ok=True)


def _look(path: Path) -> Any:
    """What changes when a checkpoint does, without reading it."""
    try:
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        stats = [(file.name, file.stat()) for file in files]
    except OSError:
        return None
    return [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats]


def _checksums(paths: Iterable[Path]) -> dict[str, int]:
    """The CRC-32 of each file's bytes, read back, by its name."""
    with ThreadPoolExecutor(THREADS) as pool:
        return dict(pool.map(lambda path: (path.name, _checksum(path)), paths))


def _checksum(path: Path) -> int:
    checksum = 0
    with open_regular(path) as file:
        while chunk := file.read(CHUNK):
            checksum = crc32(chunk, checksum)
    return checksum


def _broken(file: BinaryIO) -> str | None:
    """The first entry of an archive that is not as it was written."""
    with zipfile.ZipFile(file) as archive:
        broken = archive.testzip()
        # torch takes an entry that says it is a folder for an empty one, and the tensor is whatever was in memory.
        return broken or next((info.filename for info in archive.infolist() if info.external_attr & 0x10), None)


def _require_whole(path: Path) -> None:
    """Read back what was just written. Raises OSError where it is not what it should be."""
    try:
        with open_regular(path) as file:
            broken = _broken(file)
    except (zipfile.BadZipFile, EOFError) as error:
        raise OSError(f"it was not written whole ({error})") from error
    if broken:
        raise OSError(f"it was not written whole (in {broken})")


def load(path: Path, *, parts: bool = True, mapped: bool = False) -> dict[str, Any]:
    """A checkpoint's state, on the CPU, every byte checked against the archive's checksums; of a sharded one all but
    its tensors, whose files are checked too.

    Args:
        parts: False where another rank has checked them.
        mapped: Leave the tensors in the file, where all that is wanted is to know whether it is whole.

    Raises:
        UsageError: where it is damaged, is no checkpoint, or is of another format.
    """
    if path.is_dir():
        rest = load(path / STATE)
        if parts:
            _require_parts(path, rest)
        return {**rest, SHARDED: path}
    try:
        with open_regular(path) as file:
            broken = _broken(file)
            file.seek(0)
            # Mapped by its name: what the descriptor is of has been looked at.
            source = path if mapped else file
            state = None if broken else torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise UsageError(f"checkpoint {path} is refused: {why_refused(error)}") from error
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to say
        raise UsageError(f"checkpoint {path} is damaged, or is no checkpoint ({error})") from error
    if broken:
        raise UsageError(f"checkpoint {path} is damaged (in {broken})")
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise UsageError(f"checkpoint {path} is none of this version's, whose format is {FORMAT}")
    return state


def _load_step(path: Path, step: int, *, mapped: bool = False) -> dict[str, Any]:
    """The checkpoint that has the name of ``step``. Raises UsageError as :func:`load` does, and where it is another's:
    a copy under a later name would push out those that are later indeed."""
    state = load(path, mapped=mapped)
    inner = state.get("state", {})
    if not isinstance(inner, dict):
        raise UsageError(f"checkpoint {path} is damaged: it does not say how far the run was")
    if inner.get("step", step) != step:
        raise UsageError(f"checkpoint {path} is damaged: it is of step {inner['step']}")
    return state


def _require_parts(folder: Path, rest: dict[str, Any]) -> None:
    if not isinstance(rest.get("sizes"), dict):
        raise UsageError(f"checkpoint {folder} is damaged (in {STATE})")
    for name, size in rest["sizes"].items():
        if not (folder / name).is_file() or (folder / name).stat().st_size != size:
            raise UsageError(f"checkpoint {folder} is damaged (in {name})")
    # Version 0.1.0 kept sizes alone.
    expected = rest.get("checksums", {})
    try:
        found = _checksums(folder / name for name in expected)
    except OSError as error:
        raise UsageError(f"checkpoint {folder} cannot be read: {error}") from error
    for name, checksum in expected.items():
        if found[name] != checksum:
            raise UsageError(f"checkpoint {folder} is damaged (in {name})")
