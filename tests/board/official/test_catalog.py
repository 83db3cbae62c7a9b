"""Which runs, spans and workers the plugin lists, and which files lie behind them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.board.official.catalog import Entry, entries
from harness.logdir.scan import Logdir, Scanner, pass_over
from tests.board.official.conftest import add_window


def listing(*logdirs: Path, names: tuple[str, ...] = ("",)) -> dict[str, Entry]:
    given = [Logdir(name, logdir) for name, logdir in zip(names, logdirs, strict=True)]
    return entries(given, Scanner(pass_over, bounded=True))


def listed(logdir: Path) -> dict[str, dict[str, list[str]]]:
    """Workers by span by run."""
    runs = listing(logdir)
    return {name: {span: sorted(files) for span, files in run.spans.items()} for name, run in runs.items()}


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"{}")
    return path


def test_a_runs_windows_are_the_spans_of_one_run_in_the_order_of_their_steps(tmp_path: Path) -> None:
    for step in (1000, 4, 120):
        add_window(tmp_path / "exp" / "run", step, "matmul_64", "matmul_64")
    assert listed(tmp_path) == {"exp/run": {span: ["host_0", "host_1"] for span in ("step 4", "step 120", "step 1000")}}
    assert list(listed(tmp_path)["exp/run"]) == ["step 4", "step 120", "step 1000"]


@pytest.mark.parametrize("below", ["", "profile", "profile/window_00000004"])
def test_a_run_its_windows_or_one_window_may_be_the_logdir(below: str, tmp_path: Path) -> None:
    add_window(tmp_path / "run", 4, "matmul_64")
    assert listed(tmp_path / "run" / below) == {".": {"step 4": ["host_0"]}}, "as TensorBoard's dashboards name it"


def test_traces_in_any_other_directory_are_a_run_with_a_span_for_each_file(tmp_path: Path) -> None:
    for name in ("a_0.20.pt.trace.json.gz", "a_0.3.pt.trace.json", "a_1.4.pt.trace.json", "b.pt.trace.json"):
        touch(tmp_path / "loose" / name)
    touch(tmp_path / "loose" / "notes.json")
    assert listed(tmp_path) == {"loose": {"1": ["a_0", "a_1"], "2": ["a_0"], "default": ["b"]}}
    spans = listing(tmp_path)["loose"].spans
    assert spans["1"]["a_0"].name == "a_0.3.pt.trace.json", "the time is a number"


def test_of_two_files_of_a_rank_in_a_window_the_newer_counts(tmp_path: Path) -> None:
    window = tmp_path / "run" / "profile" / "window_00000004"
    touch(window / "host_0.9.pt.trace.json")
    newer = touch(window / "host_0.10.pt.trace.json")
    assert listing(tmp_path)["run"].spans == {"step 4": {"host_0": newer}}


def test_ranks_are_in_the_order_of_their_numbers_those_of_the_newest_window_first(tmp_path: Path) -> None:
    for step, host, ranks in ((4, "old", 1), (8, "new", 11)):
        for rank in range(ranks):
            touch(tmp_path / "run" / "profile" / f"window_{step:08d}" / f"{host}_{rank}.1.pt.trace.json")
    run = listing(tmp_path)["run"]
    assert run.workers == [*(f"new_{rank}" for rank in range(11)), "old_0"]
    assert run.spans_of("old_0") == ["step 4"]


def test_nothing_outside_of_the_logdir_is_listed_wherever_links_lead(tmp_path: Path) -> None:
    outside, logdir = tmp_path / "outside", tmp_path / "logs"
    secret = touch(outside / "run" / "secret_0.1.pt.trace.json")
    inside = touch(logdir / "inside" / "a_0.1.pt.trace.json")
    (logdir / "folder").symlink_to(outside / "run")
    (logdir / "files").mkdir()
    (logdir / "files" / "b_0.1.pt.trace.json").symlink_to(secret)
    (logdir / "files" / "c_0.1.pt.trace.json").symlink_to(inside)
    (logdir / "loop").symlink_to(logdir)
    assert listed(logdir) == {"files": {"1": ["c_0"]}, "inside": {"1": ["a_0"]}}


def test_runs_of_several_logdirs_are_told_apart(tmp_path: Path) -> None:
    for name in ("one", "two"):
        add_window(tmp_path / name / "run", 4, "matmul_64")
    runs = listing(tmp_path / "one", tmp_path / "two", names=("a", "b"))
    assert list(runs) == ["a/run", "b/run"]
    assert [runs[name].spans["step 4"]["host_0"].parents[3].name for name in runs] == ["one", "two"]
