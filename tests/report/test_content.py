"""What the report says of workloads whose bottleneck is known by construction."""

import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from harness.report import markdown
from harness.report.document import Column, Facts, Numbered, Paragraph, Section, Table, name
from harness.report.sections.comparison import trend
from harness.report.sections.picture import picture
from harness.report.sections.ranks import ranks_sections
from harness.report.units import bar, duration, printable, rate, shapes, share, shorten, size
from harness.trace import WindowReport
from harness.trace.compare.comparison import Outcome, Row
from harness.trace.schema import Rank, Ranks
from tests.in_process import Run
from tests.report.conftest import analyzed, drawn, section
from tests.trace.conftest import annotation, kernel, op, recorded, runtime


def lane(text: str, label: str) -> str:
    """What one lane of the picture shows, of the same length for all of them."""
    line = next(line for line in section(text, "One step") if line.strip().startswith(label))
    return line[17:]


@pytest.mark.parametrize(("trace", "letter"), [("overhead_mlp", "h"), ("input_slow_loader", "i"), ("sync_item", "s")])
def test_picture_marks_gaps_with_the_reason_of_the_verdict(trace: str, letter: str) -> None:
    letters = lane(drawn(recorded(trace), 120), "idle because").replace(" ", "")
    assert max(set(letters), key=letters.count) == letter
    assert f"{letter} " in section(drawn(recorded(trace), 120), "One step")[-1]


@pytest.mark.parametrize("trace", ["matmul_4096", "compute_gemm_bf16", "elementwise_synced"])
def test_picture_of_a_busy_device_is_full(trace: str) -> None:
    stream = lane(drawn(recorded(trace), 120), "GPU 0 stream 7")
    assert stream.count("█") > 0.95 * (120 - 17)


def test_picture_shows_where_the_host_waits() -> None:
    assert lane(drawn(recorded("matmul_4096"), 100), "host, main").count("░") > 70


def test_picture_shows_both_threads_of_a_training_step_taking_turns() -> None:
    text = drawn(recorded("overhead_mlp"), 140)
    main, autograd = lane(text, "host, main").ljust(123), lane(text, "host, autograd").ljust(123)
    both = sum(a != " " and b != " " for a, b in zip(main, autograd, strict=True))
    assert both <= 4
    assert "Optimizer" in lane(text, "phases")


def test_picture_is_drawn_of_the_step_of_median_duration() -> None:
    trace, report = analyzed(recorded("overhead_mlp"))
    durations = sorted(report.steps, key=lambda step: step.duration_us)
    drawing = picture(trace, report)
    assert drawing is not None
    assert f"Step {durations[1].number}, of median duration" in drawing.draw(100)[0][0].text


@pytest.mark.parametrize("trace", ["copy_bound", "copy_pageable"])
def test_copies_are_named_with_the_share_that_was_hidden(run: Run, trace: str) -> None:
    out = run(recorded(trace)).out
    assert "of it hidden behind kernels" in out
    assert "from pageable memory" in out
    assert "Memcpy HtoD (Pageable -> Device)" in "\n".join(section(out, "Copies"))


def test_memory_names_its_peak_and_what_large_operators_point_to(run: Run) -> None:
    out = run(recorded("lab5_cnn_mem"), "--rows", 30).out
    memory = section(out, "Memory by operator")
    assert "allocated 1.66 GiB, reserved 2.38 GiB of 140 GiB" in memory[0]
    advice = "\n".join(memory)
    assert re.search(r"fusion: aten::\w+ holds", advice)
    assert re.search(r"activation checkpointing: aten::\w+ holds", advice)
    total, own, peak, calls = next(line.split() for line in memory if line.startswith("aten::empty "))[1::2]
    assert (total, own, peak, calls) == ("2.12", "2.12", "1.42", "99")


def test_a_trace_without_memory_has_no_section_for_it(run: Run) -> None:
    out = run(recorded("lab5_cnn")).out
    assert "Memory by operator" not in out
    assert "Copies" not in out


def test_file_size_and_categories_are_those_of_the_file(run: Run) -> None:
    out = run(recorded("lab5_cnn")).out
    assert f"{size(recorded('lab5_cnn').stat().st_size)} (" in out
    categories = {line.split()[0]: line.split()[1] for line in section(out, "What is in the trace")}
    report = analyzed(recorded("lab5_cnn"))[1]
    assert categories["kernel"] == f"{report.categories['kernel']:,}"
    assert categories["cpu_op"] == f"{report.categories['cpu_op']:,}"


