"""Uploads to a file system and to a real FTP server."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.publish.upload import Uploader, missing, upload

pytest.importorskip("fsspec")


def window(profile: Path, step: int, trace: bytes = b"trace") -> Path:
    folder = profile / f"window_{step:08d}"
    folder.mkdir(parents=True)
    (folder / "host_0.1.pt.trace.json.gz").write_bytes(trace)
    (folder / "window.json").write_bytes(b"{}")
    return folder


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a server on this machine, and the folder behind it."""
    servers = pytest.importorskip("pyftpdlib.servers")
    from pyftpdlib.authorizers import DummyAuthorizer
    from pyftpdlib.handlers import FTPHandler

    behind = tmp_path / "behind"
    behind.mkdir()
    authorizer = DummyAuthorizer()
    authorizer.add_user("user", "secret", str(behind), perm="elradfmwMT")

    class Handler(FTPHandler):  # type: ignore[misc]
        pass

    Handler.authorizer = authorizer
    server = servers.ThreadedFTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    host, port = server.socket.getsockname()
    yield f"ftp://user:secret@{host}:{port}/runs/a", behind
    server.close_all()


def wait_until(done: object, limit_s: float = 60.0) -> None:
    assert callable(done)
    deadline = time.monotonic() + limit_s
    while not done() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert done()


def test_a_window_arrives_whole_on_a_file_system(tmp_path: Path) -> None:
    found = window(tmp_path / "profile", 7, trace=b"x" * 10**6)
    address = f"file://{tmp_path / 'copy'}"
    assert missing([found], address) == [found]
    upload(found, address)
    assert tree(tmp_path / "copy" / found.name) == tree(found)
    assert missing([found], address) == []


def test_windows_arrive_on_an_ftp_server(tmp_path: Path, ftp: tuple[str, Path]) -> None:
    address, behind = ftp
    profile = tmp_path / "profile"
    window(profile, 7, trace=b"x" * 10**6)
    uploader = Uploader(profile, address)
    wait_until(lambda: (behind / "runs/a/window_00000007/window.json").exists())
    window(profile, 9)
    uploader.window_published()
    assert uploader.close(60)
    assert tree(behind / "runs" / "a") == tree(profile)


def test_an_address_that_is_away_is_tried_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.publish.upload.FIRST_PAUSE_S", 0.05)
    profile, copy = tmp_path / "profile", tmp_path / "copy"
    # A file where the folder should be.
    copy.write_text("in the way")
    window(profile, 7)
    said: list[str] = []
    uploader = Uploader(profile, f"file://{copy}", said.append)
    wait_until(lambda: said)
    copy.unlink()
    wait_until(lambda: (copy / "window_00000007/window.json").exists())
    assert uploader.close(60)
    assert [("not copied" in text, "again" in text) for text in said] == [(True, False), (False, True)]


def test_an_address_that_stays_away_holds_up_nobody(tmp_path: Path) -> None:
    profile, copy = tmp_path / "profile", tmp_path / "copy"
    copy.write_text("in the way")
    window(profile, 7)
    assert not Uploader(profile, f"file://{copy}").close(60)
    assert not Uploader(profile, "nosuchprotocol://x").close(60)


def test_what_one_process_has_not_copied_the_next_one_does_and_nothing_twice(tmp_path: Path) -> None:
    profile, copy = tmp_path / "profile", tmp_path / "copy"
    first, second = window(profile, 7), window(profile, 9)
    upload(first, f"file://{copy}")
    # Cut off before the findings.
    upload(second, f"file://{copy}")
    (copy / second.name / "window.json").unlink()
    (copy / first.name / "host_0.1.pt.trace.json.gz").write_bytes(b"not written again")
    assert Uploader(profile, f"file://{copy}").close(60)
    assert tree(copy / second.name) == tree(second)
    assert tree(copy / first.name)["host_0.1.pt.trace.json.gz"] == b"not written again"


def test_a_jobs_windows_are_copied_by_the_publisher(tmp_path: Path) -> None:
    from harness.record import Profiler, Schedule

    copy = tmp_path / "copy"
    schedule = Schedule(wait=2, warmup=1, active=1, repeat=2)
    with Profiler(tmp_path / "logs", "run", schedule, upload=f"file://{copy}") as profiler:
        for _ in range(10):
            profiler.step()
    assert tree(copy) == tree(tmp_path / "logs" / "run" / "profile")
    assert sorted(path.name for path in copy.iterdir()) == ["window_00000003", "window_00000007"]


def test_a_job_whose_address_is_away_says_so_and_loses_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from harness.record import Profiler, Schedule

    copy = tmp_path / "copy"
    copy.write_text("in the way")
    schedule = Schedule(wait=2, warmup=1, active=1, repeat=1)
    with Profiler(tmp_path / "logs", "run", schedule, upload=f"file://{copy}") as profiler:
        for _ in range(10):
            profiler.step()
    assert (tmp_path / "logs/run/profile/window_00000003/window.json").exists()
    assert any(text.startswith(f"windows are not copied to file://{copy} for now") for text in caplog.messages)


def test_uploading_loads_no_torch() -> None:
    program = "import sys, harness.publish.upload; print('torch' in sys.modules, 'fsspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
