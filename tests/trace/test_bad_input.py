"""Damaged, odd and foreign files: a report that says what it lacks, or an error of one line. Never a crash,
never a hang, never more memory than was allowed."""

import gzip
import json
import os
import random
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.trace import TraceError, WindowReport, analyze, read
from tests.trace.conftest import RECORDED, assert_identities
from tests.trace.corpus import ERROR, GOOD, SAME, SAME_WITHOUT_HEADER, SOME, Case, cases

SECONDS = 30  # each takes well under one on an idle machine
MEMORY = 768 * 2**20
MAX_JSON_BYTES = 64 * 2**20

READER = f"""
import resource, sys, msgspec
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
from harness.trace import TraceError, analyze, read
for line in sys.stdin:
    try:
        answer = {{"report": analyze(read(line.rstrip("\\n"), max_json_bytes={MAX_JSON_BYTES}))}}
    except TraceError as error:
        answer = {{"error": str(error)}}
    except BaseException as error:
        answer = {{"crash": f"{{type(error).__name__}}: {{error}}"}}
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\\n")
    sys.stdout.flush()
"""


class Answer(msgspec.Struct):
    report: WindowReport | None = None
    error: str = ""
    crash: str = ""


class Reader:
    """A process that reads one file after the other within MEMORY, and is given SECONDS for each."""

    def __init__(self) -> None:
        self._process = self._started()

    def _started(self) -> "subprocess.Popen[bytes]":
        alone = os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", READER]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=alone)

    def ask(self, path: Path) -> Answer:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{path}\n".encode())
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if ready else b""
        if not line:
            self.close()
            self._process = self._started()
            return Answer(crash="died" if ready else f"took more than {SECONDS} s")
        return msgspec.json.decode(line, type=Answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.close()


def comparable(report: WindowReport) -> Any:
    """All findings, without what tells of the file rather than of the window."""
    window = msgspec.structs.replace(report.window, warnings=[])
    totals = msgspec.structs.replace(report.totals, file_bytes=0, json_bytes=0)
    return msgspec.to_builtins(msgspec.structs.replace(report, source="", window=window, totals=totals))


CASES = cases()
GOOD_REPORT = analyze(read(GOOD))


def test_the_corpus_is_large_and_its_names_are_unique():
    assert len({case.name for case in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_damaged_file_is_read_as_far_as_it_goes_or_refused_in_one_line(case: Case, reader: Reader, tmp_path: Path):
    path = tmp_path / case.name
    path.write_bytes(case.data)
    answer = reader.ask(path)
    assert answer.crash == ""
    if case.outcome == ERROR:
        assert case.says in answer.error
        assert answer.error.startswith(f"{path}: ")
        assert "\n" not in answer.error
        return
    assert answer.error == ""
    report = answer.report
    assert report is not None
    assert_identities(report)
    assert not case.says or any(case.says in warning for warning in report.window.warnings), report.window.warnings
    if case.outcome in (SAME, SAME_WITHOUT_HEADER):
        headless = {"devices", "roofline"} if case.outcome == SAME_WITHOUT_HEADER else set()
        ours, good = comparable(report), comparable(GOOD_REPORT)
        assert {key: ours[key] for key in ours.keys() - headless} == {key: good[key] for key in good.keys() - headless}
    elif case.outcome == SOME:
        assert report.window.lost_events > 0
    else:
        assert report.window.lost_events == case.outcome
    if report.window.lost_events:
        assert any("in no number" in warning for warning in report.window.warnings)


def test_what_is_no_regular_file_is_refused_at_once(reader: Reader, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(tmp_path)  # a socket's address is short
        listener.bind("socket")
        for name, what in (("pipe", "a pipe"), ("", "a directory"), ("missing", "No such file"), ("socket", "read")):
            answer = reader.ask(tmp_path / name)
            assert what in answer.error
            assert "\n" not in answer.error
    assert "a device" in reader.ask(Path("/dev/zero")).error


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path):
    path = tmp_path / "secret.json"
    path.write_bytes(b"{}")
    path.chmod(0)
    with pytest.raises(TraceError, match="Permission denied"):
        read(path)


def test_the_limit_is_the_callers(tmp_path: Path):
    size = len(gzip.decompress(GOOD.read_bytes()))
    assert len(read(GOOD, max_json_bytes=size)) > 0
    with pytest.raises(TraceError, match="limit"):
        read(GOOD, max_json_bytes=size - 1)
    (tmp_path / "plain.json").write_bytes(gzip.decompress(GOOD.read_bytes()))
    with pytest.raises(TraceError, match="limit"):
        read(tmp_path / "plain.json", max_json_bytes=size - 1)


TEXT = gzip.decompress(GOOD.read_bytes())
DOCUMENT = json.loads(TEXT)
EVENTS = len(DOCUMENT["traceEvents"])


def _report(data: bytes, folder: Path) -> WindowReport | None:
    """The report of these bytes as a file; None where they are refused as no trace."""
    path = folder / "mutated"
    path.write_bytes(data)
    try:
        report = analyze(read(path, max_json_bytes=MAX_JSON_BYTES))
    except TraceError:
        return None
    assert_identities(report)
    return report


fuzzing = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
places = st.integers(0, len(TEXT) - 1)


@fuzzing
@given(places)
def test_cut_anywhere_a_file_gives_all_whole_events_before_the_cut(tmp_path: Path, place: int):
    report = _report(TEXT[:place], tmp_path)
    begun = len(re.findall(rb'\n  \{\n    "[a-z]+":', TEXT[:place]))
    if report is None:
        assert begun <= 1
        return
    assert sum(report.categories.values()) + report.window.lost_events == begun
    assert report.window.lost_events <= 1
    assert any("ends before" in warning for warning in report.window.warnings) or place > TEXT.rindex(b"]")


@fuzzing
@given(st.data())
def test_cut_anywhere_a_gzip_file_gives_all_whole_events_before_the_cut(tmp_path: Path, data: st.DataObject):
    whole = GOOD.read_bytes()
    report = _report(whole[: data.draw(st.integers(1, len(whole) - 1))], tmp_path)
    if report is not None:
        assert report.window.lost_events <= 1
        assert any("cut off" in warning for warning in report.window.warnings)


odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.lists(st.integers(-5, 5), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@fuzzing
@given(st.lists(st.tuples(st.integers(0, EVENTS - 1), st.booleans(), st.integers(0, 30), odd_values), max_size=6))
def test_no_value_in_place_of_another_makes_reading_crash(tmp_path: Path, swaps: list[tuple[int, bool, int, Any]]):
    document = json.loads(TEXT)
    for place, of_arguments, key, value in swaps:
        event = document["traceEvents"][place]
        target = event["args"] if of_arguments and isinstance(event.get("args"), dict) else event
        if target:
            target[sorted(target)[key % len(target)]] = value
    report = _report(json.dumps(document).encode(), tmp_path)
    assert report is not None
    assert sum(report.categories.values()) + report.window.lost_events >= EVENTS
    assert report.window.lost_events <= len(swaps)


@fuzzing
@given(st.lists(st.tuples(st.integers(0, EVENTS - 1), st.integers(0, EVENTS - 1)), max_size=20))
def test_arguments_of_the_wrong_event_break_no_identity(tmp_path: Path, pairs: list[tuple[int, int]]):
    document = json.loads(TEXT)
    events = document["traceEvents"]
    for one, other in pairs:
        for key in ("ts", "dur", "args", "tid"):
            if key in events[one] and key in events[other]:
                events[one][key], events[other][key] = events[other][key], events[one][key]
    assert _report(json.dumps(document).encode(), tmp_path) is not None


@pytest.mark.parametrize("path", [p for p in RECORDED if p.stat().st_size < 60_000], ids=lambda p: p.name.split(".")[0])
def test_the_order_of_events_in_the_file_does_not_change_the_findings(path: Path, tmp_path: Path):
    document = json.loads(gzip.decompress(path.read_bytes()))
    random.Random(1).shuffle(document["traceEvents"])
    shuffled = tmp_path / "shuffled.json"
    shuffled.write_text(json.dumps(document))
    assert comparable(analyze(read(shuffled))) == comparable(analyze(read(path)))
