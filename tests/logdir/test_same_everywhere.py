"""The tab, the repaired plugin, TensorBoard's own dashboards and the commands list the same runs by the same names,
however TensorBoard is started, and what one says of a run the other finds."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from werkzeug.test import Client

from harness.board.official.at_load import repair
from harness.board.tab.plugin import WindowsPlugin
from tests.board.tab import layout
from tests.browser import chromium as chromium
from tests.browser import opened, served
from tests.launch import Launcher, wait_until

TAB, OFFICIAL = "data/plugin/windows", "data/plugin/pytorch_profiler"
WAIT_S = 60.0
ODD = ["with space", "50% +1&a=b#c", "%2e%2e", "λ 🔥"]
LINKED = ["a group/one", "a run", "exp/one"]
HERE = ["exp/one", *(f"exp/{name}" for name in ODD), "own"]


@pytest.fixture(autouse=True)
def idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin in this process parses nothing before it is asked."""
    monkeypatch.setattr("harness.board.official.plugin.MADE_READY", 0)


def run(path: Path, *steps: int) -> None:
    """With points for TensorBoard's own dashboards."""
    layout.manifest(path)
    for step in steps:
        layout.window(path, step, "matmul_64")
    writer = EventFileWriter(str(path))
    writer.add_event(Event(wall_time=1, step=1, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1)])))
    writer.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two logdirs; not to be changed. In the first: runs of all names, linked ones, links that lead nowhere good."""
    home = tmp_path_factory.mktemp("home")
    a, b = home / "a", home / "b"
    run(a / "exp" / "one", 4, 120)
    for name in ODD:
        run(a / "exp" / name, 7)
    run(a / "own", 9)
    (a / "own" / "run.json").unlink()
    run(b / "exp" / "one", 5)
    run(b / "more", 6)
    run(home / "outside" / "secret", 1)
    return home


@pytest.fixture(scope="module")
def linked(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logdir with links."""
    folder = tmp_path_factory.mktemp("linked") / "logs"
    shutil.copytree(home / "a" / "exp" / "one", folder / "exp" / "one")
    (folder / "a run").symlink_to("exp/one")
    (folder / "a group").symlink_to(folder / "exp")
    (folder / "gone").symlink_to("nothing")
    (folder / "self").symlink_to("self")
    return folder


class InProcess:
    """Both plugins of a TensorBoard with these flags, without it."""

    def __init__(self, logdir: str, spec: str = "") -> None:
        from torch_tb_profiler.plugin import TorchProfilerPlugin

        repair()
        context = TBContext(flags=Namespace(logdir=logdir, logdir_spec=spec))
        self._apps = {TAB: WindowsPlugin(context).get_plugin_apps()}
        self._apps[OFFICIAL] = TorchProfilerPlugin(context).get_plugin_apps()

    def open(self, address: str) -> tuple[int, Any, str]:
        path, _, query = address.partition("?")
        plugin = TAB if path.startswith(TAB) else OFFICIAL
        route = path.removeprefix(plugin)
        apps = self._apps[plugin]
        app = apps.get(route) or next(
            app for name, app in apps.items() if name[-1] == "*" and route.startswith(name[:-1])
        )
        answer = Client(app).open(f"/{path}", query_string=query)
        return answer.status_code, answer.data, answer.headers.get("Location", "")


class Process:
    """A TensorBoard that somebody has started."""

    def __init__(self, address: str) -> None:
        self.address = address

    def open(self, address: str) -> tuple[int, Any, str]:
        opener = urllib.request.build_opener(_Stay)
        try:
            with opener.open(f"{self.address}/{address}", timeout=60) as answer:
                body = answer.read()
                if answer.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                return answer.status, body, ""
        except urllib.error.HTTPError as error:
            return error.code, error.read(), error.headers.get("Location", "")


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


Board = InProcess | Process


def told(board: Board, route: str, **query: str) -> Any:
    address = f"{route}?{urlencode(query, quote_via=quote)}"
    status, body, _ = board.open(address)
    assert status == 200, (address, status, body[:500])
    return json.loads(body)


def in_tab(board: Board) -> list[str]:
    return sorted(row["id"] for row in told(board, f"{TAB}/runs")["runs"])


