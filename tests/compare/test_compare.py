"""`harness compare` as a user runs it."""

import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.logdir.layout import MANIFEST
from harness.logdir.manifest import Manifest
from harness.trace import WindowReport, analyze, read
from harness.trace.compare.comparison import Comparison
from tests.in_process import Run, in_process
from tests.launch import ROOT, environment
from tests.trace.conftest import recorded

BASE = analyze(read(recorded("eager_transformer_mem")))


harness = in_process("compare")


def slower(by: float, operator: str = "") -> WindowReport:
    """The recorded window, the steps by this factor, by way of one operator."""
    median = BASE.step_time.profiled_median_us
    assert median is not None
    steps = [
        replace(
            BASE.steps[0],
            number=number,
            duration_us=median * by * (1 + off),
            device_busy_us=BASE.steps[0].device_busy_us * (1 + off),
            host_us=BASE.steps[0].host_us * (1 + off),
        )
        for number, off in enumerate((-0.004, 0.002, 0.0, -0.003, 0.004))
    ]
    return replace(
        BASE,
        steps=steps,
        window=replace(BASE.window, steps=5),
        step_time=replace(BASE.step_time, profiled_median_us=median * by, unprofiled_median_us=median * by / 2),
        operators=[
            replace(one, self_device_time_us=one.self_device_time_us * (5 if one.name == operator else 1))
            for one in BASE.operators
        ],
    )


def run_of(logdir: Path, name: str, windows: list[WindowReport], **metrics: float) -> Path:
    """A run with these windows' findings."""
    path = logdir / "job" / name
    for number, report in enumerate(windows):
        folder = path / "profile" / f"window_{10 * (number + 1):08d}"
        folder.mkdir(parents=True)
        (folder / "window.json").write_bytes(msgspec.json.encode(report))
    manifest = Manifest(
        id=f"job/{name}",
        status="completed",
        step=100,
        max_steps=100,
        started="2026-11-29T00:00:00",
        updated="2026-11-29T00:00:00",
        command="harness train",
        overrides=[],
        choices={},
        metrics=metrics,
    )
    (path / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return path


def test_a_regression_fails_and_names_its_culprit(harness: Run, tmp_path: Path) -> None:
    before = run_of(tmp_path, "before", [slower(9), slower(1.0), slower(1.005)])  # the first is the warm-up's
    after = run_of(tmp_path, "after", [slower(1), slower(1.2, "aten::addmm"), slower(1.205, "aten::addmm")])
    passed = harness(before, after, "--fail-over", "25%")
    assert passed.status == 0
    failed = harness(before, after, "--fail-over", "5 %")
    assert failed.status == 1
    assert failed.err.startswith("step is 20.0 % more")
    assert "over the limit of 5 %" in failed.err
    assert "operator aten::addmm is 400.0 % more" in failed.err
    assert harness(after, before, "--fail-over", "0.05").status == 0  # faster is no failure
    assert harness(before, after).status == 0  # nobody asked


def test_a_difference_that_may_be_noise_is_neither_a_change_nor_none(harness: Run, tmp_path: Path) -> None:
    """Of two windows the first is the warm-up's, and how far others lie apart is not known from one."""
    before = run_of(tmp_path, "before", [slower(2.0), slower(1.0)])
    result = harness(before, run_of(tmp_path, "after", [slower(2.0), slower(1.06)]), "--fail-over", "5%")
    assert result.status == 0
    assert "6.0 % more, which may be noise: no change can be told" in result.out
    assert "as long as before" not in result.out
    assert "Before has a first window besides" in result.out
    assert "decides little" in result.err


def test_a_run_against_itself_passes_the_smallest_limit(harness: Run, tmp_path: Path) -> None:
    run = run_of(tmp_path, "one", [slower(1.0), slower(1.1), slower(0.95)])
    result = harness(run, run, "--fail-over", "0.01%")
    assert result.status == 0
    assert result.err.startswith("step: 1")
    assert "% more may be noise, so a limit of 0.01 % decides little; record more windows" in result.err
    assert "The step takes as long as before" in result.out


def test_markdown_is_for_a_pull_request(harness: Run, tmp_path: Path) -> None:
    paths = [run_of(tmp_path, str(by), [slower(by)]) for by in (1.0, 1.5)]
    out = harness(*paths, "--format", "markdown").out
    assert out.startswith("## step 50.0 % more\n")
    assert "|  | before | after | change | 95 % interval |  |" in out
    assert "### Operators, self time" in out


def test_json_is_the_comparison(harness: Run, tmp_path: Path) -> None:
    paths = [run_of(tmp_path, str(by), [slower(by)], **{"perf/samples_per_second": 10.0 / by}) for by in (1.0, 2.0)]
    found = msgspec.json.decode(harness(*paths, "--format", "json").out, type=Comparison)
    assert [found.before.per_second, found.after.per_second] == [10.0, 5.0]
    assert {row.group for row in found.rows} == {"step", "device", "phase", "operator", "kernel", "memory"}


def test_other_batch_sizes_compare_by_the_sample(harness: Run, tmp_path: Path) -> None:
    small = {"perf/samples_per_second": 1000.0, "perf/step_time_ms": 32.0}
    large = {"perf/samples_per_second": 1000.0, "perf/step_time_ms": 64.0}
    before = run_of(tmp_path, "small", [slower(1.0)], **small)
    after = run_of(tmp_path, "large", [slower(2.0)], **large)
    assert harness(before, after, "--fail-over", "5%").status == 1
    assert "--per-sample" in harness(before, after).out
    found = harness(before, after, "--per-sample", "--fail-over", "5%")
    assert found.status == 0
    assert "32 samples" in found.out
    assert "64 samples" in found.out
    told = harness(before, recorded("matmul_64"), "--per-sample")
    assert told.status == 2
    assert "matmul_64" in told.err


def test_traces_and_windows_compare_too(harness: Run, tmp_path: Path) -> None:
    window = tmp_path / "window_00000010"
    window.mkdir()
    shutil.copy(recorded("matmul_512"), window)
    result = harness(recorded("matmul_64"), window)
    assert result.status == 0
    assert "shapes differ" in result.out


@pytest.mark.parametrize("limit", ["", "5 percent", "-3%", "0", "nan", "5%%"])
def test_a_limit_that_is_none_is_said_so(harness: Run, limit: str) -> None:
    result = harness(recorded("matmul_64"), recorded("matmul_64"), f"--fail-over={limit}")
    assert result.status == 2
    assert "--fail-over" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_logdir_of_several_runs_is_not_one(harness: Run, tmp_path: Path) -> None:
    for name in "ab":
        run_of(tmp_path, name, [slower(1.0)])
    result = harness(tmp_path, tmp_path)
    assert result.status == 2
    assert "2 runs" in result.err


def test_a_path_that_is_not_there(harness: Run, tmp_path: Path) -> None:
    result = harness(tmp_path / "gone", recorded("matmul_64"))
    assert result.status == 2
    assert "gone does not exist" in result.err


@pytest.mark.parametrize("lines", [0, 1])
def test_a_reader_that_goes_changes_no_exit_status(lines: int, tmp_path: Path) -> None:
    """As `2>&1 | head -1` is one, of a gate that is kept: 1 would say that it is not."""
    trace = ROOT / "tests" / "traces" / "matmul_64.pt.trace.json.gz"
    command = [sys.executable, "-m", "harness", "compare", str(trace), str(trace), "--fail-over", "5%"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(), cwd=tmp_path, bufsize=0
    )
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
