"""A command of ours called in the test's own process, for what is not about the process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from harness.cli import main


class Result(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Result]


def in_process(command: str) -> Any:
    """A fixture that calls ``harness COMMAND ARGUMENTS...`` with the arguments it is given."""

    @pytest.fixture
    def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
        def _run(*arguments: object) -> Result:
            monkeypatch.setattr(sys, "argv", ["harness", command, *map(str, arguments)])
            status: object = 0
            try:
                main()
            except SystemExit as ended:
                status = ended.code
            return Result(int(str(status or 0)), *capsys.readouterr())

        return _run

    return run