def in_plugin(board: Board) -> list[str]:
    wait_until(lambda: not told(board, f"{OFFICIAL}/runs")["loading"], WAIT_S)
    return sorted(told(board, f"{OFFICIAL}/runs")["runs"])


def assert_links_arrive(board: Board, name: str, steps: list[int]) -> None:
    """From the plugin's span to the window's timeline, and back by the names of either."""
    windows = told(board, f"{TAB}/list", run=name)["windows"]
    assert [window["step"] for window in reversed(windows)] == steps
    assert told(board, f"{OFFICIAL}/spans", run=name, worker="host_0") == [f"step {step}" for step in steps]
    for step, window in zip(steps, reversed(windows), strict=True):
        query = urlencode({"run": name, "worker": "host_0", "span": f"step {step}"}, quote_via=quote)
        status, body, location = board.open(f"{OFFICIAL}/timeline?{query}")
        assert status == 302, body
        page = urljoin(f"/{OFFICIAL}/timeline", location).removeprefix("/")
        assert page.startswith(f"{TAB}/timeline/view.html?")
        assert board.open(page)[0] == 200
        facts = told(board, page.replace("view.html", "facts").partition("?")[0], **_query(page))
        assert str(10**18 + step) in json.dumps(facts), "it is this window's file"
        assert _query(page)["window"] == window["name"]
        assert told(board, f"{TAB}/window", run=name, window=window["name"])["summary"]["step"] == step


def _query(address: str) -> dict[str, str]:
    return dict(parse_qsl(address.partition("?")[2]))


def of_runs(harness: Launcher, logdir: Path) -> dict[str, int]:
    """What ``harness runs`` lists: windows by name."""
    done = harness.run("runs", str(logdir), "--format", "json")
    assert done.status == 0, done.text
    return {row["id"]: row["windows"] for row in json.loads(done.out)}


def of_report(harness: Launcher, logdir: Path) -> str:
    done = harness.run("report", str(logdir), "--format", "markdown")
    assert done.status == 0, done.text
    return done.out


WAYS: dict[str, tuple[str, str, dict[str, list[int]]]] = {
    "a directory": ("{home}/b", "", {"exp/one": [5], "more": [6]}),
    "with a slash at its end": ("{home}/b/", "", {"exp/one": [5], "more": [6]}),
    "relative": ("b", "", {"exp/one": [5], "more": [6]}),
    "relative with dots": ("./a/../b/.", "", {"exp/one": [5], "more": [6]}),
    "of the user": ("~/b", "", {"exp/one": [5], "more": [6]}),
    "an experiment": ("b/exp", "", {"one": [5]}),
    "a run": ("b/more", "", {".": [6]}),
    "a run's windows": ("b/more/profile", "", {".": [6]}),
    "a window": ("b/more/profile/window_00000006", "", {".": [6]}),
    "two": ("b/exp,b/more", "", {"exp/one": [5], "more": [6]}),
    "two with names": ("x:b/exp,y z:b/more", "", {"x/one": [5], "y z": [6]}),
    "two with slashes": ("{home}/b/exp/,~/b/more/", "", {"exp/one": [5], "more": [6]}),
    "a list": ("", "b/exp,b/more", {"exp/one": [5], "more": [6]}),
    "a list of one": ("", "b", {"exp/one": [5], "more": [6]}),
    "a list with names": ("", "n:b/exp,ü%:~/b", {"n/one": [5], "ü%/exp/one": [5], "ü%/more": [6]}),
    "a list with a name twice": ("", "n:b,n:c", {"n/exp/one": [5], "n/more": [6], "n/more (2)": [3]}),
    "a list with another file system": ("", "n:b/exp,s3://bucket/b", {"n/one": [5]}),
    "a list with a slash and a colon": ("", "{home}/b:c,x:b/exp", {"b:c/run": [8], "x/one": [5]}),
}


