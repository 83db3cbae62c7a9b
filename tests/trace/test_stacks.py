"""Folded stacks: self times by call path."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from harness.trace import read
from harness.trace.measure.stacks import folded_stacks
from tests.trace.conftest import Write, annotation, op, python


def test_each_path_has_its_own_time_and_operators_are_leaves(write: Write) -> None:
    trace = write(
        [
            # Running since before the window.
            python("main.py(1): main", 0, 1000, python_id=1),
            annotation("ProfilerStep#1", 100, 900),
            python("net.py(7): forward", 200, 300, python_id=2),
            op("aten::mm", 250, 100, 1),
            op("aten::mm", 400, 50, 2),
            python("net.py(7): forward", 600, 100, python_id=3),
            op("aten::mm", 10, 5, 3, tid=2),
        ]
    )
    assert dict(folded_stacks(trace)) == {
        "main.py(1): main": 590_000,
        "main.py(1): main;net.py(7): forward": 250_000,
        "main.py(1): main;net.py(7): forward;aten::mm": 150_000,
        "aten::mm": 5_000,
    }


def test_a_live_window_gives_the_whole_time_of_its_main_thread(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())

    def forward() -> None:
        for _ in range(20):
            model(torch.randn(32, 64))

    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recording:
        forward()
    recording.export_chrome_trace(str(tmp_path / "t.pt.trace.json"))
    found = dict(folded_stacks(read(tmp_path / "t.pt.trace.json")))
    deep = [path for path in found if path.endswith(";aten::addmm")]
    assert deep
    assert all("forward" in path and "Linear" in path for path in deep)
    assert all(time > 0 for time in found.values())
