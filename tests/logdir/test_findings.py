"""Findings are read in one way: with their version, their size and their kind of file looked at."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest

from harness.board.events.trends import Trends
from harness.logdir.findings import Unreadable, findings_in, read_findings
from harness.logdir.layout import FINDINGS
from harness.logdir.rows import collect
from harness.logdir.window import Window
from harness.publish.publisher import _report
from harness.publish.retention import Keep, Retention
from harness.record.budget import account_of
from harness.report.sections.overview import Glance, glance
from harness.trace import WindowReport
from tests.board.tab import layout


@pytest.fixture
def window(tmp_path: Path) -> Path:
    """The findings alone of a window."""
    return layout.window(tmp_path / "logs" / "run", 10, "matmul_64", keep=False)


def spoil(path: Path, how: str) -> None:
    found = json.loads(path.read_text())
    if how == "of another version":
        path.write_text(json.dumps(found | {"schema_version": 99}))
    elif how == "cut off":
        path.write_bytes(path.read_bytes()[:-9])
    elif how == "deep":
        path.write_bytes(b'{"schema_version":1,"steps":' + b"[" * 200_000)
    elif how == "too large":
        os.truncate(path, 10**12)
    elif how == "a pipe":
        path.unlink()
        os.mkfifo(path)
    elif how == "a device":
        path.unlink()
        path.symlink_to("/dev/zero")
    elif how == "gone":
        path.unlink()


HOW = ["of another version", "cut off", "deep", "too large", "a pipe", "a device", "gone"]


class Silent:
    def __init__(self) -> None:
        self.steps: list[int] = []

    def scalars(self, values: dict[str, float], step: int) -> None:
        self.steps.append(step)

    def text(self, tag: str, markdown: str, step: int = 0) -> None: ...


def heard(window: Path) -> list[object]:
    """What each that reads findings makes of them, as far as it says whether it could."""
    run = window.parents[1]
    board = Silent()
    Trends(board, run, resumed_from=0)
    retention = Retention(window.parent, FINDINGS)
    (window / "host_0.1.pt.trace.json").write_text("{}")
    retention.make_room(Keep())
    (window / "host_0.1.pt.trace.json").unlink()
    (row,) = collect(run.parent)
    return [
        board.steps != [],
        retention._known[window.name].verdict is not None,
        account_of(window.parent, 100).spent_s > 0,
        row.verdict is not None,
        glance(Window(window)) is not None,
        findings_in(window, WindowReport) is not None,
        _report(window / FINDINGS)[0] is not None,
    ]


def test_all_who_read_findings_can(window: Path) -> None:
    assert heard(window) == [True] * 7


@pytest.mark.parametrize("how", HOW)
def test_all_who_read_findings_refuse_the_same(how: str, window: Path) -> None:
    spoil(window / FINDINGS, how)
    assert heard(window) == [False] * 7


@pytest.mark.parametrize("kind", [WindowReport, Glance])
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("of another version", "is of schema version 99, and this harness reads 1"),
        ("cut off", "is damaged"),
        ("deep", "is damaged"),
        ("too large", "more than"),
        ("a pipe", "it is a pipe, no regular file"),
        ("a device", "it is a device, no regular file"),
        ("gone", "cannot be read: No such file"),
    ],
)
def test_it_is_said_why(how: str, said: str, kind: type[WindowReport] | type[Glance], window: Path) -> None:
    spoil(window / FINDINGS, how)
    with pytest.raises(Unreadable, match=said):
        read_findings(window / FINDINGS, kind)


def test_findings_of_0_1_0_are_read(window: Path) -> None:
    """Which lacked what has come since: ranks, what passed over, who asked for the window."""
    path = window / FINDINGS
    found = json.loads(path.read_text())
    del found["ranks"]
    for name in ("passed_over", "trigger"):
        found["window"].pop(name, None)
    path.write_text(json.dumps(found | {"harness_version": "0.1.0"}))
    report = read_findings(path, WindowReport)
    assert (report.harness_version, report.ranks, report.window.passed_over) == ("0.1.0", None, {})
    assert heard(window) == [True] * 7
    assert msgspec.json.decode(path.read_bytes(), type=WindowReport) == report
