"""From what a user names to the trace, and what is said where there is none."""

import gzip
import json
import os
from pathlib import Path

import msgspec
import pytest

from harness.trace import WindowReport, analyze, read
from tests.in_process import Run
from tests.report.conftest import analyzed, section, window
from tests.trace.conftest import annotation, op, recorded


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A run of three windows."""
    run = tmp_path / "tb_logs" / "experiment" / "first"
    window(run, 20, "overhead_mlp")
    window(run, 40, "sync_item")
    window(run, 1000, "copy_bound")
    return run


def verdict(run: Run, *arguments: object) -> str:
    result = run(*arguments, "--format", "json")
    assert result.status == 0, result.err
    return msgspec.json.decode(result.out, type=WindowReport).verdict.label


def test_a_run_lists_its_windows_and_shows_the_newest(run: Run, job: Path) -> None:
    out = run(job).out
    listed = section(out, "Windows of")
    assert [line.replace("▸", " ").split()[0] for line in listed[1:]] == ["20", "40", "1000"]
    assert [line.split()[-1] for line in listed[1:]] == ["overhead-bound", "sync-bound", "copy-bound"]
    assert listed[3].startswith("▸")
    assert "▼ 75 %" in listed[2]
    assert "▲ 17.7 ×" in listed[3]
    assert "copy-bound, confidence" in out
    assert "overhead-bound, confidence" not in out


@pytest.mark.parametrize(
    ("number", "label"),
    [(20, "overhead-bound"), (40, "sync-bound"), (-1, "copy-bound"), (-3, "overhead-bound")],
)
def test_a_window_is_picked_by_its_step_or_from_the_end(run: Run, job: Path, number: int, label: str) -> None:
    assert verdict(run, job, "--window", number) == label


def test_the_folder_of_windows_is_the_run_as_well(run: Run, job: Path) -> None:
    assert verdict(run, job / "profile", "--window", 40) == "sync-bound"


def test_a_logdir_with_one_run_is_that_run(run: Run, job: Path) -> None:
    assert verdict(run, job.parents[1]) == "copy-bound"
    assert "Windows of" in run(job.parents[1]).out


def test_a_logdir_lists_its_runs_and_shows_the_one_with_the_youngest_window(run: Run, job: Path) -> None:
    other = window(job.parent / "second", 7, "matmul_4096")
    for path in (job / "profile").iterdir():
        os.utime(path, (1, 1))
    out = run(job.parents[1]).out
    listed = section(out, "Runs of")
    assert [line.replace("▸", " ").split()[0] for line in listed[1:3]] == ["experiment/first", "experiment/second"]
    assert listed[2].startswith("▸")
    assert listed[1].split()[-1] == "copy-bound"
    assert "compute-bound, confidence" in out
    os.utime(other, (0, 0))
    assert verdict(run, job.parents[1]) == "copy-bound"


def test_a_window_shows_its_lowest_rank_and_reads_the_others(run: Run, tmp_path: Path) -> None:
    folder = window(tmp_path, 3, "ddp_straggler_rank1.rank0", "ddp_straggler_rank1.rank1")
    (folder / "host-1_0.170000003.pt.trace.json.gz").rename(folder / "host-9_0.170000003.pt.trace.json.gz")
    assert verdict(run, folder) == "overhead-bound"  # of rank 1, for which rank 0 waits
    shown = run(folder).out
    assert "Rank 1 on host-1 is late" in shown
    assert "host-9_0.170000003.pt.trace.json.gz, rank 0 of 2" in shown
    assert "Beside it" not in shown


def test_of_one_ranks_traces_the_newest_is_shown(run: Run, tmp_path: Path) -> None:
    for ns, name in ((900, "copy_bound"), (1000, "sync_item"), (950, "matmul_4096")):
        (tmp_path / f"host_0.{ns}.pt.trace.json.gz").write_bytes(recorded(name).read_bytes())
    assert verdict(run, tmp_path) == "sync-bound"


def test_a_plain_json_trace_and_a_folder_with_it_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(gzip.decompress(recorded("sync_item").read_bytes()))
    assert verdict(run, tmp_path / "trace.json") == verdict(run, tmp_path) == "sync-bound"


def findings(folder: Path, **changes: object) -> WindowReport:
    """Findings for a window's trace, told apart from an analysis by their version."""
    trace = next(folder.glob("*.gz"))
    report = msgspec.structs.replace(analyze(read(trace)), harness_version="as written", **changes)
    (folder / "window.json").write_bytes(msgspec.json.encode(report))
    return report


def shown(run: Run, *arguments: object) -> str:
    return msgspec.json.decode(run(*arguments, "--format", "json").out, type=WindowReport).harness_version


def test_findings_beside_a_trace_are_shown_without_its_analysis(run: Run, tmp_path: Path) -> None:
    folder = window(tmp_path, 5, "sync_item")
    written = findings(folder)
    assert msgspec.json.decode(run(folder, "--format", "json").out, type=WindowReport) == written
    assert shown(run, folder / "window.json") == "as written"
    assert "One step" in run(folder).out
    next(folder.glob("*.gz")).unlink()
    assert shown(run, folder) == "as written"
    assert "One step" not in run(folder).out


def test_findings_of_another_schema_or_damaged_ones_are_passed_over(run: Run, tmp_path: Path) -> None:
    folder = window(tmp_path, 5, "sync_item")
    findings(folder, schema_version=999)
    assert shown(run, folder) != "as written"
    findings(folder)
    (folder / "window.json").write_bytes((folder / "window.json").read_bytes()[:-9])
    assert shown(run, folder) != "as written"
    assert "sync-bound" in run(tmp_path).out


