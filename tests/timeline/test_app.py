"""What the timeline serves, what it refuses, and how often it prepares a file."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from tensorboard.backend.security_validator import SecurityValidatorMiddleware
from werkzeug.test import Client, TestResponse

from harness.errors import UsageError
from harness.timeline import links
from harness.timeline.app import TimelineApp, perfetto_version
from harness.timeline.cache import Cache
from harness.trace import analyze, read
from tests.launch import python
from tests.trace.conftest import recorded

MOUNT = "/data/plugin/windows/timeline/"
SECRET = "not for everyone"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    for name in ("lab5_cnn", "matmul_64", "matmul_512"):
        (folder / f"{name}.json.gz").write_bytes(recorded(name).read_bytes())
    (folder / "broken.json").write_text("this is no trace")
    (folder / "secret.json").write_text(SECRET)
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Client:
    def resolve(arguments: Mapping[str, str]) -> Path:
        name = arguments.get("file", "")
        if name not in ("lab5_cnn.json.gz", "broken.json", "gone.json"):
            raise UsageError(f"there is no {name}")
        return folder / name

    return Client(TimelineApp(resolve))


def get(client: Client, what: str, **headers: str) -> TestResponse:
    return client.get(MOUNT + what, headers=headers)


@pytest.mark.parametrize(
    ("path", "type"),
    [
        ("view.html", "text/html; charset=utf-8"),
        ("view.css", "text/css; charset=utf-8"),
        ("view.js", "text/javascript; charset=utf-8"),
        ("perfetto/index.html", "text/html; charset=utf-8"),
        ("perfetto/quiet.js", "text/javascript; charset=utf-8"),
        ("perfetto/{version}/frontend_bundle.js", "text/javascript; charset=utf-8"),
        ("perfetto/{version}/trace_processor.wasm", "application/wasm"),
        ("perfetto/{version}/trace_processor_memory64.wasm", "application/wasm"),
        ("perfetto/{version}/perfetto.css", "text/css; charset=utf-8"),
        ("perfetto/{version}/assets/Roboto-400.woff2", "font/woff2"),
        ("perfetto/{version}/assets/brand.png", "image/png"),
        ("perfetto/{version}/stdlib_docs.json", "application/json"),
    ],
)
def test_files_come_with_their_types(client: Client, path: str, type: str) -> None:
    with get(client, path.format(version=perfetto_version())) as answer:
        assert answer.status_code == 200
        assert answer.headers["Content-Type"] == type
        assert len(answer.data) == int(answer.headers["Content-Length"])


@pytest.mark.parametrize("path", ["view.html", "facts?file=lab5_cnn.json.gz", "trace?file=x", "nothing"])
def test_every_answer_lets_nothing_out(client: Client, path: str) -> None:
    with get(client, path) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in policy
    assert "connect-src 'self';" in policy
    assert "http" not in policy
    assert "*" not in policy


def test_tensorboard_finds_no_fault_with_the_answers(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    guarded = Client(SecurityValidatorMiddleware(client.application))
    for path in ("view.html", "perfetto/index.html", "view.js", "facts?file=lab5_cnn.json.gz", "nothing"):
        guarded.get(MOUNT + path).close()
    assert not caplog.records


def test_pages_hold_no_script_of_their_own(client: Client) -> None:
    for path in ("view.html", "perfetto/index.html"):
        with get(client, path) as answer:
            assert "<script>" not in answer.text
            assert "onload" not in answer.text


@pytest.mark.parametrize(
    "path",
    [
        "../secret.json",
        "%2e%2e/secret.json",
        "..%2fsecret.json",
        "perfetto/../../secret.json",
        "perfetto/{version}/../../../../../../../etc/passwd",
        "perfetto/{version}//etc/passwd",
        "/etc/passwd",
        "perfetto.html",
        "quiet.js",
        "app.py",
        "",
        "perfetto/",
        "view.html/",
        "facts/../trace",
    ],
)
def test_no_other_file_can_be_asked_for(client: Client, path: str) -> None:
    with get(client, path.format(version=perfetto_version())) as answer:
        assert answer.status_code == 404
        assert SECRET not in answer.text


@pytest.mark.parametrize(
    "name", ["secret.json", "../secret.json", "/etc/passwd", "lab5_cnn.json.gz/../secret.json", ""]
)
@pytest.mark.parametrize("what", ["facts", "trace"])
def test_what_the_host_does_not_resolve_is_not_served(client: Client, what: str, name: str) -> None:
    answer = client.get(MOUNT + what, query_string={"file": name})
    assert answer.status_code == 404
    assert answer.json == {"error": f"there is no {name}"}


def test_it_only_answers(client: Client) -> None:
    assert client.post(MOUNT + "view.html").status_code == 405
    with client.head(MOUNT + "view.html") as answer:
        assert (answer.status_code, answer.data) == (200, b"")


def test_a_trace_is_sent_compressed_to_those_that_take_it(client: Client) -> None:
    with get(client, "trace?file=lab5_cnn.json.gz", **{"Accept-Encoding": "gzip"}) as answer:
        packed = answer.data
        assert answer.headers["Content-Encoding"] == "gzip"
        assert int(answer.headers["Content-Length"]) == len(packed)
    with get(client, "trace?file=lab5_cnn.json.gz") as answer:
        assert "Content-Encoding" not in answer.headers
        assert answer.data == gzip.decompress(packed)


@pytest.mark.parametrize(
    ("name", "words"), [("broken.json", "is no trace but text"), ("gone.json", "cannot be read: No such file")]
)
def test_a_file_that_cannot_be_shown_says_why(client: Client, name: str, words: str) -> None:
    answer = get(client, f"facts?file={name}")
    assert answer.status_code == 404
    assert words in json.loads(answer.text)["error"]


def test_a_spot_that_is_not_there_is_a_note_and_the_trace_opens(client: Client) -> None:
    answer = get(client, "facts?file=lab5_cnn.json.gz&kernel=%3Cb%3Enone")
    assert answer.json is not None
    assert answer.json["spot"] is None
    assert answer.json["notes"] == ["the trace has no kernel <b>none"]


def test_links_of_a_report_point_to_slices(client: Client) -> None:
    report = analyze(read(recorded("lab5_cnn")))
    trace = read(recorded("lab5_cnn"))

    def spot(arguments: dict[str, str]) -> tuple[int, int]:
        found = client.get(MOUNT + "facts", query_string={"file": "lab5_cnn.json.gz", **arguments}).json
        assert found is not None
        return int(found["spot"]["ts"]), int(found["spot"]["dur"])

    slices = set(zip(trace.ts.tolist(), trace.dur.tolist(), strict=True))
    gap, kernel, step = report.gaps[0], report.kernels[0], report.steps[1]
    assert spot(links.gap(gap)) == (trace.start + round(gap.start_us * 1000), round(gap.duration_us * 1000))
    assert spot(links.gap(gap)) not in slices
    assert spot(links.kernel(kernel)) in slices
    assert spot(links.kernel(kernel))[1] == round(kernel.max_us * 1000)
    assert spot(links.step(step)) == (trace.start + round(step.start_us * 1000), round(step.host_us * 1000))
    assert {row.device_type for row in report.operators} == {"cpu", "device"}
    assert all(spot(links.operator(row)) in slices for row in report.operators)
    assert spot({"ts": "17", "dur": "3"}) == (17, 3)


def test_a_step_and_a_gap_are_told_from_spans_of_the_same_time(client: Client) -> None:
    report = analyze(read(recorded("lab5_cnn")))
    for arguments, category in ((links.step(report.steps[0]), "steps"), (links.gap(report.gaps[0]), "idle")):
        answer = client.get(MOUNT + "facts", query_string={"file": "lab5_cnn.json.gz", **arguments}).json
        assert answer is not None
        assert answer["spot"]["category"] == category


@pytest.mark.parametrize("arguments", [{"ts": "x"}, {"start_us": "nan"}, {"start_us": "1e400"}, {"ts": str(2**70)}])
def test_times_that_are_none_are_said(client: Client, arguments: dict[str, str]) -> None:
    answer = client.get(MOUNT + "facts", query_string={"file": "lab5_cnn.json.gz", **arguments})
    assert answer.json is not None
    assert answer.json["spot"] is None
    assert next(iter(arguments)) in answer.json["notes"][0]


def test_a_file_is_prepared_once_until_it_changes(folder: Path) -> None:
    cache = Cache()
    first = cache.prepared(folder / "matmul_64.json.gz")
    assert cache.prepared(folder / "matmul_64.json.gz") is first
    os.utime(folder / "matmul_64.json.gz", ns=(1, 1))
    again = cache.prepared(folder / "matmul_64.json.gz")
    assert again is not first
    assert again.facts == first.facts


def test_the_cache_is_bounded_and_keeps_what_was_asked_for_last(folder: Path) -> None:
    cache = Cache(max_bytes=1)
    first = cache.prepared(folder / "matmul_64.json.gz").path
    second = cache.prepared(folder / "matmul_512.json.gz").path
    assert not first.exists()
    assert second.exists()


def test_the_cache_goes_with_its_owner(folder: Path) -> None:
    cache = Cache()
    path = cache.prepared(folder / "matmul_64.json.gz").path
    del cache
    assert not path.exists()


def test_what_a_killed_server_left_goes_and_what_a_living_one_holds_stays(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living = Cache()
    code = "import os; from harness.timeline.cache import Cache; kept = Cache(); os.kill(os.getpid(), 9)"
    python("-c", code, cwd=tmp_path, TMPDIR=str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 2
    another = Cache()
    assert len(list(tmp_path.iterdir())) == 2
    assert all(cache.prepared(folder / "matmul_64.json.gz").path.exists() for cache in (living, another))


def test_a_preparation_that_is_killed_is_said_and_not_the_end(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, killed = Cache(), tmp_path / "killed"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    with monkeypatch.context() as change:
        change.setattr("sys.executable", str(killed))
        with pytest.raises(UsageError, match="ended by signal 9, perhaps for want of memory"):
            cache.prepared(folder / "matmul_64.json.gz")
    assert cache.prepared(folder / "matmul_64.json.gz").facts.slices


def test_a_preparation_that_does_not_come_to_an_end_is_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, endless = Cache(), tmp_path / "endless"
    endless.write_text("#!/bin/sh\nexec sleep 600\n")
    endless.chmod(0o755)
    with monkeypatch.context() as change:
        change.setattr("sys.executable", str(endless))
        change.setattr("harness.timeline.cache.LONGEST_S", 0.2)
        with pytest.raises(UsageError, match="took more than"):
            cache.prepared(folder / "matmul_64.json.gz")
    assert cache.prepared(folder / "matmul_64.json.gz").facts.slices


def test_a_copy_that_somebody_has_removed_is_made_again(folder: Path) -> None:
    cache = Cache()
    cache.prepared(folder / "matmul_64.json.gz").path.unlink()
    assert cache.prepared(folder / "matmul_64.json.gz").path.exists()


@pytest.mark.parametrize("what", ["a pipe", "a directory", "a device"])
def test_what_is_no_file_is_said_and_holds_no_other_up(what: str, tmp_path: Path, folder: Path) -> None:
    path = Path("/dev/zero") if what == "a device" else tmp_path / "trace.json"
    if what == "a pipe":
        os.mkfifo(path)
    elif what == "a directory":
        path.mkdir()
    cache = Cache()
    with pytest.raises(UsageError, match=what):
        cache.prepared(path)
    assert cache.prepared(folder / "matmul_64.json.gz").facts.slices


def test_the_traces_on_disk_stay_as_they_are(client: Client, folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert get(client, "facts?file=lab5_cnn.json.gz").status_code == 200
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
