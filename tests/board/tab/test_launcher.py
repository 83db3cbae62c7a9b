"""``harness board`` opens the tab and says what there is to see."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.board.tab import layout
from tests.launch import Launcher, wait_until

pytestmark = pytest.mark.xdist_group("board")


def free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_open_shows_the_tab_in_the_browser_and_the_terminal_says_what_was_found(
    harness: Launcher, tmp_path: Path
) -> None:
    layout.manifest(tmp_path / "logs" / "a" / "run")
    layout.window(tmp_path / "logs" / "a" / "run", 10, "matmul_64")
    layout.window(tmp_path / "logs" / "own" / "loop", 10, "matmul_64")
    layout.window(tmp_path / "logs" / "own" / "loop", 20, "matmul_64")
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened.part\nmv {tmp_path}/opened.part {tmp_path}/opened\n')
    browser.chmod(0o755)
    port = free_port()
    board = harness.start(
        *("board", str(tmp_path / "logs"), "--host", "127.0.0.1", "--port", port, "--open"),
        env={"BROWSER": str(browser)},
    )
    wait_until((tmp_path / "opened").exists, 60, lambda: f"the browser; it said:\n{board.text}")
    assert (tmp_path / "opened").read_text().strip() == f"http://127.0.0.1:{port}/#windows"
    assert "2 runs with 3 windows" in board.text
    assert "can read" not in board.text
    board.signal(signal.SIGTERM)
    assert board.wait(30).status == 0


def test_an_address_that_others_reach_is_pointed_out(harness: Launcher, tmp_path: Path) -> None:
    board = harness.start("board", str(tmp_path), "--host", "0.0.0.0", "--port", free_port())
    wait_until(lambda: "#windows" in board.text or not board.running, 60, lambda: board.text)
    assert "whoever reaches 0.0.0.0 can read" in board.text
    board.signal(signal.SIGINT)
    assert board.wait(30).status == 0
