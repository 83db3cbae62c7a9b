"""Pages of other sites in a real browser, and what they get to see of a board that its user has open."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from tests import browser
from tests.board.raw import TAB, begun
from tests.board.tab import layout
from tests.browser import opened
from tests.launch import Launcher

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("board")
chromium = browser.chromium

PAGE = """<!doctype html><title>waiting</title><script>
const address = new URLSearchParams(location.search).get("at")
const tried = {}
const mark = (name, how) => {
  tried[name] = how
  if (Object.keys(tried).length === 4) document.title = JSON.stringify(tried)
}
for (const [name, kind] of [["script", "script"], ["img", "img"], ["link", "link"]]) {
  const element = document.createElement(kind)
  element.onload = () => mark(name, "loaded")
  element.onerror = () => mark(name, "refused")
  if (kind === "link") { element.rel = "stylesheet"; element.href = address } else element.src = address
  document.head.append(element)
}
fetch(address, {mode: "no-cors"}).then(() => mark("fetch", "loaded"), () => mark("fetch", "refused"))
</script>"""
FRAME = '<!doctype html><title>a notebook</title><iframe src="{address}" width="1300" height="800"></iframe>'


class Site:
    """A web server of somebody's on this machine."""

    def __init__(self, folder: Path) -> None:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None: ...

        self.folder = folder
        self._server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
        )
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="module")
def board(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a board with windows and a curve."""
    folder = tmp_path_factory.mktemp("strangers")
    layout.manifest(folder / "logs" / "a" / "b")
    layout.window(folder / "logs" / "a" / "b", 10, "matmul_64")
    writer = EventFileWriter(str(folder / "logs" / "a" / "b"))
    for step in range(3):
        value = summary_pb2.Summary.Value(tag="train/loss", simple_value=float(step))
        writer.add_event(event_pb2.Event(step=step, summary=summary_pb2.Summary(value=[value])))
    writer.close()
    command, port = begun(launcher, "board", folder / "logs", "--host", "127.0.0.1")
    yield port
    command.kill_session()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    started = Site(tmp_path_factory.mktemp("site"))
    (started.folder / "page.html").write_text(PAGE)
    yield started
    started.close()


@pytest.mark.parametrize(
    "route", ["/", "/data/environment", f"{TAB}/runs", f"{TAB}/static/index.js", f"{TAB}/static/style.css"]
)
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"], ids=["another port", "another site"])
def test_a_page_elsewhere_gets_nothing(route: str, name: str, board: int, site: Site, chromium: Browser) -> None:
    address = f"http://localhost:{board}{route}"
    with opened(chromium, f"http://{name}:{site.port}/page.html?at={address}") as stranger:
        stranger.page.wait_for_function("document.title !== 'waiting'")
        tried = stranger.page.title()
    assert "loaded" not in tried, tried


def test_a_notebook_of_this_machine_shows_the_board_in_a_frame(board: int, site: Site, chromium: Browser) -> None:
    shown = (
        f"http://localhost:{board}/#windows&p.windows.run=a/b&p.windows.window=window_00000010&p.windows.part=timeline"
    )
    (site.folder / "notebook.html").write_text(FRAME.format(address=shown))
    with opened(chromium, f"http://localhost:{site.port}/notebook.html") as notebook:
        tab = notebook.page.frame_locator("iframe").frame_locator("iframe")
        tab.locator("text=overhead-bound").first.wait_for(timeout=60_000)
        timeline = tab.frame_locator("iframe.timeline")
        timeline.locator("header").first.wait_for(timeout=60_000)
        notebook.wrong = [text for text in notebook.wrong if "favicon" not in text]
        notebook.assert_well()


def test_another_site_shows_no_board_in_a_frame(board: int, site: Site, chromium: Browser) -> None:
    (site.folder / "frame.html").write_text(FRAME.format(address=f"http://localhost:{board}/"))
    with opened(chromium, f"http://127.0.0.1:{site.port}/frame.html") as stranger:
        stranger.page.wait_for_load_state("load")
        assert any(text.startswith("403") for text in stranger.wrong), stranger.wrong


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_tensorboards_own_pages_ask_all_they_need(name: str, board: int, chromium: Browser) -> None:
    with opened(chromium, f"http://{name}:{board}/#timeseries") as own:
        own.page.locator("text=train/loss").first.wait_for(timeout=60_000)
        own.page.wait_for_function(
            "performance.getEntriesByType('resource')"
            ".some(one => one.name.includes('timeSeries') && one.responseStatus === 200)",
            timeout=60_000,
        )
        own.assert_well()
