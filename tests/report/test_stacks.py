"""`harness report --stacks`."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from tests.in_process import Run
from tests.trace.conftest import recorded


def test_the_command_says_what_is_missing_where_there_are_no_stacks(tmp_path: Path, run: Run) -> None:
    result = run(recorded("matmul_64"), "--stacks", tmp_path / "stacks.txt")
    assert result.status == 2
    assert "holds no Python functions; record with profiler.with_stack=true" in result.err
    assert not (tmp_path / "stacks.txt").exists()


def test_the_command_writes_a_line_for_each_path_with_microseconds(tmp_path: Path, run: Run) -> None:
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recording:
        torch.randn(512, 512) @ torch.randn(512, 512)
    recording.export_chrome_trace(str(tmp_path / "t.pt.trace.json"))
    assert run(tmp_path / "t.pt.trace.json", "--stacks", tmp_path / "stacks.txt").status == 0
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    (product,) = [line for line in lines if "aten::mm " in line]
    path, _, microseconds = product.rpartition(" ")
    assert path.endswith(";aten::matmul;aten::mm")
    assert int(microseconds) > 0
