"""What the Windows tab is told of runs and windows, against the findings that it comes from."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from harness.board.events.points import Points
from harness.board.tab.assets import bundle, curves_only
from harness.report.sections.comparison import trend
from harness.report.units import duration
from harness.report.words import straggler_sentence
from harness.trace import WindowReport, read
from harness.trace.compare import compare
from harness.trace.measure.memory import memory_over_time
from tests.board.tab import layout
from tests.board.tab.conftest import Tab
from tests.launch import python, wait_until

pytestmark = pytest.mark.xdist_group("board")


def findings(logs: Path, run: str, step: int) -> WindowReport:
    path = logs / run / "profile" / f"window_{step:08d}" / "window.json"
    return msgspec.json.decode(path.read_bytes(), type=WindowReport)


def test_runs_come_newest_first_each_with_its_newest_window(tab: Tab, logs: Path) -> None:
    runs = tab.get("runs")["runs"]
    assert [run["id"] for run in runs] == ["new/run", "gpt/long", "cnn/short", "ddp/two", "own/loop"]
    long = next(run for run in runs if run["id"] == "gpt/long")
    report = findings(logs, "gpt/long", 26000)
    assert (long["windows"], long["status"], long["newest"]["step"]) == (130, "completed", 26000)
    assert long["newest"]["label"] == report.verdict.label
    assert long["newest"]["step_us"] == report.step_time.unprofiled_median_us
    assert long["newest"]["busy"] == report.device[0].busy_fraction
    assert long["newest"]["cost_us"] == report.window.cost_us


def test_a_run_without_a_window_says_where_the_first_one_comes(tab: Tab) -> None:
    run = tab.get("runs")["runs"][0]
    assert (run["windows"], run["newest"], run["first_window"], run["step"]) == (0, None, 200, 40)


def test_windows_of_a_loop_of_ones_own_are_there_without_a_manifest(tab: Tab) -> None:
    run = tab.get("runs")["runs"][-1]
    assert (run["id"], run["windows"], run["status"], run["error"]) == ("own/loop", 1, None, None)


def test_a_damaged_manifest_is_said_and_its_windows_stay(tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    layout.window(tmp_path / "a" / "b", 1, "matmul_64")
    (tmp_path / "a" / "b" / "run.json").write_text("{")
    (run,) = tab_on(str(tmp_path)).get("runs")["runs"]
    assert run["windows"] == 1
    assert "run.json" in run["error"]


def test_the_list_is_paged_from_the_newest_window_on(tab: Tab) -> None:
    first = tab.get("list", run="gpt/long")
    steps = [window["step"] for window in first["windows"]]
    assert (first["total"], first["older"], len(steps)) == (130, 30, 100)
    second = tab.get("list", run="gpt/long", before=str(steps[-1]))
    assert second["older"] == 0
    assert steps + [window["step"] for window in second["windows"]] == list(range(26000, 0, -200))


@pytest.mark.parametrize(("run", "outcomes"), [("gpt/long", {"same"}), ("cnn/short", {"more"})])
def test_each_window_of_the_list_has_its_change_as_a_comparison_says(
    run: str, outcomes: set[str], tab: Tab, logs: Path
) -> None:
    pages = [tab.get("list", run=run)]
    while pages[-1]["older"]:
        pages.append(tab.get("list", run=run, before=str(pages[-1]["windows"][-1]["step"])))
    told = [pair for page in pages for pair in zip(page["windows"], page["changes"], strict=True)]
    assert told[-1][1] == "", "the first window of the run"
    found = set()
    for (now, change), (then, _) in pairwise(told):
        both = compare(*([findings(logs, run, one["step"])] for one in (then, now)))
        row = next(row for row in both.rows if row.name == "step")
        assert change == trend(row)._asdict()
        found.add(row.outcome)
    assert found == outcomes


def test_curves_are_those_that_stand_in_tensorboard(tab: Tab, logs: Path) -> None:
    life = tab.get("life", run="gpt/long")
    points = Points()
    for place, step in enumerate(life["steps"]):
        scalars = points.take(findings(logs, "gpt/long", step), step)
        assert {tag: values[place] for tag, values in life["series"].items() if values[place] is not None} == scalars
    assert life["steps"] == list(range(200, 26200, 200))
    verdicts = [(change["step"], change["label"]) for change in life["changes"] if change["label"]]
    assert verdicts == [(9400, "input-bound"), (14600, "overhead-bound")]


def test_of_plotlys_bundle_only_the_curves_are_started(tab: Tab) -> None:
    whole = bundle()
    short = curves_only(whole)
    assert ".register([])" in short
    assert ".register([])" not in whole
    assert 0 < len(whole) - len(short) < 1000, "a list of names"
    assert curves_only("of another form") == "of another form"
    assert tab.ask("plotly.js").data.decode() == short


def test_a_window_that_is_published_appears_in_all_lists(tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    run = tmp_path / "a" / "b"
    layout.manifest(run)
    layout.window(run, 10, "matmul_64")
    tab = tab_on(str(tmp_path))
    assert tab.get("life", run="a/b")["steps"] == [10]
    tag = tab.ask("runs").headers["ETag"]
    again = tab.ask("runs", headers={"If-None-Match": tag})
    assert again.status_code == 304
    assert again.headers["Content-Type"] == "application/json", "TensorBoard warns of an answer without"
    layout.window(run, 20, "matmul_4096")
    assert [one["step"] for one in tab.get("list", run="a/b")["windows"]] == [20, 10]
    life = tab.get("life", run="a/b")
    assert (life["steps"], life["labels"]) == ([10, 20], ["overhead-bound", "compute-bound"])
    assert {len(values) for values in life["series"].values()} == {2}
    fresh = tab.ask("runs", headers={"If-None-Match": tag})
    assert fresh.status_code == 200
    assert fresh.json["runs"][0]["newest"]["step"] == 20


@pytest.mark.parametrize("trace", ["lab5_cnn_mem", "eager_transformer_mem", "matmul_512", "ddp_straggler_rank1.rank0"])
def test_a_windows_tables_hold_what_its_findings_say(trace: str, tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    layout.window(tmp_path / "a" / "b", 5, trace)
    report = findings(tmp_path, "a/b", 5)
    page = tab_on(str(tmp_path)).get("window", run="a/b", window="newest")

    def column(table: str, title: str) -> list[float]:
        found = page["tables"][table]
        place = [one["title"] for one in found["columns"]].index(title)
        return [row[place] for row in found["rows"]]

    cpu = [row for row in report.operators if row.device_type == "cpu"]
    assert sorted(column("operators", "self CPU")) == sorted(row.self_cpu_time_us for row in cpu)
    assert sum(column("operators", "self CPU")) == pytest.approx(report.totals.cpu_time_us)
    assert column("operators", "self device") == sorted((r.self_device_time_us for r in cpu), reverse=True)
    assert column("kernels", "total") == sorted((row.total_us for row in report.kernels), reverse=True)
    assert sum(column("kernels", "share")) == pytest.approx(1.0)
    assert len(page["tables"]["steps"]["rows"]) == len(report.steps)
    for one, bar in zip(report.device, page["bars"], strict=False):
        assert sum(part["us"] for part in bar["parts"]) == pytest.approx(one.span_us)
    assert (page["tables"]["operators_by_shape"] is not None) == bool(report.operators_by_shape)
    assert (page["tables"]["memory"] is not None) == (report.memory is not None)
    assert page["sections"]["verdict"][0]["title"]["text"].startswith(report.verdict.label)


def test_neighbours_and_files_of_a_window(tab: Tab) -> None:
    page = tab.get("window", run="cnn/short", window="window_00000200")
    assert (page["previous"], page["next"]) == ("window_00000100", "window_00000300")
    assert [file["name"] for file in page["files"]] == [page["source"]]
    assert tab.get("window", run="gpt/long", window="window_00000200")["files"] == []


def test_memory_over_time_reaches_the_peak_that_the_findings_tell(tab: Tab, logs: Path) -> None:
    report = findings(logs, "cnn/short", 100)
    curves = tab.get("memory", run="cnn/short", window="window_00000100")
    assert report.memory is not None
    assert curves[0]["device_type"] == "device"
    assert max(curves[0]["allocated_bytes"]) == report.memory.peak_allocated_bytes
    assert tab.get("memory", run="cnn/short", window="window_00000200") == []


def test_memory_over_time_keeps_its_peaks_with_few_points() -> None:
    trace = read(layout.recorded("lab5_cnn_mem"))
    whole, short = memory_over_time(trace, 10**9)[0], memory_over_time(trace, 20)[0]
    assert len(short.time_us) == 20 < len(whole.time_us)
    assert max(short.allocated_bytes) == max(whole.allocated_bytes)
    assert short.time_us == sorted(short.time_us)


def test_ranks_stand_side_by_side_as_the_findings_across_them_tell(tab: Tab, logs: Path) -> None:
    page = tab.get("window", run="ddp/two", window="newest")
    found = findings(logs, "ddp/two", 400).ranks
    assert found is not None
    assert found.straggler is not None
    assert page["untold"] == []
    assert page["straggler"] == straggler_sentence(found.straggler)
    assert page["straggler"].startswith("Rank 1 on host is late")
    side_by_side = page["sections"]["ranks"][0]
    assert side_by_side["title"] == "Ranks"
    titles = [column["title"] for column in side_by_side["blocks"][0]["columns"]]
    waiting = [row[titles.index("waiting")] for row in side_by_side["blocks"][0]["rows"]]
    assert waiting == [duration(rank.waiting_us or 0.0) for rank in found.ranks]
    alone = tab.get("window", run="cnn/short", window="newest")
    assert (alone["straggler"], alone["sections"]["ranks"], alone["untold"]) == (None, [], [])


def test_ranks_that_findings_do_not_tell_of_are_analyzed_each_from_its_own_trace(tab: Tab) -> None:
    page = tab.get("window", run="ddp/two", window="window_00000200")
    files = [file["name"] for file in page["files"]]
    assert (page["untold"], page["sections"]["ranks"], page["straggler"]) == (files, [], None)
    ranks = [tab.get("rank", run="ddp/two", window="window_00000200", file=file) for file in files]
    for rank, name in zip(ranks, ("ddp_straggler_rank1.rank0", "ddp_straggler_rank1.rank1"), strict=True):
        report = layout.report(name)
        assert (rank["rank"], rank["label"]) == (report.rank, report.verdict.label)
        assert rank["idle_us"] == report.device[0].idle_us
    assert ranks[1]["idle_us"] > 10 * ranks[0]["idle_us"], "rank 1 is the one that is late"


def test_a_comparison_ranks_what_grew_by_its_share_of_the_step(tab: Tab, logs: Path) -> None:
    both = {"before_run": "cnn/short", "run": "cnn/short"}
    found = tab.get("compare", **both, before_window="window_00000200", window="window_00000300")
    before = findings(logs, "cnn/short", 200)
    assert found["unprofiled"] is True
    assert found["after"]["step_us"] == pytest.approx(1.5 * found["before"]["step_us"])
    for rows in found["groups"].values():
        assert all(row["ratio"] == pytest.approx(1.5) for row in rows)
        assert [row["change"] for row in rows] == sorted((row["change"] for row in rows), reverse=True)
    largest = found["groups"]["kernels"][0]
    kernel = max(before.kernels, key=lambda one: one.total_us)
    assert largest["name"] == kernel.name
    step = before.step_time.profiled_median_us
    assert step is not None
    assert largest["share"] == pytest.approx(0.5 * kernel.total_us / before.window.steps / step)


def test_two_runs_are_compared_and_equal_ones_differ_in_nothing(tab: Tab) -> None:
    found = tab.get("compare", before_run="cnn/short", before_window="newest", run="gpt/long", window="newest")
    assert (found["before"]["run"], found["after"]["run"]) == ("cnn/short", "gpt/long")
    gone = next(row for row in found["groups"]["kernels"] if row["name"].startswith("Memcpy HtoD"))
    assert gone["change"] < 0
    same = tab.get("compare", before_run="cnn/short", before_window="newest", run="cnn/short", window="newest")
    assert (same["groups"], same["largest"]) == ({}, None)


def test_the_raw_trace_comes_as_it_lies_on_disk(tab: Tab, logs: Path) -> None:
    (path,) = (logs / "cnn/short/profile/window_00000100").glob("*.gz")
    answer = tab.ask("trace", run="cnn/short", window="window_00000100")
    assert answer.data == path.read_bytes()
    assert answer.headers["Content-Length"] == str(path.stat().st_size)
    assert answer.headers["Content-Disposition"].startswith("attachment")
    assert "keep" in tab.refused("trace", run="gpt/long", window="window_00000200")


@pytest.mark.parametrize(
    ("spec", "ids"),
    [
        ("left:{a},right:{b}", {"left/x/1", "right/x/1"}),
        ("{a},{b}", {"a/x/1", "b/x/1"}),
        ("{a}/x/1", {"."}),
        ("one:{a}/x/1", {"one"}),
    ],
    ids=["named", "unnamed", "a run", "a named run"],
)
def test_several_logdirs_and_a_run_itself(spec: str, ids: set[str], tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    for name in ("a", "b"):
        layout.manifest(tmp_path / name / "x" / "1")
        layout.window(tmp_path / name / "x" / "1", 7, "matmul_64")
    tab = tab_on(logdir_spec=spec.format(a=tmp_path / "a", b=tmp_path / "b"))
    assert {run["id"] for run in tab.get("runs")["runs"]} == ids
    for name in ids:
        assert tab.get("window", run=name, window="newest")["summary"]["step"] == 7


def test_a_run_directory_and_a_logdir_to_come(tmp_path: Path, tab_on: Callable[..., Tab]) -> None:
    tab = tab_on(str(tmp_path / "logs"))
    assert tab.get("runs") == {"logdirs": [str(tmp_path / "logs")], "runs": []}
    layout.window(tmp_path / "logs" / "a" / "b", 3, "matmul_64")
    wait_until(lambda: [run["id"] for run in tab.get("runs")["runs"]] == ["a/b"], 10)
    shutil.rmtree(tmp_path / "logs" / "a" / "b" / "profile")
    assert "there is no window" in tab.refused("window", run="a/b", window="newest")


def test_the_tab_is_served_without_torch_and_hydra(tmp_path: Path) -> None:
    done = python(
        "-c",
        "import sys, harness.board.tab.plugin\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'hydra'}))",
        cwd=tmp_path,
    )
    assert done.out.strip() == "[]", done.text
