"""The traces of the ranks beside rank 0, on their way to its publisher. Without torch.

::

    .tb_logs.staging/<experiment>/<run>/
      rank_00003/window_00000120/      rank 3's raw export, while torch writes it
      window_00000120.ranks/           <host>_3.<ns>.pt.trace.json, then its .gz in its place; or lost_3

A rank leaves its raw trace there whole, and a process of its own, at low priority, compresses it on the host that has
it. Rank 0's publisher takes what is there once every rank's is, and compresses what nobody has.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness import search_path
from harness.logdir.layout import TRACE_SUFFIX, trace_name
from harness.publish.compress import compress
from harness.publish.job import Job
from harness.publish.published import PublishedWindow
from harness.publish.staging import TEMPORARY, Staging

NICENESS = 10
COMPRESSED = ".gz"
LOST = "lost_"
_LOST = re.compile(LOST + "([0-9]{1,9})")


@dataclass(frozen=True)
class RankStaging(Staging):
    """Where another rank than 0 lets torch export.

    Args:
        rank: Not 0.
    """

    rank: int = 1

    @property
    def folder(self) -> Path:
        return super().folder / f"rank_{self.rank:05d}"

    def ranks(self, name: str) -> Path:
        return Staging(self.logdir, self.run).ranks(name)

    def hand_in(self, name: str, raw: Path) -> Path:
        """Move a raw trace to where rank 0's publisher looks for it; where it lies then."""
        there = self.ranks(name)
        there.mkdir(parents=True, exist_ok=True)
        moved = raw.rename(there / raw.name)
        with suppress(OSError):
            raw.parent.rmdir()
            self.folder.rmdir()
        return moved

    def lose(self, name: str) -> None:
        """Say that this rank has no trace of the window."""
        there = self.ranks(name)
        there.mkdir(parents=True, exist_ok=True)
        (there / f"{LOST}{self.rank}").touch()


class Handover:
    """What another rank than 0 has for a publisher: it hands in, hears of no window, and counts none.

    Args:
        staging: Of this rank.
    """

    waiting = 0
    behind = False

    def __init__(self, staging: RankStaging) -> None:
        self._staging = staging
        self._process: subprocess.Popen[bytes] | None = None

    def has(self, name: str) -> bool:
        return False

    def start(self) -> None:
        """Start the process that compresses; without one rank 0's publisher does it."""
        if self._process is None or self._process.poll() is not None:
            with suppress(OSError):
                self._process = subprocess.Popen(
                    search_path.command("harness.publish.ranks:main"), stdin=subprocess.PIPE, process_group=0
                )

    def submit(self, name: str, job: Job) -> None:
        """Hand in this rank's trace of a window.

        Raises:
            OSError: where it is not there, or cannot be moved.
        """
        (raw,) = [path for path in self._staging.raw(name).iterdir() if path.name.endswith(TRACE_SUFFIX)]
        moved = self._staging.hand_in(name, raw)
        self.start()
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                os.write(self._process.stdin.fileno(), f"{moved}\n".encode())

    def lose(self, name: str) -> None:
        """Say that the window has no trace of this rank."""
        with suppress(OSError):
            self._staging.lose(name)

    def forget(self) -> None:
        """Let a forked child have no end of the pipe."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def poll(self) -> Sequence[PublishedWindow]:
        return ()

    def drain(self, limit_s: float) -> Iterator[PublishedWindow]:
        """Wait until all is compressed, for ``limit_s`` at most."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(limit_s)
        yield from ()


def handed_in(staging: Staging, name: str) -> dict[int, Path]:
    """The traces of other ranks that wait for a window, whole ones only, by rank; a compressed one before a raw one."""
    found: dict[int, Path] = {}
    for path in _files(staging, name):
        named = trace_name(path.name)
        if named is None or named.rank is None or not path.is_file():
            continue
        if path.suffix == COMPRESSED or named.rank not in found:
            found[named.rank] = path
    return found


def complete(staging: Staging, name: str, ranks: Iterable[int]) -> bool:
    """Whether every one of ``ranks`` has left its compressed trace, or has said that it has none."""
    there = {rank for rank, path in handed_in(staging, name).items() if path.suffix == COMPRESSED}
    said = [_LOST.fullmatch(path.name) for path in _files(staging, name)]
    lost = {int(match[1]) for match in said if match}
    return set(ranks) <= there | lost


def _files(staging: Staging, name: str) -> list[Path]:
    try:
        return sorted(staging.ranks(name).iterdir())
    except OSError:
        return []


def main() -> None:
    """Compress every file that is named on stdin, until it ends."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    for line in sys.stdin:
        raw = Path(line.rstrip("\n"))
        aside = raw.with_name(f".{raw.name}{TEMPORARY}")
        # Where it cannot be done, rank 0's publisher finds the raw trace.
        with suppress(OSError):
            compress(raw, aside)
            aside.rename(raw.with_name(f"{raw.name}.gz"))
            raw.unlink()
