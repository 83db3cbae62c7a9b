"""Copies of published windows at an fsspec address: object stores, SFTP, FTP, other file systems. Without torch."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.credentials import masked
from harness.files import open_regular
from harness.logdir.layout import FINDINGS
from harness.logdir.scan import windows_in

PIECE = 1024**2
FIRST_PAUSE_S = 2.0
LONGEST_PAUSE_S = 300.0
"""Between two attempts, doubled after each: an address that is gone for a night costs a request every five minutes."""


def upload(window: Path, address: str) -> None:
    """Copy a window's files to ``<address>/<window>``. Findings go last: where they are, the window is whole.

    Doing it again does no harm. A trace that retention removes meanwhile is left out.

    Raises:
        OSError: and whatever else the protocol's own library raises, where it cannot be done.
        ImportError: where fsspec, or the library of the address's protocol, is not installed.
    """
    system, root = _open(address)
    target = f"{root}/{window.name}"
    system.makedirs(target, exist_ok=True)
    for path in sorted(window.iterdir(), key=lambda path: (path.name == FINDINGS, path.name)):
        with (
            suppress(FileNotFoundError),
            open_regular(path) as source,
            system.open(f"{target}/{path.name}", "wb") as file,
        ):
            shutil.copyfileobj(source, file, PIECE)


def missing(windows: list[Path], address: str) -> list[Path]:
    """The windows that are not whole at the address; one without findings counts where its folder is there.

    Raises:
        OSError: and whatever else the protocol's own library raises, where it cannot be asked.
    """
    system, root = _open(address)

    def is_there(window: Path) -> bool:
        target = f"{root}/{window.name}"
        return bool(system.exists(f"{target}/{FINDINGS}" if (window / FINDINGS).exists() else target))

    return [window for window in windows if not is_there(window)]


def _open(address: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError("profiler.upload needs fsspec: pip install 'torch-tb-harness[upload]'") from error
    system, root = url_to_fs(address)
    # A listing from before would hide what has been written since.
    system.invalidate_cache()
    return system, str(root).rstrip("/")


class Uploader:
    """Copies a run's windows in a thread, again and again until each is there.

    What is missing follows from both sides, so what a killed process has not copied the next one does.

    Args:
        profile: The folder of the run's windows.
        address: Where they go.
        say: Told once of each problem that begins, and when it is over.
    """

    def __init__(self, profile: Path, address: str, say: Callable[[str], object] = lambda text: None) -> None:
        self._profile, self._address, self._say = profile, address, say
        self._there: set[str] = set()
        self._more = threading.Event()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="harness-upload", daemon=True)
        self._thread.start()

    def window_published(self) -> None:
        """There is one more."""
        self._more.set()

    def close(self, limit_s: float) -> bool:
        """Copy what is left, for ``limit_s`` at most; whether all is there."""
        self._over.set()
        self._more.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive() and not self._left()

    def _left(self) -> list[Path]:
        return [path for path in windows_in(self._profile) if path.name not in self._there]

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        failing = False
        while True:
            self._more.clear()
            try:
                self._copy()
            except Exception as error:
                # Every protocol's library has errors of its own.
                if not failing:
                    why = masked(f"{type(error).__name__}: {error}")
                    self._say(f"windows are not copied to {masked(self._address)} for now: {why}")
                failing = True
                if self._over.is_set():
                    return
                self._over.wait(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE_S)
                continue
            if failing:
                self._say(f"windows are copied to {masked(self._address)} again")
            pause, failing = FIRST_PAUSE_S, False
            if self._over.is_set() and not self._left():
                return
            self._more.wait()

    def _copy(self) -> None:
        left = self._left()
        wanted = missing(left, self._address) if left else []
        self._there |= {path.name for path in left} - {path.name for path in wanted}
        for window in wanted:
            upload(window, self._address)
            self._there.add(window.name)
