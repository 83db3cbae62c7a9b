"""A real TensorBoard and a real headless Chromium that can reach nothing but this machine.

Import the fixtures that a module wants: ``from tests.browser import chromium, tensorboard  # noqa: F401``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import harness
from tests.launch import ROOT, environment, session, wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

READY_S = 60.0
CLOSED = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
LAPTOP = (1440, 900)
SLOWDOWN = float(os.environ.get("BROWSER_SLOWDOWN", "1"))
"""How many times longer the pages' scripts take: 4 or more brings out tests that do not wait for what they look at."""

StartTensorBoard = Callable[..., str]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A headless Chromium without a network."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("there is no Chromium here")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[CLOSED, *QUIET])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tensorboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartTensorBoard]:
    """Starts ``tensorboard --logdir LOGDIR ARGUMENTS...`` and gives its address; all end with the module."""
    with contextlib.ExitStack() as over:

        def start(logdir: Path | str, *arguments: str) -> str:
            folder = tmp_path_factory.mktemp("tensorboard")
            return over.enter_context(served(folder, "--logdir", str(logdir), *arguments)).address

        yield start


class Served:
    """A ``tensorboard`` process, as users start it, in a session of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{port}"
        self._said = folder / "tensorboard.out"
        with self._said.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tensorboard.main", *arguments, "--host", "127.0.0.1", "--port", str(port)],
                cwd=folder,
                env=environment(PYTHONPATH=f"{installed(folder)}:{ROOT}"),
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def said(self) -> str:
        """What it has printed so far."""
        return self._said.read_text(errors="replace")

    def ready(self) -> None:
        wait_until(lambda: self._answers() or self.process.poll() is not None, READY_S, lambda: self.said, every=0.1)
        assert self.process.poll() is None, self.said

    def processes(self) -> list[int]:
        """Its own process and all that it has started."""
        return session(self.process.pid)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
        for pid in self.processes():
            subprocess.run(["kill", "-KILL", str(pid)], check=False)
        self.process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/data/plugins_listing", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@contextlib.contextmanager
def served(folder: Path, *arguments: str) -> Iterator[Served]:
    """A TensorBoard that answers; it ends with the block."""
    board = Served(folder, *arguments)
    try:
        board.ready()
        yield board
    finally:
        board.end()


def installed(folder: Path) -> Path:
    """A folder for the import path in which this checkout is installed, with the entry points of its pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{harness.__version__}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {harness.__version__}\n"
    )
    groups = {"console_scripts": project["scripts"], **project.get("entry-points", {})}
    (metadata / "entry_points.txt").write_text(
        "\n".join(
            f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
            for group, points in groups.items()
        )
    )
    return folder


class Watched:
    """A page and all that went wrong in it: errors in the console, failed requests, requests off this machine."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.wrong: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._note(message.type == "error", f"console: {message.text}"))
        page.on("pageerror", lambda error: self._note(True, f"script: {error}"))
        page.on("request", lambda request: self._asked(request.url))
        page.on("response", lambda answer: self._note(answer.status >= 400, f"{answer.status}: {answer.url}"))

    def assert_well(self) -> None:
        """Nothing went wrong so far."""
        assert not self.wrong, "\n".join(self.wrong)

    def _asked(self, url: str) -> None:
        self.requests.append(url)
        parts = urlsplit(url)
        local = parts.scheme in ("data", "blob", "about") or parts.hostname in ("localhost", "127.0.0.1")
        self._note(not local, f"a request off the machine: {url}")

    def _note(self, wrong: bool, what: str) -> None:
        if wrong:
            self.wrong.append(what)


def slow_down(page: Page, rate: float) -> None:
    """Let the page's scripts take ``rate`` times as long."""
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": rate})


@contextlib.contextmanager
def opened(browser: Browser, address: str, size: tuple[int, int] = LAPTOP, dark: bool = False) -> Iterator[Watched]:
    """A page of its own on ``address``."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
    )
    try:
        watched = Watched(context.new_page())
        slow_down(watched.page, SLOWDOWN)
        watched.page.goto(address)
        yield watched
    finally:
        context.close()
