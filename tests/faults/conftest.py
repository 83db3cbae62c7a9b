"""Fixtures of tests on file systems that fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.shim import failing
from tests.launch import Launcher


@pytest.fixture(scope="session")
def shimmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Starts ``harness`` commands that obey the rules of ``env=failing(...)``."""
    started = Launcher(tmp_path_factory.mktemp("shimmed"), **failing())
    yield started
    started.close()
