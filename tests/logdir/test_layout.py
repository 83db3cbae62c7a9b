"""Names on disk: written and read by one module, and known as literals to no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.logdir.layout import TraceName, staging_root, step_of_window, trace_name, window_name
from harness.logdir.window import Window


@pytest.mark.parametrize("step", [0, 7, 120, 99_999_999, 10**9, 10**17])
def test_a_windows_name_tells_its_step(step: int) -> None:
    assert step_of_window(window_name(step)) == step
    assert len(window_name(step)) >= len("window_00000120")


@pytest.mark.parametrize("name", ["window", "window_", "window_x", "xwindow_1", "window_1x", "window_-1", "window_٣"])
def test_other_names_are_no_windows(name: str) -> None:
    assert step_of_window(name) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("host_0.170000003.pt.trace.json.gz", TraceName("host_0", 170000003)),
        ("host_12.pt.trace.json", TraceName("host_12", None)),
        ("a.b.rank3.9.pt.trace.json", TraceName("a.b.rank3", 9)),
        ("x.pt.trace.json", TraceName("x", None)),
        ("two\nlines_1.5.pt.trace.json", TraceName("two\nlines_1", 5)),
        ("host_1." + "9" * 30 + ".pt.trace.json", TraceName("host_1." + "9" * 30, None)),
        ("trace.json", None),
        ("host_0.1.pt.trace.json.tmp", None),
        ("host_0.1.pt.trace.json.gz.tmp", None),
    ],
)
def test_a_traces_name_tells_who_recorded_it_and_when(name: str, expected: TraceName | None) -> None:
    assert trace_name(name) == expected


@pytest.mark.parametrize(
    ("worker", "rank", "rest"),
    [
        ("host_0", 0, "host"),
        ("host_12", 12, "host"),
        ("ddp.rank1", 1, "ddp."),
        ("host", None, "host"),
        ("7", None, "7"),
    ],
)
def test_a_worker_ends_in_its_rank(worker: str, rank: int | None, rest: str) -> None:
    assert TraceName(worker, None).rank == rank
    assert TraceName(worker, None).of_all_ranks == rest


def test_staging_lies_beside_the_logdir(tmp_path: Path) -> None:
    assert staging_root(tmp_path / "logs" / "..") == tmp_path.parent / f".{tmp_path.name}.staging"
    assert staging_root(tmp_path / "logs") == tmp_path / ".logs.staging"


def test_the_newest_of_each_rank_is_read_the_lowest_first(tmp_path: Path) -> None:
    for name in ("h_1.5", "h_0.9", "h_0.10", "g_1.7", "odd"):
        (tmp_path / f"{name}.pt.trace.json").touch()
    alone = Window(tmp_path)
    assert alone.trace is not None
    assert alone.trace.name == "h_0.10.pt.trace.json"
    assert len(alone.others) == 4
    assert alone.ranks == ("h_1.5.pt.trace.json",), "another job's lies beside it"
    folder = tmp_path / "window_00000004"
    folder.mkdir()
    for path in tmp_path.glob("*.json"):
        path.rename(folder / path.name)
    assert Window(folder).ranks == ("g_1.7.pt.trace.json",), "one job's, whatever its hosts are called"
