"""Steps with numbers that no job comes to, and steps that take no time: every way of showing them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.commands.compare import compare
from harness.commands.report import Grouping, report
from harness.logdir.find import find
from harness.trace import WindowReport, analyze, read
from tests.trace.corpus import GOOD

TRACES = Path(__file__).parents[1] / "traces"
OF_A_GPU = TRACES / "matmul_64.pt.trace.json.gz"


def written(path: Path, base: Path, **changes: Any) -> Path:
    """A real trace with its step spans renamed, or all of its times changed."""
    document = json.loads(gzip.decompress(base.read_bytes()))
    document.pop("harness", None)
    for count, event in enumerate(document["traceEvents"]):
        if str(event.get("name", "")).startswith("ProfilerStep#") and "digits" in changes:
            event["name"] = f"ProfilerStep#{changes['digits']}"
        if "dur" in event and "dur" in changes:
            event["dur"] = changes["dur"]
        if "ts" in event and changes.get("ts") is not None:
            event["ts"] = changes["ts"] + (count if changes.get("apart") else 0)
    path.write_text(json.dumps(document))
    return path


NUMBERS = {
    "20 digits": {"digits": "9" * 20},
    "5,000 digits": {"digits": "7" * 5000},
    "19 digits": {"digits": str(2**63)},
    "no digits of ours": {"digits": "٣٤"},
    "superscripts": {"digits": "²"},
    "zero length": {"dur": 0},
    "zero length at one time": {"dur": 0, "ts": 1000},
    "zero length, apart": {"dur": 0, "ts": 1000, "apart": True},
    "at one time": {"ts": 5},
    "negative": {"dur": -1},
}


@pytest.mark.parametrize("base", [GOOD, OF_A_GPU], ids=["good", "gpu"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_odd_steps_are_shown_in_every_way(
    kind: str, base: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = written(tmp_path / "host_0.1.pt.trace.json", base, **NUMBERS[kind])
    found = analyze(read(path))
    assert msgspec.json.decode(msgspec.json.encode(found), type=WindowReport) == found
    for format in ("table", "markdown", "json"):
        report(path, format=format)  # type: ignore[arg-type]
        report(path, step_ms=1e-9, group_by=Grouping.shape, format=format)  # type: ignore[arg-type]
        compare(path, path, format=format)  # type: ignore[arg-type]
        compare(path, GOOD, format=format)  # type: ignore[arg-type]
    assert b"nan" not in capsysbinary.readouterr().out.lower().replace(b"nanosecond", b"")


@pytest.mark.parametrize("base", [GOOD, OF_A_GPU], ids=["good", "gpu"])
@pytest.mark.parametrize("kind", NUMBERS)
def test_odd_steps_are_drawn_on_the_timeline(kind: str, base: Path, tmp_path: Path) -> None:
    from harness.timeline.prepare import prepare

    prepare(written(tmp_path / "host_0.1.pt.trace.json", base, **NUMBERS[kind]), tmp_path)


@pytest.mark.parametrize("kind", NUMBERS)
def test_odd_steps_of_several_ranks_are_read_together(kind: str, tmp_path: Path) -> None:
    window = tmp_path / "window_00000007"
    window.mkdir()
    traces = [*sorted(TRACES.glob("**/*_0.*pt.trace.json.gz"))[:1], GOOD, OF_A_GPU]
    for rank, base in enumerate(traces):
        written(window / f"host_{rank}.1.pt.trace.json", base, **NUMBERS[kind])
    report(window)
    report(window, format="json")


@pytest.mark.parametrize(
    "name", ["window_" + "9" * 20, "window_" + "1" * 200, "window_²", "window_٣", "window_", "window_-1", "window_1.5"]
)
def test_a_folder_whose_name_is_no_windows_is_none(name: str, tmp_path: Path) -> None:
    from harness.logdir.rows import collect
    from harness.logdir.scan import find_runs, windows
    from harness.publish.retention import Keep, Retention
    from harness.record.budget import account_of

    run = tmp_path / "logs" / "run"
    for folder in (name, "window_00000007"):
        (run / "profile" / folder).mkdir(parents=True)
        (run / "profile" / folder / GOOD.name).write_bytes(GOOD.read_bytes())
        (run / "profile" / folder / f"x_{'8' * 3000}"[:200]).touch()
    assert [path.name for path in windows(run)] == ["window_00000007"]
    assert [found.path for found in find_runs(tmp_path / "logs")] == [run]
    assert [row.windows for row in collect(tmp_path / "logs")] == [1]
    assert len(find(run).windows) == 1  # type: ignore[union-attr]
    account_of(run / "profile", 100)
    assert Retention(run / "profile", "window.json").make_room(Keep(bytes=1)) == []


@pytest.mark.parametrize("rank", ["9" * 20, "9" * 200, "²", "٣"])
def test_a_file_whose_rank_is_no_number_is_a_trace_all_the_same(rank: str, tmp_path: Path) -> None:
    window = tmp_path / "window_00000007"
    window.mkdir()
    (window / f"h_{rank}.1.pt.trace.json.gz").write_bytes(GOOD.read_bytes())
    (window / f"h_1.{'9' * 100}.pt.trace.json.gz").write_bytes(GOOD.read_bytes())
    assert find(window).report().totals.events  # type: ignore[union-attr]
