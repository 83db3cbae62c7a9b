"""Spans and windows that cannot be read: every route says so, and what stands beside them is shown.

Each kind of damage has a run of its own, with a damaged window at step 10 and a good one at step 20; a real server
shows all of them at once.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
import pytest

from tests.board.raw import OFFICIAL, TAB, WAIT_S, Answer, Server, begun
from tests.board.tab import layout
from tests.launch import Launcher, wait_until

pytestmark = pytest.mark.xdist_group("unreadable")

SECRET = "not for everyone"
NAMELESS = b"caf\xe9"


def written(content: bytes) -> Callable[[Path], None]:
    return lambda path: (path.unlink(), path.write_bytes(content), None)[-1]  # type: ignore[func-returns-value]


def instead(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else under the file's name."""

    def damage(path: Path) -> None:
        path.unlink()
        make(path)

    return damage


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def sparse(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(10**12)


def bound(path: Path) -> None:
    # A socket's path may have no more than a hundred letters.
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as one:
        one.bind(path.name)


def device(path: Path) -> None:
    with contextlib.suppress(PermissionError):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero


def event(**changes: Any) -> bytes:
    one = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0, "args": {}}
    return json.dumps({"traceEvents": [one | changes]}).encode()


ANY: dict[str, Callable[[Path], None]] = {
    "gone": Path.unlink,
    "empty": written(b""),
    "text": written(b"this is no trace"),
    "binary": written(bytes(range(256)) * 10),
    "cut": cut,
    "a list": written(b"[]"),
    "a number": written(b"1e999"),
    "deep": written(b"[" * 200_000),
    "deep and closed": written(b'{"traceEvents":' * 50_000 + b"1" + b"}" * 50_000),
    "sparse": sparse,
    "a folder": instead(Path.mkdir),
    "a pipe": instead(os.mkfifo),
    "a socket": instead(bound),
    "a device": instead(device),
    "a link to nothing": instead(lambda path: path.symlink_to("nothing")),
    "a link to itself": instead(lambda path: path.symlink_to(path.name)),
    "a link out": instead(lambda path: path.symlink_to(path.parents[5] / "secret" / path.name)),
    "a link to a pipe": instead(lambda path: (os.mkfifo(path.parents[2] / "pipe"), path.symlink_to("../../pipe"))),
}

TRACES: dict[str, Callable[[Path], None]] = {
    **{f"trace {name}": damage for name, damage in ANY.items()},
    "trace of numbers": written(b'{"traceEvents": [1, 2, null, "x", []]}'),
    "trace of no list": written(b'{"traceEvents": 5}'),
    "trace without events": written(b'{"traceEvents": []}'),
    "trace of times beyond all": written(event(ts=2**70, dur=2**70)),
    "trace of negative times": written(event(ts=-(2**62), dur=-5)),
    "trace of numbers as names": written(event(name=5, cat=[], args=7)),
    "trace of huge threads": written(event(pid=10**400, tid="9" * 5000)),
    "trace of a long step": written(event(name="ProfilerStep#" + "9" * 5000, cat="user_annotation")),
    "trace twice compressed": lambda path: path.write_bytes(gzip.compress(path.read_bytes())) and None,
}

FINDINGS: dict[str, Callable[[Path], None]] = {
    **{f"findings {name}": damage for name, damage in ANY.items()},
    "findings of another version": written(b'{"schema_version": 99}'),
}

MANIFESTS: dict[str, Callable[[Path], None]] = {
    f"manifest {name}": ANY[name] for name in ANY if name not in ("gone", "a link to nothing", "a link out")
}


def in_place_of_windows(run: Path) -> None:
    (run / "profile").rename(run / "kept")
    (run / "profile").write_text("")


def beside(run: Path) -> None:
    """A window that is a file, one that is a link, and names that are no text."""
    (run / "profile" / "window_00000030").write_text("")
    (run / "profile" / "window_00000040").symlink_to("window_00000020")
    shutil.copy(
        layout.recorded("matmul_64"), os.fsencode(run / "profile" / "window_00000010") + b"/\xff_0.1.pt.trace.json.gz"
    )


RUNS: dict[str, Callable[[Path], None]] = {
    "a file in place of its windows": in_place_of_windows,
    "no windows among them": beside,
    "named in no alphabet": lambda run: os.rename(run, os.fsencode(run.parent) + b"/" + NAMELESS),
    "named <script>alert(1)<,script>": lambda run: None,
    "named\nin two lines": lambda run: None,
}

ALL = [*TRACES, *FINDINGS, *MANIFESTS, *RUNS]


