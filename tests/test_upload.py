"""Uploads to a file system and to a real FTP server."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.credentials import has_secret, masked
from harness.publish.upload import Uploader, missing, upload
from tests.launch import TINY, Ended, Launcher, expect_usage_error, window_every

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
    from pyftpdlib.ioloop import IOLoop

    behind = tmp_path / "behind"
    behind.mkdir()
    authorizer = DummyAuthorizer()
    authorizer.add_user("user", "secret", str(behind), perm="elradfmwMT")

    class Handler(FTPHandler):  # type: ignore[misc]
        pass

    Handler.authorizer = authorizer

    # The loop and the event that all servers of a process share end with the first of them.
    class Server(servers.ThreadedFTPServer):  # type: ignore[misc, name-defined]
        _exit = threading.Event()

    server = Server(("127.0.0.1", 0), Handler, ioloop=IOLoop())
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    host, port = server.socket.getsockname()
    yield f"ftp://{host}:{port}/runs/a", behind
    server.close_all()


LOGIN = {"FSSPEC_FTP_USERNAME": "user", "FSSPEC_FTP_PASSWORD": "secret"}
"""As fsspec takes it from the environment."""


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process has it, which has imported fsspec before."""
    import fsspec.config

    monkeypatch.setitem(fsspec.config.conf, "ftp", {"username": "user", "password": "secret"})


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


@pytest.mark.usefixtures("login")
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


JOB = (*(text for text in TINY if text != "profiler=none"), *window_every(1, 1, 1), "profiler.repeat=1")


@pytest.mark.parametrize("how", ["environment", "file"])
def test_a_jobs_windows_are_copied_with_the_credentials_of_fsspec_which_nothing_keeps(
    how: str, ftp: tuple[str, Path], harness: Launcher, logdir: Path, tmp_path: Path
) -> None:
    address, behind = ftp
    (tmp_path / "fsspec").mkdir()
    env = LOGIN
    if how == "file":
        (tmp_path / "fsspec" / "ftp.json").write_text('{"ftp": {"username": "user", "password": "secret"}}')
        env = {"FSSPEC_CONFIG_DIR": str(tmp_path / "fsspec")}
    done = harness.run("train", *JOB, f"profiler.upload={address}", f"logdir={logdir}", env=env)
    assert done.status == 0, done.text
    (run,) = logdir.glob("*/*")
    assert tree(behind / "runs" / "a") == tree(run / "profile")
    assert not any(b"secret" in data for data in tree(run).values())


SECRET = "s3cr3tW0rd"
ADDRESSES = (
    f"ftp://user:{SECRET}@127.0.0.1:1/runs",
    f"simplecache::ftp://user:{SECRET}@127.0.0.1:1/runs",
    f"ftp://user:{SECRET}/with@slash@127.0.0.1:1/runs",
    f"ftp://:{SECRET}@127.0.0.1:1/runs",
    f"https://account.blob/runs?sv=1&sig={SECRET}",
    f"https://host/runs?token={SECRET}",
)


def keeps_nothing(done: Ended, folder: Path) -> None:
    assert SECRET not in done.text
    assert not any(SECRET.encode() in data for data in tree(folder).values())


@pytest.mark.parametrize(
    ("way", "address"),
    [
        *(("override", address) for address in ADDRESSES),
        *((way, ADDRESSES[0]) for way in ("environment", "sweep", "file")),
    ],
)
def test_an_address_with_a_secret_is_refused_and_not_repeated(
    way: str, address: str, harness: Launcher, logdir: Path, tmp_path: Path
) -> None:
    configuration = tmp_path / "configuration" / "experiment"
    configuration.mkdir(parents=True)
    given = {
        "override": [f"profiler.upload='{address}'"],
        "environment": ["profiler.upload=${oc.env:UPLOAD}"],
        "sweep": ["-m", "seed=1,2", f"profiler.upload='{address}'"],
        "file": ["--config-dir", str(configuration.parent), "experiment=mine"],
    }[way]
    if way == "file":
        text = f"# @package _global_\nprofiler:\n  upload: '{address}'\n"
        (configuration / "mine.yaml").write_text(text)
    done = harness.run("train", *given, *JOB, f"logdir={logdir}", env={"UPLOAD": address})
    expect_usage_error(done, "profiler.upload", "holds a password or a token", "FSSPEC_FTP_PASSWORD", logdir=logdir)
    keeps_nothing(done, logdir)


