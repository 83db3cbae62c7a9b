"""What the Windows tab must not do, whatever lies in the logdir and whoever asks."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.board.tab import layout
from tests.board.tab.conftest import Tab

SECRET = "not for everyone"
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
OUTSIDE = [
    "..",
    "../..",
    "../../secret",
    "/etc",
    "/etc/passwd",
    "..%2f..%2fsecret",
    "%2e%2e/secret",
    "....//secret",
    "..\\secret",
    "a/b/../../../secret",
    "a/b/.",
    "./a/b",
    "a//b",
    "secret\0.pt.trace.json",
    "file:///etc/passwd",
    "~",
    "",
    "x" * 100_000,
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of one window, beside a secret."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "window.json").write_text(json.dumps({"text": SECRET}))
    (tmp_path / "secret" / "host_0.1.pt.trace.json").write_text(json.dumps({"text": SECRET}))
    layout.manifest(tmp_path / "logs" / "a" / "b")
    layout.window(tmp_path / "logs" / "a" / "b", 10, "matmul_64")
    return tmp_path / "logs" / "a" / "b"


@pytest.fixture
def tab(run: Path) -> Tab:
    return Tab(str(run.parents[1]))


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: name[:20].replace("\0", "NUL") or "empty")
def test_no_name_leads_out_of_the_logdir(name: str, tab: Tab) -> None:
    good = {"run": "a/b", "window": "window_00000010", "file": ""}
    for route in ("window", "trace", "memory", "rank"):
        for argument in ("run", "window", "file"):
            if argument == "file" and (name == "" or route == "window"):
                continue
            answer = tab.ask(route, **{**good, argument: name})
            assert answer.status_code == 404, f"{route} {argument}={name[:40]}"
            assert SECRET not in answer.text
            assert len(answer.text) < 1000
    for route in ("list", "life"):
        assert tab.ask(route, run=name).status_code == 404


@pytest.mark.parametrize("name", ["../plugin.py", "..%2fplugin.py", "style.css/../../plugin.py", "nothing.js", ""])
def test_static_files_are_those_of_the_page_alone(name: str, tab: Tab) -> None:
    assert tab.ask(f"static/{name}").status_code == 404
    assert tab.ask("static/index.js").status_code == 200


def linked(at: Path, to: Path) -> None:
    if at.is_dir():
        for path in at.iterdir():
            path.unlink()
        at.rmdir()
    at.unlink(missing_ok=True)
    at.symlink_to(to)


def test_links_out_of_the_logdir_are_not_followed(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    layout.window(outside, 10, "matmul_64")
    window = run / "profile" / "window_00000010"
    (trace,) = window.glob("*.gz")
    linked(trace, tmp_path / "secret" / "host_0.1.pt.trace.json")
    assert "no trace" in Tab(str(run.parents[1])).refused("trace", run="a/b", window="window_00000010")
    linked(window / "window.json", tmp_path / "secret" / "window.json")
    assert "out of the logdir" in Tab(str(run.parents[1])).refused("window", run="a/b", window="window_00000010")
    linked(window, outside / "profile" / "window_00000010")
    assert Tab(str(run.parents[1])).get("list", run="a/b")["windows"] == []
    linked(run / "profile", outside / "profile")
    assert Tab(str(run.parents[1])).get("list", run="a/b")["windows"] == []
    (run.parent / "c").symlink_to(outside)
    assert [one["id"] for one in Tab(str(run.parents[1])).get("runs")["runs"]] == ["a/b"]


def test_a_logdir_that_is_itself_a_link_is_served(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run.parents[1])
    assert Tab(str(tmp_path / "link")).get("window", run="a/b", window="newest")["summary"]["step"] == 10


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "damaged"),
        (b"{", "damaged"),
        (b"[]", "damaged"),
        (b"\xff\x00", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"schema_version": 1}', "damaged"),
        (b'{"schema_version": 1, "verdict": {"label": "<script>", "confidence": 1, "evidence": []}}', "damaged"),
    ],
    ids=["empty", "cut off", "a list", "binary", "deep", "fields missing", "a label of its own"],
)
def test_findings_that_are_damaged_are_said_and_hide_no_other(content: bytes, word: str, run: Path, tab: Tab) -> None:
    layout.window(run, 20, "matmul_64")
    (run / "profile" / "window_00000010" / "window.json").write_bytes(content)
    good, bad = tab.get("list", run="a/b")["windows"]
    assert good["label"] is not None
    assert word in bad["problem"]
    assert bad["label"] is None
    assert word in tab.refused("window", run="a/b", window="window_00000010")
    assert tab.get("life", run="a/b")["steps"] == [20]
    assert word in tab.refused("compare", run="a/b", window="newest", before_run="a/b", before_window="window_00000010")


def test_findings_of_another_version_or_too_large_or_no_file_are_said(run: Path, tab: Tab) -> None:
    path = run / "profile" / "window_00000010" / "window.json"
    found = json.loads(path.read_bytes())
    path.write_text(json.dumps(found | {"schema_version": 99}))
    assert "schema version 99" in tab.refused("window", run="a/b", window="newest")
    with path.open("r+b") as file:
        file.truncate(10**12)
    assert "more than" in tab.refused("window", run="a/b", window="newest")
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in tab.refused("window", run="a/b", window="newest")
    path.unlink()
    (one,) = tab.get("list", run="a/b")["windows"]
    assert one["problem"] == "it was published without findings"


def test_a_trace_that_is_damaged_or_too_large_is_said(run: Path, tab: Tab) -> None:
    (trace,) = (run / "profile" / "window_00000010").glob("*.gz")
    trace.write_bytes(b"no trace at all")
    said = tab.refused("memory", run="a/b", window="newest")
    assert "no trace" in said
    assert str(run) not in said, "a path of the machine"
    with trace.open("r+b") as file:
        file.truncate(10**12)
    assert "too large" in tab.refused("memory", run="a/b", window="newest")
    head = tab.ask("trace", method="HEAD", run="a/b", window="newest")
    assert head.headers["Content-Length"] == str(10**12)


def test_a_trace_that_swells_is_refused_before_it_takes_the_memory(
    run: Path, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.board.tab.traces.MAX_JSON_BYTES", 2**20)
    (trace,) = (run / "profile" / "window_00000010").glob("*.gz")
    trace.write_bytes(gzip.compress(bytes(2**26)) * 100)
    assert "more than 1,048,576 bytes of JSON" in tab.refused("memory", run="a/b", window="newest")


def test_a_large_trace_is_sent_piece_by_piece(run: Path, tab: Tab) -> None:
    (trace,) = (run / "profile" / "window_00000010").glob("*.gz")
    with trace.open("r+b") as file:
        file.truncate(10**12)
    answer = tab.ask("trace", run="a/b", window="newest")
    assert max(len(next(answer.response)) for _ in range(3)) <= 2**20
    answer.close()


def test_only_reading_is_allowed(tab: Tab) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert tab.ask("runs", method=method).status_code == 405


def test_every_answer_forbids_guessing_its_type(tab: Tab) -> None:
    asked = {"run": "a/b", "window": "newest"}
    for route in ("runs", "list", "life", "window", "memory", "rank", "trace", "static/index.js", "plotly.js"):
        answer = tab.ask(route, **asked)
        assert answer.headers["X-Content-Type-Options"] == "nosniff", route
        assert "html" not in answer.content_type, route


def test_names_with_scripts_in_them_are_text(tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    run = tmp_path / "a" / SCRIPT.replace("/", "_")
    layout.manifest(run)
    window = layout.window(run, 10, "matmul_64")
    path = window / "window.json"
    path.write_text(path.read_text().replace("aten::mm", json.dumps(SCRIPT)[1:-1]))
    tab = tab_on(str(tmp_path))
    (one,) = tab.get("runs")["runs"]
    page = tab.get("window", run=one["id"], window="newest")
    assert SCRIPT in {row[0] for row in page["tables"]["operators"]["rows"]}