def test_a_step_time_that_is_handed_over_asks_for_a_new_analysis(run: Run, tmp_path: Path) -> None:
    folder = window(tmp_path, 5, "sync_item")
    findings(folder)
    assert shown(run, folder, "--step-ms", 1) != "as written"


def test_a_list_shows_the_findings_that_were_written_and_what_the_window_cost(run: Run, job: Path) -> None:
    folder = job / "profile" / "window_00000040"
    report = analyzed(recorded("sync_item"))[1]
    changed = msgspec.structs.replace(report.window, partial=True, lost_events=7, cost_us=2.5e6)
    findings(folder, window=changed)
    row = section(run(job).out, "Windows of")[2]
    assert "2.50 s" in row
    assert "partial, 7 events lost" in row


def missing(tmp_path: Path) -> list[object]:
    return [tmp_path / "nothing"]


def empty_folder(tmp_path: Path) -> list[object]:
    return [tmp_path]


def run_without_windows(tmp_path: Path) -> list[object]:
    (tmp_path / "run.json").write_text("{}")
    return [tmp_path]


def no_trace(tmp_path: Path) -> list[object]:
    (tmp_path / "notes.txt").write_text("not a trace")
    return [tmp_path / "notes.txt"]


def json_that_is_no_trace(tmp_path: Path) -> list[object]:
    (tmp_path / "package.json").write_text('{"name": "x", "traces": 3}')
    return [tmp_path]


def empty_file(tmp_path: Path) -> list[object]:
    (tmp_path / "trace.json").touch()
    return [tmp_path / "trace.json"]


def truncated_gzip(tmp_path: Path) -> list[object]:
    (tmp_path / "a.pt.trace.json.gz").write_bytes(recorded("sync_item").read_bytes()[:40])
    return [tmp_path]


def fifo(tmp_path: Path) -> list[object]:
    os.mkfifo(tmp_path / "pipe.json")
    return [tmp_path / "pipe.json"]


def no_permission(tmp_path: Path) -> list[object]:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    (tmp_path / "trace.json").write_text("{}")
    (tmp_path / "trace.json").chmod(0)
    return [tmp_path / "trace.json"]


def too_long_a_name(tmp_path: Path) -> list[object]:
    return [tmp_path / ("x" * 300)]


def findings_alone_of_another_version(tmp_path: Path) -> list[object]:
    (tmp_path / "window.json").write_text('{"schema_version": 999}')
    return [tmp_path]


def unknown_window(tmp_path: Path) -> list[object]:
    window(tmp_path, 20, "matmul_64")
    return [tmp_path, "--window", 21]


def window_before_the_first(tmp_path: Path) -> list[object]:
    window(tmp_path, 20, "matmul_64")
    return [tmp_path, "--window", -2]


def window_of_a_file(tmp_path: Path) -> list[object]:
    return [recorded("matmul_64"), "--window", 4]


def unknown_column(tmp_path: Path) -> list[object]:
    return [recorded("matmul_64"), "--sort-by", "cuda_tim_total"]


def no_shapes(tmp_path: Path) -> list[object]:
    return [recorded("overhead_mlp"), "--group-by", "shape"]


def no_time(tmp_path: Path) -> list[object]:
    return [recorded("matmul_64"), "--step-ms", "0"]


def time_that_is_none(tmp_path: Path) -> list[object]:
    return [recorded("matmul_64"), "--step-ms", "nan"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (missing, "does not exist"),
        (empty_folder, "holds no trace"),
        (run_without_windows, "has no window yet"),
        (no_trace, "notes.txt"),
        (json_that_is_no_trace, "package.json"),
        (empty_file, "trace.json"),
        (truncated_gzip, "a.pt.trace.json.gz"),
        (fifo, "no regular file"),
        (no_permission, "ermission denied"),
        (too_long_a_name, "xxx"),
        (findings_alone_of_another_version, "this version"),
        (unknown_window, "there are 20"),
        (window_before_the_first, "there are 20"),
        (window_of_a_file, "--window picks a window of a run"),
        (unknown_column, "did you mean cuda_time_total?"),
        (no_shapes, "record_shapes=True"),
        (no_time, "positive"),
        (time_that_is_none, "positive"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_users_mistake_is_told_in_one_line(run: Run, tmp_path: Path, arguments: object, told: str) -> None:
    given = arguments(tmp_path)  # type: ignore[operator]
    for format in ("table", "markdown", "json"):
        result = run(*given, "--format", format)
        if arguments is no_shapes and format == "json":
            continue
        assert result.status == 2
        assert result.out == ""
        assert result.err.startswith("error: ")
        assert told in result.err
        assert len(result.err.splitlines()) == 1


def test_an_unknown_column_lists_the_known_ones(run: Run) -> None:
    told = run(recorded("matmul_64"), "--sort-by", "fastest").err
    for name in ("cuda_time_total", "self_device_time_total", "count", "cuda_memory_usage"):
        assert name in told


def test_without_a_device_nothing_is_said_of_one(run: Run, tmp_path: Path) -> None:
    events = [annotation(f"ProfilerStep#{n}", 100 * n, 100, n) for n in (1, 2)] + [
        op("aten::mm", 100 * n + 10, 50, 8 + n) for n in (1, 2)
    ]
    for step in (10, 20):
        folder = tmp_path / "profile" / f"window_{step:08d}"
        folder.mkdir(parents=True)
        (folder / "host_0.1.pt.trace.json").write_text(json.dumps({"traceEvents": events}))
    out = run(tmp_path).out
    assert "cpu-bound" in out
    assert "host, main" in out
    for word in ("device busy", "device span", "CUDA", "cost", "busy change"):
        assert word not in out
