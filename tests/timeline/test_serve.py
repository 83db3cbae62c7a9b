"""``harness timeline`` as a process."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.launch import Command, Launcher, expect_usage_error, wait_until
from tests.trace.conftest import recorded

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/timeline/view\.html\?file=\S+")


def started(harness: Launcher, *arguments: str) -> tuple[Command, list[str]]:
    command = harness.start("timeline", *arguments, "--no-open")
    wait_until(lambda: "Ctrl-C" in command.text or not command.running, 60, lambda: command.text)
    return command, ADDRESS.findall(command.text)


def facts(address: str) -> dict[str, object]:
    with urllib.request.urlopen(address.replace("view.html", "facts"), timeout=60) as answer:
        return dict(json.load(answer))


def run_of(folder: Path) -> Path:
    for step, name in ((3, "matmul_64"), (9, "matmul_512")):
        window = folder / "profile" / f"window_{step:08d}"
        window.mkdir(parents=True)
        (window / f"host_0.1.{recorded(name).name.partition('.')[2]}").write_bytes(recorded(name).read_bytes())
    return folder


def test_a_trace_is_served_until_ctrl_c(harness: Launcher) -> None:
    command, addresses = started(harness, str(recorded("matmul_64")))
    assert len(addresses) == 1
    assert facts(addresses[0])["title"] == recorded("matmul_64").name
    foreign = urllib.request.Request(addresses[0], headers={"Host": "evil.example:80"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(foreign, timeout=60)
    assert refused.value.code == 403
    command.signal(signal.SIGINT)
    assert command.wait().status == 0
    assert "Traceback" not in command.text


def test_a_run_opens_its_newest_window_or_the_one_that_is_asked_for(harness: Launcher, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    slices = [facts(started(harness, str(run), *more)[1][0])["file_slices"] for more in ([], ["--window", "3"])]
    assert slices == [67, 57]


def test_a_window_of_several_ranks_gives_an_address_each(harness: Launcher, tmp_path: Path) -> None:
    for rank in (0, 1):
        trace = recorded(f"ddp_straggler_rank1.rank{rank}")
        (tmp_path / f"host_{rank}.1.pt.trace.json.gz").write_bytes(trace.read_bytes())
    _, addresses = started(harness, str(tmp_path))
    assert [facts(address)["title"] for address in addresses] == [f"host_{i}.1.pt.trace.json.gz" for i in (0, 1)]


def test_what_cannot_be_shown_is_a_usage_error(harness: Launcher, tmp_path: Path) -> None:
    expect_usage_error(harness.run("timeline", str(tmp_path / "none")), "does not exist")
    expect_usage_error(harness.run("timeline", str(tmp_path)), "holds no trace")
    (tmp_path / "notes.json").write_text("this is no trace")
    expect_usage_error(harness.run("timeline", str(tmp_path / "notes.json"), "--no-open"), "is no trace but text")
    expect_usage_error(harness.run("timeline", str(recorded("matmul_64")), "--window", "3"), "leave it out")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        expect_usage_error(harness.run("timeline", str(recorded("matmul_64")), "--port", port), port, "another --port")
