"""Fixtures of all tests."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.launch import Launcher

# Several test processes share few cores, and torch's threads wait for each other by spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    started = Launcher(tmp_path_factory.mktemp("commands"))
    yield started
    started.close()


@pytest.fixture
def harness(launcher: Launcher) -> Iterator[Launcher]:
    """The ``harness`` command; what a test leaves running ends with it."""
    yield launcher
    launcher.end_all()


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """A logdir that is not there yet, in a folder of its own."""
    return tmp_path / "logs"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mount.returncode:
        pytest.skip(f"cannot mount a small disk here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """While entered, this process's writes past ``size`` bytes of a file fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def file_size_limit() -> Callable[[int], AbstractContextManager[None]]:
    """Makes the disk seem full: ``with file_size_limit(1000): ...``."""
    return no_file_larger_than
