"""A window recorded in the test, read from its file, against torch's own table of the same window."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from harness.trace import WindowReport, analyze, read

MICROSECOND = 1e-3


class Recorded:
    def __init__(self, profiler: profile, path: Path) -> None:
        profiler.export_chrome_trace(str(path))
        self.profiler = profiler
        self.path = path
        self.report: WindowReport = analyze(read(path))

    def assert_rows_equal(self, *, by_shape: bool) -> None:
        theirs = {
            (row.key, bool(row.is_user_annotation), str(row.input_shapes) if by_shape else ""): row
            for row in self.profiler.key_averages(group_by_input_shape=by_shape)
        }
        rows = self.report.operators_by_shape if by_shape else self.report.operators
        ours = {(row.name, row.is_annotation, str(row.input_shapes) if by_shape else ""): row for row in rows}
        assert ours.keys() == theirs.keys()
        for key, expected in theirs.items():
            row = ours[key]
            assert row.count == expected.count, key
            assert row.cpu_memory_bytes == expected.cpu_memory_usage, key
            assert row.self_cpu_memory_bytes == expected.self_cpu_memory_usage, key
            assert row.cpu_time_us == pytest.approx(expected.cpu_time_total, abs=MICROSECOND), key
            assert row.self_cpu_time_us == pytest.approx(expected.self_cpu_time_total, abs=MICROSECOND), key


def train(steps: int = 3) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []
    for _ in range(steps):
        with record_function("outer"):
            with record_function("inner"):
                loss = model(torch.randn(4, 3, 8, 8)).sum()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        kept.append(torch.empty(1000))


def test_rows_equal_key_averages_by_name_and_by_shape(tmp_path: Path):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as profiler:
        train()
    recorded = Recorded(profiler, tmp_path / "trace.json")
    recorded.assert_rows_equal(by_shape=False)
    recorded.assert_rows_equal(by_shape=True)


def test_recorded_steps_have_the_profilers_numbers(tmp_path: Path):
    path = tmp_path / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
    ) as profiler:
        for _ in range(5):
            train(1)
            profiler.step()
    report = analyze(read(path))
    assert [step.number for step in report.steps] == [2, 3, 4]
    assert report.window.first_step == 2
    assert report.verdict.label == "cpu-bound"
    assert [row.count for row in report.annotations if row.name == "ProfilerStep*"] == [3]


def test_python_functions_take_nothing_off_self_times(tmp_path: Path):
    """With stacks, torch 2.14 nests Python functions among the operators but gives them no rows, so what it
    takes off for them is in no row, and since they cross annotations its self times may even be negative.
    Ours is what the raw events say: an annotation's duration less that of the operators and annotations
    directly inside."""
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as profiler:
        train()
    recorded = Recorded(profiler, tmp_path / "trace.json")
    events = [
        event
        for event in json.loads(recorded.path.read_text())["traceEvents"]
        if event.get("cat") in ("cpu_op", "user_annotation")
    ]
    expected = 0.0
    for span in [event for event in events if event["name"] == "outer"]:
        inside = [e for e in events if e is not span and e["tid"] == span["tid"] and holds(span, e)]
        top = [e for e in inside if not any(o is not e and holds(o, e) for o in inside)]
        expected += span["dur"] - sum(event["dur"] for event in top)
    outer = next(row for row in recorded.report.operators if row.name == "outer")
    theirs = next(row for row in profiler.key_averages() if row.key == "outer")
    assert outer.self_cpu_time_us == pytest.approx(expected, abs=0.01)
    assert outer.cpu_time_us == pytest.approx(theirs.cpu_time_total, abs=MICROSECOND)
    assert theirs.self_cpu_time_total < outer.self_cpu_time_us


def holds(outer: dict[str, float], inner: dict[str, float]) -> bool:
    return outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"]


@contextmanager
def process_group(store: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def test_collectives_nest_in_nothing_as_in_torch(tmp_path: Path):
    recording = profile(activities=[ProfilerActivity.CPU])
    with process_group(tmp_path / "store"), recording as profiler, record_function("step"):
        for _ in range(3):
            dist.all_reduce(torch.ones(10))
    recorded = Recorded(profiler, tmp_path / "trace.json")
    recorded.assert_rows_equal(by_shape=False)
    assert any(row.name == "gloo:all_reduce" for row in recorded.report.operators)


def products() -> None:
    a, b = torch.randn(4, 5), torch.randn(5, 6)
    a @ b
    torch.addmm(torch.randn(6), a, b)
    torch.bmm(torch.randn(3, 4, 5), torch.randn(3, 5, 6))
    torch.baddbmm(torch.randn(3, 4, 6), torch.randn(3, 4, 5), torch.randn(3, 5, 6))
    F.conv2d(torch.randn(2, 4, 16, 16), torch.randn(8, 4, 3, 3), stride=2, padding=1)
    F.conv2d(torch.randn(2, 4, 16, 16), torch.randn(8, 2, 3, 3), groups=2, dilation=2)


def test_flops_equal_those_of_with_flops(tmp_path: Path):
    """Torch also counts one operation an element for add and mul; those have no FLOPs here."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_flops=True) as profiler:
        products()
    report = Recorded(profiler, tmp_path / "trace.json").report
    theirs = {
        (row.key, str(row.input_shapes)): row.flops
        for row in profiler.key_averages(group_by_input_shape=True)
        if row.flops and row.key not in ("aten::add", "aten::mul")
    }
    ours = {(row.name, str(row.input_shapes)): row.flops for row in report.operators_by_shape}
    assert {name for name, _ in theirs} == {
        "aten::mm",
        "aten::addmm",
        "aten::bmm",
        "aten::baddbmm",
        "aten::conv2d",
    }
    assert {key: ours[key] for key in theirs} == theirs