def test_parts_of_the_devices_time_add_up_to_the_span(run: Run) -> None:
    out = run(recorded("ddp_straggler_rank1.rank0"), "--format", "markdown").out
    lines = out[out.index("### Where the device") :].split("\n\n")[1].splitlines()[2:]
    shares = [float(line.split("|")[3].removesuffix(" % ").strip()) for line in lines]
    assert len(shares) == 4
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_two_rows_of_torchs_table_are_one_span_with_its_device_time(run: Run) -> None:
    spans = [line for line in section(run(recorded("lab5_cnn")).out, "Phases") if line.startswith("training_step")]
    assert len(spans) == 1


HOSTILE = "evil|`name`\x1b[31m<b>\n*x*"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A trace whose names mean something to a terminal and to Markdown."""
    events = [
        annotation("ProfilerStep#1", 0, 100, 1),
        annotation("ProfilerStep#2", 100, 100, 2),
        op(HOSTILE, 10, 20, 3),
        runtime("cudaLaunchKernel", 12, 4, 7, external=3),
        kernel(HOSTILE, 20, 30, 7, external=3),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_names_reach_neither_the_terminal_nor_markdown_as_commands(run: Run, hostile: Path) -> None:
    table, text = run(hostile), run(hostile, "--format", "markdown")
    assert table.status == text.status == 0
    assert "\x1b" not in table.out + text.out
    assert "evil|`name`�[31m<b>�*x*" in table.out
    assert "`` evil\\|`name`�[31m<b>�*x* ``" in text.out


def test_markdown_keeps_each_kind_of_block() -> None:
    blocks = [
        Table([name("operator"), Column("time")], [["aten::_to|copy", "3 µs"]]),
        Facts([("Peak", "1 GiB in _init_")]),
        Numbered([("fusion", "a < b")]),
        Paragraph("# 5 * 3"),
    ]
    text = markdown.render([Section("one", []), Section("two", blocks)])
    assert "## one" in text
    assert "### two" in text
    assert "| operator | time |\n| --- | ---: |\n| `aten::_to\\|copy` | 3 µs |" in text
    assert "- **Peak**: 1 GiB in \\_init\\_" in text
    assert "1. **fusion**: a \\< b" in text
    assert "\\# 5 \\* 3" in text


@pytest.mark.parametrize(
    ("shown", "value"),
    [
        ("0 µs", 0.0),
        ("0.54 µs", 0.544),
        ("23.1 µs", 23.104),
        ("999 µs", 999.4),
        ("1.00 ms", 999.6),
        ("2.31 ms", 2314.0),
        ("2.05 s", 2.05e6),
        ("4,200 s", 4.2e9),
    ],
)
def test_durations_have_three_digits(shown: str, value: float) -> None:
    assert duration(value) == shown


def test_sizes_count_in_powers_of_two() -> None:
    assert [size(v) for v in (0, 512, 1024, 1023 * 1024, 1782762496, -149203968, 3 * 2**40)] == [
        "0 B",
        "512 B",
        "1.00 KiB",
        "1.00 MiB",
        "1.66 GiB",
        "-142 MiB",
        "3.00 TiB",
    ]


def test_shares_that_are_there_are_never_nothing() -> None:
    assert [share(v) for v in (0, 0.0001, 0.0005, 0.5, 1)] == ["0.0 %", "<0.1 %", "0.1 %", "50.0 %", "100.0 %"]


def test_rates_have_decimal_prefixes() -> None:
    assert [rate(v, "FLOP") for v in (12, 61.2e9, 2.3e15)] == ["12.0 FLOP", "61.2 GFLOP", "2.30 PFLOP"]


def test_shapes_leave_out_scalars() -> None:
    assert shapes([[32, 1024], [], [4096, 1024]]) == "[32×1024] [4096×1024]"


@pytest.mark.parametrize("text", ["aten::convolution_backward", "卷积核卷积核卷积核", "é" * 40, ""])
def test_names_are_cut_in_the_middle_to_the_width(text: str) -> None:
    from rich.cells import cell_len

    for width in range(1, 30):
        cut = shorten(text, width)
        assert cell_len(cut) <= width
        assert cut == text or "…" in cut
        if cut != text and width > 6:
            assert text.startswith(cut.split("…")[0])
            assert text.endswith(cut.split("…")[1])


def test_control_characters_are_shown_as_such() -> None:
    assert printable("a\x1b]0;x\x07\nb") == "a�]0;x��b"


def test_bars_fill_with_the_fraction() -> None:
    assert [len(bar(f)) for f in (0, 0.5, 1, 7)] == [0, 12, 24, 24]
    assert bar(1 / 48) == "▌"


def compared(change: float | None, outcome: Outcome, name: str = "step") -> Row:
    return Row(
        group="step",
        name=name,
        unit="us",
        before=1.0,
        after=1.0 + (change or 0.0),
        change=change,
        low=None,
        high=None,
        outcome=outcome,
        noise=None,
    )


@pytest.mark.parametrize(
    ("row", "shown"),
    [
        (compared(0.12, "more"), ("▲ 12 %", "red")),
        (compared(-0.12, "less"), ("▼ 12 %", "green")),
        (compared(0.12, "more", "busy"), ("▲ 12 %", "green")),
        (compared(-0.12, "less", "busy"), ("▼ 12 %", "red")),
        (compared(0.12, "same"), ("▲ 12 % (noise)", "dim")),
        (compared(-0.12, "unknown"), ("▼ 12 % (noise?)", "dim")),
        (compared(0.01, "same"), ("=", "dim")),
        (compared(1.5, "more"), ("▲ 2.5 ×", "red")),
        (compared(None, "new"), ""),
        (None, ""),
    ],
)
def test_trends_say_what_is_worse_and_what_is_noise(row: Row | None, shown: object) -> None:
    assert trend(row) == shown


def test_several_ranks_stand_side_by_side_with_the_late_one_named(run: Run, tmp_path: Path) -> None:
    window = tmp_path / "window_00000004"
    window.mkdir()
    for rank in (0, 1):
        shutil.copy(recorded(f"ddp_straggler_rank1.rank{rank}"), window / f"node_{rank}.1.pt.trace.json.gz")
    shown = run(window, "--format", "markdown").out
    assert shown.startswith("## overhead-bound")
    assert "Rank 1 on node is late: the others wait 14.8 ms a step for it, because of its host's own work" in shown
    assert "| ▸ 1 | node | 15.5 ms |" in shown
    assert "| `all_reduce` | 20.0 MiB | 2 | 3 |" in shown
    assert "Beside it" not in shown
    report = msgspec.json.decode(run(window, "--format", "json").out, type=WindowReport)
    assert report.ranks is not None
    assert [rank.host for rank in report.ranks.ranks] == ["node", "node"]


def test_traces_of_other_jobs_in_one_folder_are_no_ranks_of_it(run: Run, tmp_path: Path) -> None:
    for trace in ("ddp_straggler_rank1.rank0", "matmul_64", "matmul_512"):
        shutil.copy(recorded(trace), tmp_path)
    shown = run(tmp_path, "--format", "markdown").out
    assert shown.startswith("## communication-bound")
    assert "Beside it" in shown
    assert "left out" not in shown


def test_of_many_ranks_those_that_are_waited_for_are_shown() -> None:
    _, report = analyzed(recorded("ddp_straggler_rank1.rank0"))
    row = Rank(
        rank=0,
        host=None,
        source="",
        step_us=1.0,
        unprofiled_step_us=None,
        busy_fraction=None,
        compute_us=1.0,
        communication_us=1.0,
        exposed_communication_us=1.0,
        waiting_us=1.0,
        late_us=0.0,
        peak_memory_bytes=None,
        clock_offset_us=None,
        verdict="cpu-bound",
    )
    many = [replace(row, rank=rank, late_us=float(rank % 7)) for rank in range(64)]
    with_ranks = replace(report, world_size=64, ranks=Ranks(ranks=many, collectives=[]))
    (section,) = ranks_sections(with_ranks, 9)
    table = next(block for block in section.blocks if isinstance(block, Table))
    assert [row[0] for row in table.rows] == [str(rank) for rank in range(64) if rank % 7 == 6]
    assert any("9 of 64 rows" in block.text for block in section.blocks if isinstance(block, Paragraph))