def spoilt(folder: Path, name: str) -> None:
    """A run with this damage, at its window 10."""
    run = folder / name
    layout.manifest(run)
    window = layout.window(run, 10, "lab5_cnn_mem")
    layout.window(run, 20, "matmul_64")
    (trace,) = window.glob("*.gz")
    if name in TRACES:
        TRACES[name](trace)
    elif name in FINDINGS:
        FINDINGS[name](window / "window.json")
    elif name in MANIFESTS:
        MANIFESTS[name](run / "run.json")
    else:
        RUNS[name](run)


@pytest.fixture(scope="module")
def server(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A board on runs with every kind of damage, and one without."""
    folder = tmp_path_factory.mktemp("unreadable")
    (folder / "secret").mkdir()
    layout.manifest(folder / "logs" / "bad" / "good")
    layout.window(folder / "logs" / "bad" / "good", 10, "lab5_cnn_mem")
    (trace,) = (folder / "logs" / "bad" / "good").glob("profile/*/*.gz")
    for name in (trace.name, "window.json"):
        (folder / "secret" / name).write_text(json.dumps({"text": SECRET}))
    for name in ALL:
        spoilt(folder / "logs" / "bad", name)
    command, port = begun(launcher, "board", folder / "logs", "--host", "127.0.0.1")
    board = Server("harness board", port, (), command=command)
    wait_until(lambda: "bad/good" in asked(board, f"{OFFICIAL}/runs").body.decode(), WAIT_S, lambda: command.text)
    yield board
    assert "Traceback" not in command.text
    command.kill_session()


def asked(server: Server, route: str, **query: str) -> Answer:
    return server.get(f"{route}?{urlencode(query, quote_via=quote)}")


def told(server: Server, route: str, **query: str) -> Any:
    answer = asked(server, route, **query)
    assert answer.status == 200, answer.body[:500]
    body = gzip.decompress(answer.body) if answer.headers.get("content-encoding") == "gzip" else answer.body
    return msgspec.json.decode(body)


def name_in_lists(name: str) -> str:
    return (
        f"bad/{name}"
        if name != "named in no alphabet"
        else "bad/" + os.fsdecode(NAMELESS).encode(errors="backslashreplace").decode()
    )


OF_A_SPAN = (
    *(
        "views",
        "overview",
        "operation",
        "operation/table",
        "operation/stack",
        "kernel",
        "kernel/table",
        "kernel/tc_pie",
    ),
    *("trace", "memory", "memory_curve", "memory_events", "module", "tree", "diff", "diffnode"),
    *("distributed/gpuinfo", "distributed/overlap", "distributed/waittime", "distributed/commops", "workers", "spans"),
)
OF_A_WINDOW = ("list", "life", "window", "compare", "memory", "rank", "trace")


def assert_said(answer: Answer, of: str) -> None:
    """It is an answer, or a sentence for the page."""
    assert answer.status in (200, 302, 400, 404, 422), f"{of}: {answer.status} {answer.body[:500]!r}"
    assert "html" not in answer.headers["content-type"], of
    assert SECRET.encode() not in answer.body, of
    assert b"Traceback" not in answer.body, of
    if answer.status >= 400:
        assert answer.headers["content-type"] == "application/json", of
        assert len(msgspec.json.decode(answer.body)["error"]) > 10, of


@pytest.mark.parametrize("name", ALL)
def test_every_route_answers(name: str, server: Server) -> None:
    run = name_in_lists(name)
    for route in OF_A_WINDOW:
        before = {"before_run": run, "before_window": "window_00000020"} if route == "compare" else {}
        assert_said(asked(server, f"{TAB}/{route}", run=run, window="window_00000010", **before), route)
    span = {"run": run, "worker": "host_0", "span": "step 10", "view": "Overview", "op_name": "aten::mm"}
    other = {"exp_run": "bad/good", "exp_worker": "host_0", "exp_span": "step 10"}
    for route in OF_A_SPAN:
        assert_said(asked(server, f"{OFFICIAL}/{route}", **span, **other), route)
    assert_said(asked(server, f"{OFFICIAL}/overview", **(span | {"worker": "All"})), "All")


@pytest.mark.parametrize(
    "name", ["trace text", "trace a pipe", "trace a folder", "trace gone", "trace a link to itself"]
)
def test_a_timeline_of_it_says_why_there_is_none(name: str, server: Server) -> None:
    run = name_in_lists(name)
    for route in ("facts", "trace"):
        answer = asked(server, f"{TAB}/timeline/{route}", run=run, window="window_00000010")
        assert answer.status == 404
        assert_said(answer, route)
        worker = {"worker": "host_0", "span": "step 10"}
        assert_said(asked(server, f"{OFFICIAL}/files/timeline/{route}", run=run, **worker), route)


@pytest.mark.parametrize("name", ALL)
def test_the_good_window_beside_it_is_shown(name: str, server: Server) -> None:
    run, good = name_in_lists(name), {"window": "window_00000020"}
    assert run in {row["id"] for row in told(server, f"{TAB}/runs")["runs"]}
    if name == "a file in place of its windows":
        assert told(server, f"{TAB}/list", run=run)["windows"] == []
        return
    assert "window_00000020" in {row["name"] for row in told(server, f"{TAB}/list", run=run)["windows"]}
    assert 20 in told(server, f"{TAB}/life", run=run)["steps"]
    assert told(server, f"{TAB}/window", run=run, **good)["summary"]["label"] is not None
    assert told(server, f"{TAB}/rank", run=run, **good)["label"]
    span = {"run": run, "worker": "host_0", "span": "step 20"}
    assert "step 20" in told(server, f"{OFFICIAL}/spans", run=run, worker="host_0")
    assert "Operator" in told(server, f"{OFFICIAL}/views", **span)
    assert told(server, f"{OFFICIAL}/overview", **span)["steps"]["rows"]


def test_the_good_run_among_them_is_shown(server: Server) -> None:
    rows = {row["id"]: row for row in told(server, f"{TAB}/runs")["runs"]}
    assert rows["bad/good"]["newest"]["label"] is not None
    assert set(rows) == {name_in_lists(name) for name in ["good", *ALL]}
    assert told(server, f"{TAB}/window", run="bad/good", window="newest")["summary"]["label"] is not None
    assert "bad/good" in told(server, f"{OFFICIAL}/runs")["runs"]


@pytest.mark.parametrize("name", [*TRACES])
def test_the_plugins_page_says_what_is_wrong_with_a_span(name: str, server: Server) -> None:
    """Where the span is listed, which what leads nowhere is not, and nothing of it can be read."""
    span = {"run": name_in_lists(name), "worker": "host_0", "span": "step 10"}
    if "step 10" not in told(server, f"{OFFICIAL}/spans", run=span["run"], worker="host_0"):
        return
    if name in ("trace cut", "trace of huge threads", "trace of a long step"):
        assert "Operator" in told(server, f"{OFFICIAL}/views", **span), "as far as it goes"
        return
    assert told(server, f"{OFFICIAL}/views", **span) == ["Overview"]
    assert "<li>" in told(server, f"{OFFICIAL}/overview", **span)["recommendations"]
    answer = asked(server, f"{OFFICIAL}/operation/table", **span)
    assert answer.status == 422
    assert len(msgspec.json.decode(answer.body)["error"]) > 20


@pytest.mark.parametrize(
    "query",
    [
        {"start_ts": "x"},
        {"start_ts": "1.5"},
        {"end_ts": "9" * 5000},
        {"start_ts": "nan", "end_ts": "-1"},
        {"memory_metric": "x"},
        {"time_metric": "x"},
    ],
    ids=lambda query: " ".join(query)[:40],
)
def test_what_is_no_number_is_said(query: dict[str, str], server: Server) -> None:
    span = {"run": "bad/good", "worker": "host_0", "span": "step 10"}
    for route in ("memory", "memory_curve", "memory_events"):
        assert_said(asked(server, f"{OFFICIAL}/{route}", **span, **query), route)
        assert asked(server, f"{OFFICIAL}/{route}", **span).status == 200


def test_a_trace_that_goes_while_it_is_looked_at_is_said(server: Server, launcher: Launcher, tmp_path: Path) -> None:
    layout.manifest(tmp_path / "logs" / "a" / "b")
    window = layout.window(tmp_path / "logs" / "a" / "b", 10, "lab5_cnn_mem")
    command, port = begun(launcher, "board", tmp_path / "logs", "--host", "127.0.0.1")
    board = Server("harness board", port, ())
    span = {"run": "a/b", "worker": "host_0", "span": "step 10"}
    wait_until(lambda: asked(board, f"{OFFICIAL}/overview", **span).status == 200, WAIT_S, lambda: command.text)
    assert told(board, f"{TAB}/window", run="a/b", window="newest")["files"]
    (trace,) = window.glob("*.gz")
    trace.unlink()
    for route in OF_A_SPAN:
        assert_said(asked(board, f"{OFFICIAL}/{route}", **span), route)
    for route in ("memory", "rank", "trace", "timeline/facts", "timeline/trace"):
        answer = asked(board, f"{TAB}/{route}", run="a/b", window="newest")
        assert answer.status == 404
        assert "no trace any more" in msgspec.json.decode(answer.body)["error"]
    assert told(board, f"{TAB}/window", run="a/b", window="newest")["files"] == []
    command.kill_session()