def network() -> None:
    """Forward and backward of products and convolutions."""
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    F.conv2d(x, torch.randn(8, 4, 3, 3, requires_grad=True), stride=2, padding=1).sum().backward()
    F.conv_transpose2d(x, torch.randn(4, 6, 3, 3, requires_grad=True), stride=2).sum().backward()
    F.conv1d(torch.randn(2, 4, 16), torch.randn(8, 2, 3), groups=2, padding="same")
    F.linear(torch.randn(2, 3, 5, requires_grad=True), torch.randn(7, 5), torch.randn(7)).sum().backward()
    torch.matmul(torch.randn(2, 3, 4, 5), torch.randn(5, 6))


def test_the_windows_flops_are_those_of_the_flop_counter_forward_and_backward(tmp_path: Path):
    with FlopCounterMode(display=False) as counter:
        network()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        network()
    report = Recorded(profiler, tmp_path / "trace.json").report
    assert report.totals.flops == counter.get_total_flops()


def test_attention_counts_what_the_flop_counter_would(tmp_path: Path):
    """The counter itself skips the CPU's attention operators; its formulas are asked for the same shapes."""
    q = torch.randn(2, 4, 32, 16, requires_grad=True)
    k = torch.randn(2, 4, 48, 16, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        F.scaled_dot_product_attention(q, k, k).sum().backward()
    flops = {row.name: row.flops for row in Recorded(profiler, tmp_path / "trace.json").report.operators}
    forward = sdpa_flop_count(q.shape, k.shape, k.shape)
    backward = sdpa_backward_flop_count(q.shape, q.shape, k.shape, k.shape)
    assert flops["aten::scaled_dot_product_attention"] == forward
    assert flops["aten::_scaled_dot_product_flash_attention_for_cpu"] == forward
    assert flops["aten::_scaled_dot_product_flash_attention_for_cpu_backward"] == backward


def test_the_peak_while_an_operator_ran_is_what_the_allocator_held_then(tmp_path: Path):
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("large"):
            big = torch.empty(1 << 20)
            del big
        with record_function("small"):
            small = torch.empty(16)
    report = Recorded(profiler, tmp_path / "trace.json").report
    peak = {row.name: row.peak_memory_bytes for row in report.operators}
    assert peak["large"] - peak["small"] >= (1 << 22) - 4096
    assert report.memory is not None
    assert report.memory.peak_allocated_bytes == peak["large"]
    assert small.numel() == 16
