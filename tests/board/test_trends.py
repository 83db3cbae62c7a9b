"""Trends as TensorBoard shows them: reports in, event files out."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import msgspec
import pytest
from msgspec.structs import replace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from harness.board.changes import SINCE, Changes
from harness.board.events.logger import LAYOUT, Logger
from harness.board.events.points import MOST_CURVES, Points
from harness.board.events.trends import Trends
from harness.trace import WindowReport, analyze_window
from harness.trace.schema import Operator, Phase, Step, VerdictLabel
from tests import reading
from tests.report.conftest import analyzed
from tests.trace.conftest import recorded

GPU = "eager_transformer_mem"


def report_of(name: str, step: int) -> WindowReport:
    found = analyzed(recorded(name))[1]
    return replace(found, window=replace(found.window, first_step=step))


def operator(name: str, self_us: float) -> Operator:
    return Operator(
        name=name,
        input_shapes=None,
        count=1,
        cpu_time_us=self_us,
        self_cpu_time_us=self_us,
        device_time_us=0,
        self_device_time_us=0,
        cpu_memory_bytes=0,
        self_cpu_memory_bytes=0,
        device_memory_bytes=0,
        self_device_memory_bytes=0,
        peak_memory_bytes=None,
        flops=None,
    )


def cpu_window(step: int, times: dict[str, float], *, phases: dict[str, float] | None = None) -> WindowReport:
    """A window of one step in µs, spent in these operators and phases."""
    found = report_of("matmul_64", step)
    whole = sum(times.values())
    return replace(
        found,
        window=replace(found.window, steps=1, trigger="schedule"),
        steps=[Step(number=step, start_us=0, duration_us=whole, device_busy_us=0, host_us=whole)],
        step_time=replace(found.step_time, profiled_median_us=whole, unprofiled_median_us=whole),
        totals=replace(found.totals, device_time_us=0),
        device=[],
        idle=[],
        operators=[operator(name, us) for name, us in times.items()],
        phases=[
            Phase(name=name, count=1, host_us=us, host_share=us / whole, device_us=0, device_share=0)
            for name, us in (phases or {}).items()
        ],
        verdict=replace(found.verdict, label="cpu-bound", confidence=1.0),
    )


def judged(step: int, label: VerdictLabel, confidence: float = 0.9) -> WindowReport:
    found = cpu_window(step, {"aten::mm": 1000})
    return replace(found, verdict=replace(found.verdict, label=label, confidence=confidence))


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


def test_a_verdict_near_a_tie_has_to_be_confirmed_and_an_undetermined_one_changes_nothing() -> None:
    changes = Changes()
    said = [
        [change.text for change in changes.take(report, step)]
        for step, report in enumerate(
            [
                judged(0, "compute-bound"),
                judged(1, "memory-bound", 0.51),
                judged(2, "compute-bound", 0.51),
                judged(3, "undetermined", 0.9),
                judged(4, "memory-bound", 0.51),
                judged(5, "memory-bound", 0.52),
            ]
        )
    ]
    assert [len(found) for found in said] == [0, 0, 0, 0, 0, 1]
    assert said[5][0].startswith("since step 4 ")


def test_an_operator_that_grows_is_said_once_with_the_step_at_which_it_began() -> None:
    changes = Changes()
    said: list[str] = []
    for number in range(12):
        slow = 400.0 if number >= 6 else 0.0
        wobble = 10.0 * (number % 3)
        report = cpu_window(100 * number, {"aten::mm": 1000 + wobble, "aten::sort": 300 + wobble + slow})
        said += [change.text for change in changes.take(report, 100 * number)]
    growth = [text for text in said if "aten::sort" in text]
    assert growth == ["since step 600 aten::sort takes 2.27 times the time: 310 µs → 705 µs a step"]
    assert not [text for text in said if "aten::mm" in text]


def test_what_creeps_up_is_said_once_it_has_added_up() -> None:
    changes = Changes()
    found = [
        change
        for number in range(60)
        for change in changes.take(cpu_window(number, {"aten::mm": 1000 * 1.01**number}), number)
    ]
    (first, *_) = [change for change in found if "aten::mm" in change.text]
    # 1.01^k passes a quarter over the median of the first five windows, at 2, with k = 25.
    assert first.step == 25


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([1000, 1010, 990, 1005, 1000, 3000, 1000, 1000], id="one window alone"),
        pytest.param([1000, 1400, 700, 1000, 1300, 1500, 1600, 700], id="within its own noise"),
        pytest.param([1000, 1000, 1000, 1000, 1000, 1150, 1150, 1150], id="by less than a quarter"),
    ],
)
def test_what_is_no_change_is_not_said(times: list[float]) -> None:
    changes = Changes()
    assert not [c for step, us in enumerate(times) for c in changes.take(cpu_window(step, {"aten::mm": us}), step)]


def test_a_window_of_other_options_moves_no_reference() -> None:
    changes = Changes()
    for step in range(10):
        report = cpu_window(step, {"aten::mm": 9000.0 if step in (6, 7, 8) else 1000.0})
        assert not changes.take(report, step, comparable=step not in (6, 7, 8))


def test_findings_that_cannot_be_shown_never_reach_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logger = Logger(tmp_path)
    trends = Trends(logger, tmp_path)
    trends.window_recorded(SimpleNamespace(first_step=3))
    assert not caplog.messages
    trends.window_recorded(SimpleNamespace(first_step=3, report="not a report"))
    assert caplog.messages == ["step 3: the window's findings could not be shown"]
    logger.close()


def test_every_verdict_has_its_sentence() -> None:
    assert set(SINCE) | {"undetermined"} == set(get_args(VerdictLabel))


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
