"""Parser processes and what they have parsed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.board.official import pool
from harness.board.official import profiles as kept
from harness.board.official.pool import Pool
from harness.board.official.profiles import Profiles
from tests.board.official.conftest import trace
from tests.launch import children, wait_until


def parsers() -> list[int]:
    """Living parser processes of this one."""
    return children("harness.board.official.parser")


Open = Callable[..., Profiles]


@pytest.fixture
def opened() -> Iterator[Open]:
    pools: list[Pool] = []

    def make(most: int = 1) -> Profiles:
        pools.append(Pool(most))
        return Profiles(pools[-1])

    yield make
    for one in pools:
        one.close()


def copies(folder: Path, count: int) -> list[Path]:
    found = [folder / f"host_{number}.1.pt.trace.json.gz" for number in range(count)]
    for path in found:
        path.write_bytes(trace("matmul_64").read_bytes())
    return found


def test_many_files_are_parsed_by_few_processes(opened: Open, tmp_path: Path) -> None:
    profiles, most, over = opened(2), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.is_set():
            most = max(most, len(parsers()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    paths = copies(tmp_path, 12)
    for path in paths:
        profiles.make_ready(path, path.name, "1")
    answers = [profiles.get(path, path.name, "1") for path in paths]
    over.set()
    watcher.join()
    assert [answer.error for answer in answers] == [None] * 12
    assert [answer.profile.worker for answer in answers] == [path.name for path in paths]
    assert 1 <= most <= 2


def test_a_file_that_failed_while_it_was_written_is_tried_again_when_it_has_grown(opened: Open, tmp_path: Path) -> None:
    profiles = opened()
    (path,) = copies(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(b"")
    assert "is empty" in (profiles.get(path, "host_0", "1").error or "")
    assert profiles.get(path, "host_0", "1").error is not None, "nothing has changed"
    path.write_bytes(whole)
    assert profiles.get(path, "host_0", "1").error is None


def test_a_file_that_is_gone_is_said(opened: Open, tmp_path: Path) -> None:
    assert "No such file" in (opened().get(tmp_path / "gone.pt.trace.json", "a", "1").error or "")


def test_a_file_is_parsed_once_while_it_stays_in_memory(opened: Open, tmp_path: Path) -> None:
    profiles = opened()
    (path,) = copies(tmp_path, 1)
    assert profiles.get(path, "host_0", "1").profile is profiles.get(path, "host_0", "1").profile


def test_what_was_looked_at_longest_ago_is_forgotten_first(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 0)
    profiles = opened()
    paths = copies(tmp_path, 4)
    first = [profiles.get(path, "host_0", "1").profile for path in paths]
    assert profiles.get(paths[3], "host_0", "1").profile is first[3]
    assert profiles.get(paths[2], "host_0", "1").profile is first[2]
    assert profiles.get(paths[0], "host_0", "1").profile is not first[0]


def test_a_parser_that_dies_costs_its_file_and_not_the_next(opened: Open, tmp_path: Path) -> None:
    profiles = opened()
    first, second = copies(tmp_path, 2)
    assert profiles.get(first, "host_0", "1").error is None
    (child,) = parsers()
    os.kill(child, signal.SIGSTOP)
    answers: list[str | None] = []
    waiting = threading.Thread(target=lambda: answers.append(profiles.get(second, "host_0", "1").error))
    waiting.start()
    os.kill(child, signal.SIGKILL)
    waiting.join(30)
    assert answers == [None] or "its parser ended" in (answers[0] or "")
    wait_until(lambda: child not in parsers(), 10)
    third = tmp_path / "host_9.1.pt.trace.json.gz"
    third.write_bytes(first.read_bytes())
    assert profiles.get(third, "host_9", "1").error is None


def test_a_parser_that_does_not_come_to_an_end_is_ended_and_the_next_file_is_parsed(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profiles = opened()
    first, second, third = copies(tmp_path, 3)
    assert profiles.get(first, "host_0", "1").error is None
    (child,) = parsers()
    os.kill(child, signal.SIGSTOP)
    monkeypatch.setattr(pool, "LONGEST_S", 0.2)
    assert "took more than" in (profiles.get(second, "host_0", "1").error or "")
    monkeypatch.undo()
    assert profiles.get(third, "host_0", "1").error is None
    assert child not in parsers()
