"""Every trace in every format, for every width."""

import re
from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from harness.report.sections.findings import Options
from harness.report.sections.operators import OLD_NAMES, SORT_KEYS, sorted_rows
from harness.trace import WindowReport
from tests.in_process import Run
from tests.report.conftest import analyzed, drawn, section
from tests.trace.conftest import EVERYONES, TRACES, recorded, stem


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_table_and_markdown_begin_with_the_verdict(run: Run, path: Path) -> None:
    verdict = analyzed(path)[1].verdict
    first = f"{verdict.label}, confidence {100 * verdict.confidence:.1f} %"
    table, markdown = run(path), run(path, "--format", "markdown")
    assert (table.status, table.err) == (markdown.status, markdown.err) == (0, "")
    assert table.out.splitlines()[0] == first
    assert markdown.out.splitlines()[0] == f"## {first}"


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_json_is_the_report(run: Run, path: Path) -> None:
    result = run(path, "--format", "json")
    assert result.status == 0
    assert msgspec.json.decode(result.out, type=WindowReport) == analyzed(path)[1]


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_no_line_is_wider_than_the_terminal(path: Path) -> None:
    for width in (40, 60, 80, 120, 200):
        too_wide = [line for line in drawn(path, width).splitlines() if cell_len(line) > width]
        assert not too_wide


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_rows_of_a_markdown_table_have_one_cell_a_column(run: Run, path: Path) -> None:
    out = run(path, "--format", "markdown").out
    tables = re.findall(r"(?:^\|.*\n)+", out, re.MULTILINE)
    assert tables
    for table in tables:
        cells = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(cells) == 1


@pytest.mark.parametrize("path", EVERYONES, ids=stem)
def test_operators_are_sorted_by_device_time_or_else_by_cpu_time(path: Path) -> None:
    report = analyzed(path)[1]
    key = "device_time_total" if report.totals.device_time_us else "cpu_time_total"
    lines = section(drawn(path, 200), f"Operators, sorted by {key}")
    for line, row in zip(lines[1:], sorted_rows(report.operators, key)[:15], strict=False):
        assert line.startswith(row.name[:8].rstrip())


TORCHS_COLUMNS = [
    "Self CPU %",
    "Self CPU",
    "CPU total %",
    "CPU total",
    "CPU time avg",
    "Self CUDA",
    "Self CUDA %",
    "CUDA total",
    "CUDA time avg",
]


def printed_by_torch(name: str) -> tuple[list[list[str]], list[str]]:
    """Rows of a table that torch printed, the name first, and the lines below."""
    lines = (TRACES / f"{name}.key_averages.txt").read_text().splitlines()
    rules = [place for place, line in enumerate(lines) if line.startswith("---")]
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines[rules[1] + 1 : rules[2]]]
    return rows, [line for line in lines[rules[2] + 1 :] if line]


@pytest.mark.parametrize("name", ["lab5_cnn", "lab5_cnn_mem", "lab5_gpt_tiny"])
def test_operator_table_has_the_cells_that_torch_printed(run: Run, name: str) -> None:
    """Word for word, but for the rows of spans: torch has a second row for each on the device, and counts its time
    as device time once more."""
    rows, totals = printed_by_torch(name)
    out = run(recorded(name), "--format", "markdown", "--rows", 40).out
    ours = {}
    for line in section(out.replace("sorted by device_time_total\n\n", "sorted by device_time_total\n"), "Operators"):
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        ours[cells[0].strip("`")] = cells
    assert ours["Name"][1:10] == TORCHS_COLUMNS
    spans = {annotation.name for annotation in analyzed(recorded(name))[1].annotations}
    compared = 0
    for row in rows:
        title, cut = row[0].removesuffix("..."), row[0].endswith("...")
        if title in spans:
            continue
        mine = next(cells for name, cells in ours.items() if name == title or (cut and name.startswith(title)))
        assert mine[1:10] == row[1:10], title
        assert row[-1] in mine[10:]
        compared += 1
    assert compared >= 10
    for line in totals:
        term, value = line.split(": ")
        assert f"- **{term}**: {value}" in out


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_old_and_new_names_sort_alike(run: Run, old: str, new: str) -> None:
    path = recorded("lab5_cnn_mem")
    result = run(path, "--sort-by", old)
    assert result.status == 0
    assert result == run(path, "--sort-by", new)


@pytest.mark.parametrize("key", SORT_KEYS)
def test_sorting_by_a_column_puts_its_largest_first_and_keeps_it_at_any_width(key: str) -> None:
    path = recorded("lab5_cnn_mem")
    report = analyzed(path)[1]
    values = [SORT_KEYS[key](row) for row in sorted_rows(report.operators, key)]
    assert values == sorted(values, reverse=True)
    largest = max(report.operators, key=SORT_KEYS[key])
    wide, narrow = (section(drawn(path, width, Options(sort_by=key)), "Operators") for width in (200, 60))
    title = {
        "cpu_time_total": "CPU total",
        "self_cpu_time_total": "Self CPU",
        "cpu_time": "CPU time avg",
        "device_time_total": "CUDA total",
        "self_device_time_total": "Self CUDA",
        "device_time": "CUDA time avg",
        "cpu_memory_usage": "CPU Mem",
        "self_cpu_memory_usage": "Self CPU Mem",
        "device_memory_usage": "CUDA Mem",
        "self_device_memory_usage": "Self CUDA Mem",
        "peak_memory": "Peak Mem",
        "flops": "FLOPs",
        "count": "# of Calls",
    }[key]
    if "cpu_memory" not in key:
        assert title in narrow[0]
        assert title in wide[0]
    assert largest.name[:8] in wide[1]


def test_grouped_by_shape_operators_are_named_as_people_write_them(run: Run) -> None:
    out = run(recorded("lab5_cnn_mem"), "--group-by", "shape", "--format", "markdown", "--rows", 400).out
    assert "`conv2d [64×3×224×224] [64×3×7×7] [64]`" in out
    assert "`linear [64×256] [1000×256] [1000]`" in out
    by_name = run(recorded("lab5_cnn_mem"), "--format", "markdown", "--rows", 400).out
    assert "`aten::conv2d`" in by_name
    assert "×3×" not in by_name


def test_step_time_that_is_handed_over_is_what_business_is_measured_against(run: Run) -> None:
    path = recorded("overhead_mlp")
    plain = msgspec.json.decode(run(path, "--format", "json").out, type=WindowReport)
    given = msgspec.json.decode(run(path, "--step-ms", "5", "--format", "json").out, type=WindowReport)
    assert plain.step_time.unprofiled_median_us is None
    assert given.step_time.unprofiled_median_us == 5000
    assert given.device[0].busy_fraction > 1.5 * plain.device[0].busy_fraction
    shown = run(path, "--step-ms", "5").out
    assert "5.00 ms without the profiler, 10.3 ms with it" in shown
    assert "share of the unprofiled step" in shown


def test_rows_limits_the_long_tables(run: Run) -> None:
    few, many = (run(recorded("lab5_cnn"), "--rows", rows).out for rows in (3, 30))
    assert "3 of 142 rows" in few
    assert "30 of 142 rows" in many
    assert len(few.splitlines()) < len(many.splitlines()) - 40
