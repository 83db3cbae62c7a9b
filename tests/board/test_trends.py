"""Trends as TensorBoard shows them: reports in, event files out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.board.events.logger import LAYOUT, Logger
from harness.board.events.points import MOST_CURVES, Points
from harness.board.events.trends import Trends
from harness.trace import WindowReport, analyze_window
from tests import reading
from tests.trace.compare.windows import GPU, cpu_window, judged, report_of
from tests.trace.conftest import recorded


@dataclass
class Shown:
    """What TensorBoard reads from a run."""

    scalars: dict[str, list[tuple[int, float]]]
    texts: dict[str, list[tuple[int, str]]]


def shown(run: Path) -> Shown:
    events = EventAccumulator(str(run), size_guidance={"tensors": 0, "scalars": 0}).Reload()
    return Shown(
        {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]},
        {
            tag.removesuffix("/text_summary"): [
                (e.step, e.tensor_proto.string_val[0].decode()) for e in events.Tensors(tag)
            ]
            for tag in events.Tags()["tensors"]
        },
    )


def record(run: Path, reports: list[WindowReport], *, resumed_from: int | None = None, keep: bool = True) -> None:
    """A life of a job: windows are published and told."""
    logger = Logger(run, resumed_from=resumed_from)
    trends = Trends(logger, run, resumed_from=resumed_from)
    for report in reports:
        step = report.window.first_step
        assert step is not None
        if keep:
            folder = run / "profile" / f"window_{step:08d}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "window.json").write_bytes(msgspec.json.encode(report))
        trends.window_recorded(SimpleNamespace(first_step=step, report=report))
    logger.close()


def test_a_window_is_a_point_at_its_own_step_with_the_reports_own_numbers(tmp_path: Path) -> None:
    report = report_of(GPU, 1200)
    record(tmp_path, [report])
    found = shown(tmp_path).scalars
    (device,) = report.device
    assert found["window/device_busy"] == [(1200, pytest.approx(device.busy_fraction))]
    assert report.step_time.profiled_median_us is not None
    assert found["window/step_ms_profiled"] == [(1200, pytest.approx(report.step_time.profiled_median_us / 1e3))]
    idle = sum(value for tag, points in found.items() if tag.startswith("idle/") for _, value in points)
    assert idle == pytest.approx(device.idle_us / report.window.steps / 1e3, rel=1e-5)
    assert report.memory is not None
    peak = report.memory.peak_allocated_bytes / 2**20
    assert found["window/peak_allocated_mib"] == [(1200, pytest.approx(peak))]


def window_of_ranks(step: int) -> WindowReport:
    found = analyze_window([recorded(f"ddp_straggler_rank1.rank{rank}") for rank in (0, 1)], processes=1)
    return replace(found, window=replace(found.window, first_step=step))


def test_several_ranks_have_curves_of_waiting_of_the_late_one_and_of_bandwidth() -> None:
    points = Points().take(window_of_ranks(4), 4)
    assert points["ranks/waiting_most"] == pytest.approx(0.943, abs=0.01)
    assert points["ranks/waiting_mean"] == pytest.approx(0.943 / 2, abs=0.01)
    assert points["ranks/straggler"] == 1
    assert points["ranks/bus_gb_per_s/all_reduce"] == pytest.approx(227, abs=1)
    alone = Points().take(report_of(GPU, 4), 4)
    assert not [tag for tag in alone if tag.startswith("ranks/")]


def test_the_text_beside_the_curves_names_the_late_rank(tmp_path: Path) -> None:
    record(tmp_path, [window_of_ranks(4)])
    text = shown(tmp_path).texts["window/findings"][-1][1]
    assert "Rank 1 is late" in text


def test_curves_of_operators_add_up_to_the_devices_time_of_a_step() -> None:
    report = report_of(GPU, 10)
    points = Points().take(report, 10)
    total = sum(value for tag, value in points.items() if tag.startswith("operators/"))
    rows = [row for row in report.operators if row.device_type == "cpu" and not row.is_annotation]
    assert total == pytest.approx(sum(row.self_device_time_us for row in rows) / report.window.steps / 1e3)
    shares = sum(value for tag, value in points.items() if tag.startswith("phases/"))
    assert shares == pytest.approx(1.0)


def test_a_window_without_a_device_has_no_curves_of_one() -> None:
    points = Points().take(cpu_window(5, {"aten::mm": 100.0}, phases={"forward": 100.0}), 5)
    assert points["operators/aten::mm"] == pytest.approx(0.1)
    assert points["phases/forward"] == pytest.approx(1.0)
    assert not [tag for tag in points if tag.startswith(("idle/", "phases_device/")) or "device" in tag]


def test_operators_that_come_and_go_leave_the_tags_few_and_without_holes() -> None:
    points = Points()
    tags: set[str] = set()
    for step in range(30):
        now = set(points.take(cpu_window(step, {f"op{step + k}": 100.0 for k in range(3)}), step))
        assert tags <= now
        tags = now
    assert len([tag for tag in tags if tag.startswith("operators/")]) == MOST_CURVES + 1


def test_a_resumed_run_has_the_curves_that_an_uninterrupted_one_has(tmp_path: Path) -> None:
    reports = [cpu_window(step, {f"op{step // 100 + k}": 100.0 for k in range(3)}) for step in range(100, 1500, 100)]
    record(tmp_path / "whole", reports)
    record(tmp_path / "resumed", reports[:9])
    # The job had come to step 900 and goes on from its checkpoint at 750.
    record(tmp_path / "resumed", reports[9:], resumed_from=750)
    whole, resumed = shown(tmp_path / "whole"), shown(tmp_path / "resumed")
    assert resumed.scalars == whole.scalars
    assert [step for step, _ in resumed.scalars["window/step_ms_unprofiled"]] == list(range(100, 1500, 100))


def test_text_holds_the_verdict_its_evidence_the_operators_and_the_change(tmp_path: Path) -> None:
    record(tmp_path, [report_of("copy_bound", 10), report_of(GPU, 20), report_of(GPU, 30)])
    texts = dict(shown(tmp_path).texts["window/findings"])
    assert texts[10].startswith("## copy-bound, confidence ")
    assert "Against earlier windows" not in texts[10]
    assert "| measure | value |" in texts[30]
    assert "`aten::addmm`" in texts[30]
    (row,) = [line for line in texts[30].splitlines() if line.startswith("| verdict ")]
    assert row == "| verdict | overhead-bound | overhead-bound |  | copy-bound | differs |"


def test_a_changed_verdict_is_said_in_the_log_and_in_tensorboard(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reports = [judged(10_000, "compute-bound"), judged(11_000, "compute-bound"), judged(12_000, "input-bound")]
    with caplog.at_level(logging.WARNING, "harness"):
        record(tmp_path, reports)
    sentence = "since step 12,000 the loop waits for input (input-bound; before: compute-bound)"
    assert caplog.messages == [sentence]
    ((step, text),) = shown(tmp_path).texts["window/changes"]
    assert step == 12_000
    assert sentence in text


def test_findings_that_cannot_be_shown_never_reach_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = Logger(tmp_path)
    trends = Trends(logger, tmp_path)
    trends.window_recorded(SimpleNamespace(first_step=3))
    assert not caplog.messages
    trends.window_recorded(SimpleNamespace(first_step=3, report="not a report"))
    assert caplog.messages == ["step 3: the window's findings could not be shown"]
    logger.close()


def test_every_chart_of_the_windows_finds_its_curves() -> None:
    tags = [*Points().take(report_of(GPU, 10), 10), "window/stall_ms"]
    tags += Points().take(cpu_window(5, {"aten::mm": 100.0}, phases={"forward": 100.0}), 5)
    tags += ["window/cost_ms", "window/overhead", *Points().take(window_of_ranks(4), 4), "ranks/memory_imbalance"]
    for _, patterns in [*LAYOUT["Windows"].values(), *LAYOUT["Ranks"].values()]:
        for pattern in patterns:
            assert any(tag.startswith(pattern) for tag in tags), pattern


def test_a_life_that_follows_within_a_second_is_read_after_the_one_before_it(tmp_path: Path) -> None:
    """Whatever comes behind the second in a file's name, as the number of the process, whose digits may roll over."""
    names = []
    for first in (0, 3, 6):
        logger = Logger(tmp_path, resumed_from=first or None)
        for step in range(first + 1, first + 4):
            logger.scalars({"train/loss": float(step)}, step)
        logger.close()
        (new,) = {path.name for path in tmp_path.iterdir()} - set(names)
        names.append(new)
    assert [int(name.split(".")[3]) for name in names] == sorted({int(name.split(".")[3]) for name in names})
    assert reading.scalars(tmp_path, "train/loss") == {step: float(step) for step in range(1, 10)}
