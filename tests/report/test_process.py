"""The command as a process: what it imports, what it does to a narrow terminal and to a closed pipe."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.trace.conftest import recorded

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-c", "from harness.cli import main; main()", "report"]
TRACE = str(recorded("sync_item"))


def environment(**more: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**inherited, "PYTHONPATH": str(ROOT), **more}


@pytest.mark.parametrize("format", ["table", "markdown", "json"])
def test_it_imports_no_torch_and_no_hydra(format: str) -> None:
    script = f"""
import sys
from harness.cli import app
try:
    app(["report", {TRACE!r}, "--format", {format!r}])
except SystemExit:
    pass
loaded = {{name.split(".")[0] for name in sys.modules}}
print(sorted(loaded & {{"torch", "hydra", "omegaconf", "tensorboard", "harness"}}), file=sys.stderr)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True
    )
    assert ended.stderr.splitlines()[-1] == "['harness']"
    assert ended.stdout


def test_lines_fit_the_terminal_and_carry_colours() -> None:
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 72, 0, 0))
    process = subprocess.Popen([*COMMAND, TRACE], stdin=child, stdout=child, env=environment(TERM="xterm-256color"))
    os.close(child)
    received = b""
    while True:
        try:
            piece = os.read(parent, 65536)
        except OSError:
            break
        received += piece
    assert process.wait() == 0
    text = received.decode()
    assert "\x1b[1;31msync-bound" in text
    lines = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(map(len, lines)) <= 72


def test_a_pipe_that_closes_early_is_no_error() -> None:
    process = subprocess.Popen(
        [*COMMAND, str(recorded("lab5_gpt_tiny")), "--rows", "100000", "--format", "markdown"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.wait()


@pytest.mark.parametrize("format", ["table", "markdown"])
def test_characters_that_an_output_lacks_are_replaced(format: str) -> None:
    ended = subprocess.run(
        [*COMMAND, TRACE, "--format", format],
        env=environment(PYTHONIOENCODING="ascii"),
        capture_output=True,
        check=True,
    )
    assert ended.stdout.isascii()
    assert b"sync-bound" in ended.stdout