@pytest.mark.parametrize("way", WAYS)
def test_both_tabs_list_the_same_by_the_same_names(
    way: str, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    logdir, spec, expected = WAYS[way]
    monkeypatch.chdir(home)
    monkeypatch.setenv("HOME", str(home))
    for name, step in (("c/more", 3), ("b:c/run", 8)):
        if not (home / name).exists():
            run(home / name, step)
    board = InProcess(logdir.format(home=home), spec.format(home=home))
    assert in_tab(board) == in_plugin(board) == sorted(expected)
    for name, steps in expected.items():
        assert_links_arrive(board, name, steps)


@pytest.fixture(scope="module")
def whole(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """Plain TensorBoard on the first logdir."""
    folder = tmp_path_factory.mktemp("plain")
    with served(folder, "--logdir", str(home / "a"), "--load_fast", "false") as board:
        yield Process(board.address)


def scalars(board: Process) -> list[str]:
    return sorted(told(board, "data/runs"))


@pytest.mark.xdist_group("board")
def test_tensorboards_own_dashboards_have_these_names_too(whole: Process, home: Path, harness: Launcher) -> None:
    wait_until(lambda: len(scalars(whole)) == len(HERE), WAIT_S)
    assert scalars(whole) == in_tab(whole) == in_plugin(whole) == sorted(HERE)
    assert sorted(of_runs(harness, home / "a")) == sorted(HERE)
    shown = of_report(harness, home / "a")
    assert [name for name in HERE if f"`{name}`" not in shown] == []
    for name in (f"exp/{ODD[1]}", f"exp/{ODD[2]}"):
        assert_links_arrive(whole, name, [7])


@pytest.mark.xdist_group("board")
def test_linked_folders_are_listed_as_tensorboard_lists_them(linked: Path, tmp_path: Path, harness: Launcher) -> None:
    with served(tmp_path, "--logdir", str(linked), "--load_fast", "false") as board:
        found = Process(board.address)
        wait_until(lambda: len(scalars(found)) == len(LINKED), WAIT_S)
        assert scalars(found) == in_tab(found) == in_plugin(found) == LINKED
        assert_links_arrive(found, "a group/one", [4, 120])
    assert sorted(of_runs(harness, linked)) == LINKED
    shown = of_report(harness, linked)
    assert all(f"`{name}`" in shown for name in LINKED)


@pytest.mark.parametrize("where", ["folder", "run", "windows", "window"])
def test_what_lies_outside_is_listed_by_none(where: str, home: Path, tmp_path: Path, harness: Launcher) -> None:
    logs = tmp_path / "logs"
    run(logs / "mine", 2)
    outside = home / "outside"
    if where in ("folder", "run"):
        (logs / "link").symlink_to(outside if where == "folder" else outside / "secret")
    elif where == "window":
        (logs / "mine/profile/window_00000001").symlink_to(outside / "secret/profile/window_00000001")
    else:
        layout.manifest(logs / "link")
        (logs / "link" / "profile").symlink_to(outside / "secret/profile")
    board = InProcess(str(logs))
    listed = {name: told(board, f"{TAB}/list", run=name)["windows"] for name in in_tab(board)}
    with_windows = {name: [window["step"] for window in windows] for name, windows in listed.items() if windows}
    assert with_windows == {"mine": [2]}
    assert in_plugin(board) == ["mine"]
    assert told(board, f"{OFFICIAL}/spans", run="mine", worker="host_0") == ["step 2"]
    assert {name: count for name, count in of_runs(harness, logs).items() if count} == {"mine": 1}
    assert "secret" not in of_report(harness, logs)
    # Whoever wants it shown names it.
    both = InProcess("", f"mine:{logs},theirs:{outside}")
    assert "theirs/secret" in in_tab(both)
    assert "theirs/secret" in in_plugin(both)


@pytest.mark.xdist_group("board")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--logdir", "b/exp,b/more"), {"exp/one": [5], "more": [6]}),
        (("--logdir_spec", "n:b/exp,n:b/more"), {"n": [6], "n/one": [5]}),
        (("--logdir", "~/b/more/"), {".": [6]}),
    ],
    ids=["a comma", "a name twice", "a run"],
)
def test_a_tensorboard_of_either_kind_says_so_too(
    arguments: tuple[str, str], expected: dict[str, list[int]], home: Path, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(home / name)
    option, value = arguments
    with served(tmp_path, option, value.replace("~", str(home))) as board:
        found = Process(board.address)
        assert in_tab(found) == in_plugin(found) == sorted(expected)
        for name, steps in expected.items():
            assert_links_arrive(found, name, steps)


@pytest.mark.xdist_group("board")
@pytest.mark.parametrize("name", ["~odd", "a,b", "s3:/x", "n:b"])
def test_harness_board_serves_the_folder_that_it_is_given(name: str, harness: Launcher, tmp_path: Path) -> None:
    run(tmp_path / name / "exp" / "one", 3)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    board = harness.start("board", name, "--host", "127.0.0.1", "--port", str(port), cwd=tmp_path)
    wait_until(lambda: "#windows" in board.text or not board.running, WAIT_S, lambda: board.text)
    assert "1 runs with 1 windows" in board.text
    found = Process(f"http://127.0.0.1:{port}")
    assert in_tab(found) == in_plugin(found) == ["exp/one"]
    board.kill_session()


def test_a_name_that_is_no_text_is_the_same_in_both(tmp_path: Path, harness: Launcher) -> None:
    layout.manifest(tmp_path / "logs" / "plain")
    layout.window(tmp_path / "logs" / "plain", 4, "matmul_64")
    (tmp_path / "logs" / "plain").rename(tmp_path / "logs" / os.fsdecode(b"r\xff"))
    board = InProcess(str(tmp_path / "logs"))
    assert in_tab(board) == in_plugin(board) == [r"r\udcff"] == sorted(of_runs(harness, tmp_path / "logs"))
    assert_links_arrive(board, r"r\udcff", [4])


def test_a_sweep_counts_a_job_that_is_reached_twice_once(tmp_path: Path) -> None:
    from harness.logdir.rows import collect, sweep_rows

    for number in range(2):
        layout.manifest(tmp_path / "logs" / "exp" / f"s_{number}", sweep="s")
    (tmp_path / "logs" / "again").symlink_to("exp")
    assert len(collect(tmp_path / "logs")) == 4
    assert len(sweep_rows(tmp_path / "logs", None)) == 2


def test_a_copied_run_is_called_by_its_folder(tmp_path: Path) -> None:
    """Its manifest says what it was copied from."""
    from harness.logdir.rows import collect

    layout.manifest(tmp_path / "logs" / "exp" / "one")
    layout.manifest(tmp_path / "logs" / "exp" / "copy", id="exp/one")
    assert {row.id for row in collect(tmp_path / "logs")} == {"exp/one", "exp/copy"}
    (row,) = collect(tmp_path / "logs" / "exp" / "copy")
    assert row.id == "exp/one"


@pytest.mark.xdist_group("board")
@pytest.mark.parametrize("name", ["exp/50% +1&a=b#c", "exp/with space"])
def test_a_browser_goes_from_the_plugin_to_the_windows_timeline_and_to_the_tab(
    name: str,
    whole: Process,
    chromium: Any,
) -> None:
    with opened(chromium, f"{whole.address}/{OFFICIAL}/index.html") as plugin:
        page = plugin.page
        page.locator("[role=button][aria-haspopup=listbox]").first.click()
        page.get_by_role("option", name=name, exact=True).click()
        page.locator("[role=button][aria-haspopup=listbox]").nth(1).click()
        with page.expect_request("**/timeline/facts?*") as asked:
            page.get_by_role("option", name="Trace", exact=True).click()
        facts = _query(asked.value.url)
        assert (facts["run"], facts["window"]) == (name, "window_00000007")
    state = {"run": name, "window": "window_00000007", "part": "timeline"}
    hash_ = "&".join(f"p.windows.{key}={quote(value, safe='')}" for key, value in state.items())
    with opened(chromium, f"{whole.address}/#windows&{hash_}") as tab:
        frame = tab.page.frame_locator("iframe")
        frame.get_by_role("heading", name="step 7", exact=True).wait_for(timeout=60_000)
        inner = frame.locator("iframe.timeline")
        inner.wait_for(timeout=60_000)
        place = "one => one.contentWindow.location.pathname + one.contentWindow.location.search"
        wait_until(lambda: "view.html" in inner.evaluate(place), WAIT_S, every=0.1)
        assert {"run": name, "window": "window_00000007"}.items() <= _query(inner.evaluate(place)).items()
        tab.assert_well()
