"""What the plugin's parser makes of normalised traces, against the report's numbers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from harness.board.official.call_stacks import call_stacks
from harness.board.official.parser import Answer, Request, parse
from harness.board.official.ranks import compared
from harness.board.official.tensor_cores import uses_tensor_cores
from harness.trace import WindowReport, analyze, read
from tests.board.official.conftest import TRACES, trace

THIRD_PARTY = Path(__file__).parents[4] / "shared" / "traces" / "third_party"
OURS = sorted(TRACES.glob("*.pt.trace.json.gz"))
# Left out: files of old torch in which runtime calls cross the ends of their operators; see docs/plugin.md.
OTHERS = [
    THIRD_PARTY / f"{name}.pt.trace.json.gz"
    for name in (
        "hta_cpu_only",
        "hta_mi250_rocm",
        "kineto_resnet50_2021",
        "tracelens_h100_bert",
        "tracelens_mi210_gpu_only",
    )
]


def stem(path: Path) -> str:
    return path.name.split(".pt.")[0]


@pytest.fixture(params=[*OURS, *OTHERS], ids=stem)
def path(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    if not found.is_file():
        pytest.skip(f"{found} is not here")
    return found


@cache
def shown(path: Path) -> Answer:
    answer = parse(Request(str(path), "host_0", "step 1"))
    assert answer.error is None, answer.error
    return answer


@cache
def report(path: Path) -> WindowReport:
    return analyze(read(path))


def test_operators_have_the_reports_calls_and_times(path: Path) -> None:
    operators = {row.name: row for row in report(path).operators}
    rows = shown(path).profile.operation_table_by_name["data"]
    on_device = bool(report(path).totals.device_time_us)
    for row in rows:
        expected = operators[row["name"]]
        assert row["calls"] == expected.count
        assert row["host_total_duration"] == pytest.approx(expected.cpu_time_us, abs=0.6)
        assert row["host_self_duration"] == pytest.approx(expected.self_cpu_time_us, abs=0.6)
        if on_device:
            assert row["device_total_duration"] == pytest.approx(expected.device_time_us, abs=0.6)
            assert row["device_self_duration"] == pytest.approx(expected.self_device_time_us, abs=0.6)


def test_no_operator_with_device_time_is_missing(path: Path) -> None:
    rows = {row["name"] for row in shown(path).profile.operation_table_by_name["data"]}
    expected = {
        row.name for row in report(path).operators if row.name.startswith("aten::") and row.self_device_time_us > 0
    }
    assert expected <= rows


def test_kernels_have_the_reports_calls_and_times(path: Path) -> None:
    expected = {row.name: row for row in report(path).kernels if row.kind in ("compute", "communication")}
    table = getattr(shown(path).profile, "kernel_table", None)
    rows = {row[0]: row for row in table["data"]["rows"]} if table else {}
    assert set(rows) == set(expected)
    for name, row in rows.items():
        calls, total = row[2], row[3]
        assert calls == expected[name].count
        assert total == pytest.approx(expected[name].total_us, abs=0.6)


def test_steps_last_as_long_as_the_report_says_and_are_divided_without_rest(path: Path) -> None:
    if not report(path).steps:
        pytest.skip("without steps")
    overview = shown(path).profile.overview["steps"]
    times = [index for index, column in enumerate(overview["columns"]) if index and column["type"] == "number"]
    assert [row[0] for row in overview["rows"]] == [str(step.number) for step in report(path).steps]
    for row, step in zip(overview["rows"], report(path).steps, strict=True):
        assert sum(row[index] for index in times) == pytest.approx(step.duration_us, abs=0.05)


def test_memory_peaks_at_the_reports_bytes(path: Path) -> None:
    memory, snapshot = report(path).memory, shown(path).profile.memory_snapshot
    if memory is None:
        pytest.skip("without the allocator's totals")
    for pool in memory.pools:
        if pool.peak_allocated_bytes < 0:
            continue
        key = (1, pool.index) if pool.device_type == "device" else (0, pool.index)
        assert snapshot.get_peak_memory().get(key, 0) == pool.peak_allocated_bytes


def test_the_file_stays_as_it_is(path: Path) -> None:
    before = hashlib.sha256(path.read_bytes()).digest()
    shown.__wrapped__(path)
    assert hashlib.sha256(path.read_bytes()).digest() == before


def costs(name: str) -> dict[str, float]:
    (average,) = shown(trace(name)).profile.overview["performance"]
    return {part["name"]: part["value"] for part in average["children"]}


def test_time_in_the_data_loader_is_that_of_the_loader() -> None:
    assert costs("input_slow_loader")["DataLoader"] == pytest.approx(19_088, rel=0.01)
    assert costs("overhead_mlp")["DataLoader"] == 0


def test_launches_are_runtime() -> None:
    assert costs("overhead_mlp")["Runtime"] == pytest.approx(1_454, rel=0.01)


def test_communication_is_that_of_the_kernels_on_the_device() -> None:
    """Rank 0 waits in the kernels, and the time of the calls on the host is no part of it."""
    for rank in (0, 1):
        name = f"ddp_straggler_rank1.rank{rank}"
        found = report(trace(name))
        (device,) = found.device
        # Kernels of steps before the window are in the report's time and in no step of it.
        assert costs(name)["Communication"] * len(found.steps) <= device.communication_us
    assert (
        costs("ddp_straggler_rank1.rank0")["Communication"] > 100 * costs("ddp_straggler_rank1.rank1")["Communication"]
    )


def test_the_distributed_view_tells_waiting_from_transfer_and_knows_the_bytes() -> None:
    answers = [shown(trace(f"ddp_straggler_rank1.rank{rank}")) for rank in (0, 1)]
    answers = [
        Answer(answer.profile, renamed(answer.distributed, f"host_{rank}")) for rank, answer in enumerate(answers)
    ]
    view = compared(answers, "step 1")
    waiting = view.steps_to_wait["data"]["all"]
    assert waiting["host_0"][1] > 14_000
    assert waiting["host_1"][1] < 10
    assert waiting["host_0"][0] == pytest.approx(waiting["host_1"][0], abs=2)
    (row,) = view.comm_ops["data"]["host_0"]["rows"]
    elements = 3 * (1_059_850 + 5_248_000)
    assert row[:3] == ["nccl:all_reduce", 6, 4 * elements]
    assert set(view.steps_to_wait["data"]) == {"all", "4", "5", "6"}


def renamed(distributed: Any, worker: str) -> Any:
    distributed.worker = worker
    return distributed


def test_operators_carry_the_lines_that_called_them() -> None:
    stacks = call_stacks(read(trace("eager_transformer_mem")))
    assert len(stacks) > 100
    assert any(stack.split(";")[0].startswith("torch/nn/") or ".py(" in stack for stack in stacks.values())
    table = shown(trace("eager_transformer_mem")).profile.operation_table_by_name["data"]
    assert next(row for row in table if row["name"] == "aten::addmm")["has_call_stack"]
    rows = shown(trace("eager_transformer_mem")).profile.operation_stack_by_name["aten::addmm"]["data"]
    expected = next(row for row in report(trace("eager_transformer_mem")).operators if row.name == "aten::addmm")
    assert sum(row["calls"] for row in rows) <= expected.count
    assert all(".py(" in row["call_stack"] for row in rows)


def test_a_trace_without_stacks_has_none() -> None:
    assert call_stacks(read(trace("overhead_mlp"))) == {}


@pytest.mark.parametrize(
    ("name", "uses"),
    [
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x128x8_stage3_ffma_execute_kernel__5x_cublas", False),
        ("sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_tensor16x8x8_kernel", True),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute", True),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nt_align1>", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align8>", True),
        ("volta_h884gemm_64x128_ldg8_nn", True),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", True),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>", True),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)", False),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >", False),
        ("volta_sgemm_128x64_nn", False),
    ],
)
def test_tensor_cores_are_told_by_the_kernels_name(name: str, uses: bool) -> None:
    assert uses_tensor_cores(name) is uses


def test_tensor_cores_are_marked_in_the_tables() -> None:
    bf16 = shown(trace("compute_gemm_bf16")).profile.tc_pie["total"]["rows"]
    assert dict(bf16)["Using Tensor Cores"] == 1
    fp32 = shown(trace("matmul_4096")).profile.tc_pie["total"]["rows"]
    assert dict(fp32)["Using Tensor Cores"] == 0


def broken(kind: str, content: bytes) -> bytes:
    return {"cut off": content[: len(content) // 2], "empty": b"", "no trace": b"{}", "text": b"hello"}[kind]


@pytest.mark.parametrize("kind", ["empty", "no trace", "text"])
def test_what_is_no_trace_is_said_in_a_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "host_0.1.pt.trace.json"
    file.write_bytes(broken(kind, b""))
    answer = parse(Request(str(file), "host_0", "1"))
    assert answer.profile is None
    assert answer.error is not None
    assert file.name in answer.error
    assert "\n" not in answer.error


def test_a_file_that_was_cut_off_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    file = tmp_path / "host_0.1.pt.trace.json.gz"
    file.write_bytes(broken("cut off", trace("overhead_mlp").read_bytes()))
    answer = parse(Request(str(file), "host_0", "1"))
    assert answer.error is None
    rows = {row["name"]: row["calls"] for row in answer.profile.operation_table_by_name["data"]}
    whole = {row.name: row.count for row in analyze(read(file)).operators}
    assert rows
    assert all(calls == whole[name] for name, calls in rows.items())


def events() -> Iterator[dict[str, Any]]:
    yield {"ph": "X", "name": "no category", "pid": 1, "tid": 1, "ts": 10.0, "dur": 5.0}
    yield {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": "main", "ts": 11.0, "dur": 2.5}
    yield {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 14.0, "dur": 3.0}


def test_odd_events_do_not_cost_the_file(tmp_path: Path) -> None:
    """One without a category, which ends the plugin's own parser; a thread that is no number; no arguments at all."""
    file = tmp_path / "host_0.1.pt.trace.json"
    file.write_bytes(msgspec.json.encode({"traceEvents": list(events())}))
    answer = parse(Request(str(file), "host_0", "1"))
    assert answer.error is None
    (row,) = answer.profile.operation_table_by_name["data"]
    assert row["name"] == "aten::mm"
    assert answer.profile.kernel_table["data"]["rows"][0][:4] == ["gemm", "No", 1, 3]


def test_markup_in_a_devices_name_is_text(tmp_path: Path) -> None:
    file = tmp_path / "host_0.1.pt.trace.json"
    device = {"id": 0, "name": "<img src=x onerror=alert(1)>", "totalGlobalMem": 1}
    file.write_bytes(msgspec.json.encode({"deviceProperties": [device], "traceEvents": list(events())}))
    summary = parse(Request(str(file), "host_0", "1")).profile.gpu_summary
    assert not any("<img" in str(row["value"]) for row in summary)
    assert any("&lt;img" in str(row["value"]) for row in summary)