def test_a_profiler_of_ones_own_refuses_it_too(tmp_path: Path) -> None:
    from harness.record import Profiler, Schedule

    for address in ADDRESSES:
        with pytest.raises(ValueError, match="holds a password or a token") as raised:
            Profiler(tmp_path / "logs", "run", Schedule(wait=2, warmup=1, active=1), upload=address)
        assert SECRET not in str(raised.value)
    assert tree(tmp_path) == {}


def test_what_the_environment_holds_is_named_and_not_written(harness: Launcher, logdir: Path) -> None:
    overrides = ("model._target_=noted.Net", "+model.name=${oc.env:NOTE}", f"logdir={logdir}")
    done = harness.run("train", *TINY, *overrides, env={"NOTE": SECRET})
    assert done.status == 0, done.text
    (run,) = logdir.glob("*/*")
    keeps_nothing(done, logdir)
    assert any(b"oc.env:NOTE" in data for name, data in tree(run).items() if "tfevents" in name)


def test_a_library_that_names_an_address_in_its_error_is_masked_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of 0.1.0 may still wait in staging with one."""
    address = ADDRESSES[0]

    def fails(*_: object) -> list[Path]:
        raise OSError(f"no route to {address}")

    monkeypatch.setattr("harness.publish.upload.missing", fails)
    window(tmp_path / "profile", 7)
    said: list[str] = []
    assert not Uploader(tmp_path / "profile", address, said.append).close(60)
    assert len(said) == 1
    assert SECRET not in said[0]
    assert said[0].count("ftp://user:***@127.0.0.1:1/runs") == 2


def test_a_run_whose_override_lost_its_secret_says_so(harness: Launcher, logdir: Path, tmp_path: Path) -> None:
    done = harness.run("train", *TINY, f"logdir={logdir}")
    assert done.status == 0, done.text
    (run,) = logdir.glob("*/*")

    def holds(address: str) -> None:
        """As a run of 0.1.0 has it."""
        manifest = json.loads((run / "run.json").read_text())
        manifest |= {"overrides": [f"profiler.upload={address}"], "configuration": None}
        (run / "run.json").write_text(json.dumps(manifest))
        (run / ".hydra" / "overrides.yaml").write_text(f"- profiler.upload={address}\n")

    for lost in ("ftp://user:***@host/runs", "https://host/runs?sig=***"):
        holds(lost)
        expect_usage_error(harness.run("train", f"resume={run}", cwd=tmp_path), "has lost its secret")
    holds(ADDRESSES[0])
    done = harness.run("train", f"resume={run}", cwd=tmp_path)
    expect_usage_error(done, "profiler.upload: its address holds a password")
    assert SECRET not in done.text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("s3://bucket/folder", None),
        ("sftp://user@host/folder", None),
        ("http://host:8080/a@b", None),
        ("ftp://u:${oc.env:PW}@h/x", None),
        ("abfs://container@account.dfs/x?versionId=3", None),
        ("copied to ftp://u:p@h/x: no route", "copied to ftp://u:***@h/x: no route"),
        ("GET https://h/x?X-Amz-Signature=abc&X-Amz-Expires=9", "GET https://h/x?X-Amz-Signature=***&X-Amz-Expires=9"),
    ],
)
def test_what_is_masked_and_what_is_not(text: str, written: str | None) -> None:
    assert masked(text) == (written or text)
    assert has_secret(text) == (written is not None)
