"""Findings across ranks: what a window says once all of its traces are read."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.trace import TraceError, WindowReport, analyze, analyze_window, read
from harness.trace.measure.collectives import bus_factor, kind_of
from tests.trace.conftest import annotation, kernel, memcpy, op, recorded, runtime

STEPS = 4
STEP_US = 10_000.0
MEGABYTE = 1_000_000

Ranks = Callable[..., list[Path]]


class Job:
    """Ranks whose collectives are simulated: a step computes, then reduces, and ends for all ranks together.

    Args:
        compute_us, host_us, input_us, sync_us: What each rank does before it joins, for each rank, or for each rank
            and step.
        transfer_us: Of the all-reduce.
        clock_us: Of each rank, added to its times.
    """

    def __init__(
        self,
        compute_us: Sequence[Any],
        *,
        host_us: Sequence[float] | None = None,
        input_us: Sequence[float] | None = None,
        sync_us: Sequence[float] | None = None,
        transfer_us: float = 100.0,
        clock_us: Sequence[float] | None = None,
    ) -> None:
        zeros = [0.0] * len(compute_us)
        self._compute = [one if isinstance(one, list) else [one] * STEPS for one in compute_us]
        self._before = [host_us or zeros, input_us or zeros, sync_us or zeros]
        self._transfer = transfer_us
        self._clock = clock_us or zeros

    def write(self, folder: Path) -> list[Path]:
        size = len(self._compute)
        events: list[list[dict[str, Any]]] = [[] for _ in range(size)]
        begin = 1e7
        for step in range(STEPS):
            joined = []
            for rank in range(size):
                host, feeding, waiting = (column[rank] for column in self._before)
                launch = begin + host + feeding + waiting + 20
                joined.append(launch + 10 + self._compute[rank][step])
                serial = 10 * step + 100
                events[rank] += [
                    *([annotation("enumerate(DataLoader)#_Iter.__next__", begin, feeding)] if feeding else []),
                    *([runtime("cudaStreamSynchronize", begin + 1, waiting, serial)] if waiting else []),
                    op("aten::mm", launch - 5, 40, serial + 1),
                    runtime("cudaLaunchKernel", launch, 5, serial + 2, serial + 1),
                    kernel("sgemm", launch + 10, self._compute[rank][step], serial + 2, serial + 1, device=rank),
                    op("c10d::allreduce_", launch + 50, 20, serial + 3),
                    runtime("cudaLaunchKernel", launch + 55, 5, serial + 4, serial + 3),
                ]
            end = max(joined) + self._transfer
            for rank, start in enumerate(joined):
                serial = 10 * step + 104
                events[rank] += [
                    all_reduce(start, end - start, serial, rank, group_size=size),
                    annotation(f"ProfilerStep#{step + 7}", begin, end - begin),
                ]
            begin = end + 5
        paths = []
        for rank, clock in enumerate(self._clock):
            for event in events[rank]:
                event["ts"] += clock
            path = folder / f"node{rank // 2}_{rank}.123.pt.trace.json"
            info = {"backend": "nccl", "rank": rank, "world_size": size}
            path.write_text(json.dumps({"distributedInfo": info, "traceEvents": events[rank]}))
            paths.append(path)
        return paths


def all_reduce(ts: float, dur: float, correlation: int, device: int, *, group_size: int, **said: Any) -> dict[str, Any]:
    event = kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts, dur, correlation, stream=20, device=device)
    event["args"] |= {
        "Collective name": "allreduce",
        "In msg nelems": MEGABYTE // 4,
        "Out msg nelems": MEGABYTE // 4,
        "Group size": group_size,
        "dtype": "Float",
        "Process Group Name": "0",
        "Process Group Ranks": str(list(range(group_size))),
        **said,
    }
    return event


def window(paths: Sequence[Path]) -> WindowReport:
    return analyze_window(paths, processes=1)


def late_advice(report: WindowReport) -> list[str]:
    return [one.reason for one in report.verdict.advice if "late" in one.lever and "rank" in one.lever]


# ---- the recorded job -------------------------------------------------------------------------------------------


def test_the_recorded_straggler_is_named_and_its_reason_is_the_verdict() -> None:
    paths = [recorded(f"ddp_straggler_rank1.rank{rank}") for rank in (0, 1)]
    assert analyze(read(paths[0])).verdict.label == "communication-bound"  # as far as one rank can tell
    report = analyze_window(paths, processes=2)
    ranks = report.ranks
    assert ranks is not None
    assert ranks.straggler is not None
    assert (ranks.straggler.rank, ranks.straggler.reason) == (1, "host")
    assert ranks.straggler.where == "training_step"
    assert report.rank == 0
    assert report.verdict.label == "overhead-bound"
    assert any(evidence.measure == "waiting for rank 1" for evidence in report.verdict.evidence)
    assert "rank 1" in late_advice(report)[0]
    waiting, late = ranks.ranks
    # Rank 0 is in its all-reduces for 15.2 ms a step, of which rank 1 needs 0.13 ms for the same bytes.
    assert waiting.waiting_us == pytest.approx(14_817, abs=20)
    assert late.waiting_us == pytest.approx(0, abs=5)
    assert late.late_us == pytest.approx(waiting.waiting_us)
    assert abs(late.clock_offset_us or 0) < 10  # one host
    assert ranks.clock_error_us is not None
    assert ranks.clock_error_us < 10
    assert ranks.unmatched_collectives == 0
    assert [(row.kind, row.bytes, row.count) for row in ranks.collectives] == [
        ("all_reduce", 1_059_850 * 4, 3),
        ("all_reduce", 5_248_000 * 4, 3),
    ]
    # 21 MB in the 92 µs that rank 1's kernel takes.
    assert ranks.collectives[1].algorithm_bandwidth == pytest.approx(5_248_000 * 4 / 92.384e-6, rel=0.001)


# ---- clocks, waiting, transfer ----------------------------------------------------------------------------------


def test_clocks_are_aligned_on_the_collectives(tmp_path: Path) -> None:
    clocks = [0.0, 123_456_789.0, -5_000.0]
    job = Job([500.0, 700.0, 600.0], transfer_us=1000.0, clock_us=clocks)
    ranks = window(job.write(tmp_path)).ranks
    assert ranks is not None
    assert [row.clock_offset_us for row in ranks.ranks] == clocks
    assert ranks.clock_error_us == 0
    assert [row.waiting_us for row in ranks.ranks] == pytest.approx([200.0, 0.0, 100.0])
    assert [row.late_us for row in ranks.ranks] == pytest.approx([0.0, 150.0, 0.0])
    assert [row.communication_us for row in ranks.ranks] == pytest.approx([1200.0, 1000.0, 1100.0])
    assert ranks.compute_imbalance == pytest.approx(700 / 600 - 1)


def test_transfer_is_communication_bound(tmp_path: Path) -> None:
    report = window(Job([500.0, 520.0], transfer_us=5000.0, clock_us=[0.0, 1e6]).write(tmp_path))
    assert report.verdict.label == "communication-bound"
    assert report.ranks is not None
    assert report.ranks.straggler is None
    assert {row.verdict for row in report.ranks.ranks} == {"communication-bound"}
    assert not late_advice(report)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize(
    ("more", "reason", "label"),
    [
        ({"host_us": 9000.0}, "host", "overhead-bound"),
        ({"input_us": 9000.0}, "input", "input-bound"),
        ({"sync_us": 9000.0}, "sync", "sync-bound"),
        ({"compute_us": 9000.0}, "compute", "device-bound"),
    ],
)
def test_the_late_rank_is_named_with_what_its_own_trace_shows(
    tmp_path: Path, more: dict[str, float], reason: str, label: str, late: int
) -> None:
    given: dict[str, Any] = {"compute_us": [300.0] * 3}
    for name, us in more.items():
        given[name] = [us if rank == late else given.get(name, [0.0])[0] for rank in range(3)]
    report = window(Job(**given, clock_us=[0.0, -7e5, 3e9]).write(tmp_path))
    assert report.ranks is not None
    found = report.ranks.straggler
    assert found is not None
    assert (found.rank, found.host, found.reason) == (late, "node0", reason)
    assert found.own_us - found.others_us == pytest.approx(9000, rel=0.1)
    assert found.share == 1.0
    assert report.verdict.label == label
    assert f"rank {late}" in late_advice(report)[0]
    if reason == "compute":
        assert found.where == "aten::mm"


def test_ranks_that_are_late_in_turn_have_no_straggler(tmp_path: Path) -> None:
    turns = [[9000.0 if (step % 2) == rank else 300.0 for step in range(STEPS)] for rank in (0, 1)]
    report = window(Job(turns, transfer_us=50).write(tmp_path))
    assert report.ranks is not None
    assert report.ranks.straggler is None
    assert report.ranks.ranks[0].waiting_us == pytest.approx(8700 / 2, rel=0.01)
    assert report.verdict.label not in ("communication-bound", "overhead-bound")


def test_a_little_lateness_is_advice_and_not_the_verdict(tmp_path: Path) -> None:
    report = window(Job([6000.0, 8000.0], transfer_us=100).write(tmp_path))
    assert report.verdict.label == "device-bound"
    assert report.ranks is not None
    assert report.ranks.straggler is not None
    assert "rank 1" in late_advice(report)[0]


def test_waiting_that_computation_hides_is_no_exposed_waiting(tmp_path: Path) -> None:
    paths = Job([500.0, 2500.0]).write(tmp_path)
    document = json.loads(paths[0].read_text())
    reductions = [event for event in document["traceEvents"] if "nccl" in event["name"]]
    for event in reductions:  # rank 0 computes beside the first 1,500 µs of its all-reduce
        beside = kernel("sgemm", event["ts"], 1500.0, event["args"]["correlation"] - 2, device=0)
        document["traceEvents"].append(beside)
    paths[0].write_text(json.dumps(document))
    ranks = window(paths).ranks
    assert ranks is not None
    assert ranks.ranks[0].waiting_us == pytest.approx(500.0)
    assert ranks.collectives[0].waiting_us == pytest.approx(2000 * STEPS / 2)
    assert ranks.collectives[0].hidden_fraction == pytest.approx(1500 / (2100 + 100))


def test_collectives_that_wait_side_by_side_wait_once(tmp_path: Path) -> None:
    paths = Job([500.0, 2500.0]).write(tmp_path)
    for rank, path in enumerate(paths):
        document = json.loads(path.read_text())
        for event in [event for event in document["traceEvents"] if "nccl" in event["name"]]:
            serial = event["args"]["correlation"] + 3
            said = {"Process Group Name": "1", "In msg nelems": 7, "Out msg nelems": 7}
            beside = all_reduce(event["ts"], event["dur"], serial, rank, group_size=2, **said)
            document["traceEvents"] += [beside, runtime("cudaLaunchKernel", event["ts"] - 400, 2, serial)]
        path.write_text(json.dumps(document))
    ranks = window(paths).ranks
    assert ranks is not None
    assert len(ranks.collectives) == 2
    assert ranks.ranks[0].waiting_us == pytest.approx(2000)
    assert ranks.ranks[1].late_us == pytest.approx(2000)


def test_collectives_that_only_one_rank_has_are_not_matched(tmp_path: Path) -> None:
    paths = Job([500.0, 700.0]).write(tmp_path)
    document = json.loads(paths[1].read_text())
    place = next(i for i, event in enumerate(document["traceEvents"]) if "nccl" in event["name"])
    del document["traceEvents"][place]
    paths[1].write_text(json.dumps(document))
    ranks = window(paths).ranks
    assert ranks is not None
    assert ranks.unmatched_collectives == 1
    assert ranks.ranks[0].waiting_us == pytest.approx(200.0 * (STEPS - 1) / STEPS)


def test_clocks_reach_ranks_through_those_in_between(tmp_path: Path) -> None:
    """Ranks 0 and 1, and 1 and 2, reduce in groups of two; 3 reduces alone with 4."""
    groups = [(0, 1), (1, 2), (3, 4)]
    clocks = [0.0, 40_000.0, -9000.0, 77.0, 78.0]
    events: list[list[dict[str, Any]]] = [[annotation("ProfilerStep#1", 1e6 + 1000, 9000)] for _ in clocks]
    for number, group in enumerate(groups):
        start = 1e6 + 2000 + 1000 * number
        for rank in group:
            said = {"Process Group Name": str(number), "Process Group Ranks": str(list(group))}
            events[rank] += [
                runtime("cudaLaunchKernel", start - 10, 2, 50 + number),
                all_reduce(start, 300.0, 50 + number, rank, group_size=2, **said),
            ]
    paths = []
    for rank, mine in enumerate(events):
        for event in mine:
            event["ts"] += clocks[rank]
        paths.append(tmp_path / f"{rank}.json")
        info = {"rank": rank, "world_size": 5}
        paths[-1].write_text(json.dumps({"distributedInfo": info, "traceEvents": mine}))
    ranks = window(paths).ranks
    assert ranks is not None
    assert [row.clock_offset_us for row in ranks.ranks] == [0.0, 40_000.0, -9000.0, None, None]
    assert [row.waiting_us is None for row in ranks.ranks] == [False, False, False, True, True]


# ---- what collectives are ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "size", "factor"),
    [  # nccl-tests, doc/PERFORMANCE.md
        ("all_reduce", 4, 1.5),
        ("all_reduce", 2, 1.0),
        ("all_gather", 8, 7 / 8),
        ("reduce_scatter", 8, 7 / 8),
        ("all_to_all", 4, 3 / 4),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("send_recv", 8, 1.0),
        ("barrier", 8, None),
        ("all_reduce", 0, None),
    ],
)
def test_bus_bandwidth_is_that_of_nccl_tests(kind: str, size: int, factor: float | None) -> None:
    assert bus_factor(kind, size) == factor


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("allreduce", "all_reduce"),
        ("nccldevkernel_allreduce_sum_f32_ring_ll", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("alltoall_base", "all_to_all"),
        ("broadcast", "broadcast"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("reduce", "reduce"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "send_recv"),
        ("barrier", "barrier"),
        ("something_new", "other"),
    ],
)
def test_kinds_by_every_spelling(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_bandwidth_is_of_the_transfer_alone(tmp_path: Path) -> None:
    ranks = window(Job([500.0, 900.0, 600.0, 550.0], transfer_us=100.0).write(tmp_path)).ranks
    assert ranks is not None
    (row,) = ranks.collectives
    assert (row.kind, row.bytes, row.group_size, row.count) == ("all_reduce", MEGABYTE, 4, STEPS)
    assert row.algorithm_bandwidth == pytest.approx(MEGABYTE / 100e-6)
    assert row.bus_bandwidth == pytest.approx(1.5 * MEGABYTE / 100e-6)


@pytest.mark.parametrize(("reason", "label"), [("input", "input-bound"), ("compute", "cpu-bound")])
def test_gloo_runs_on_the_host(tmp_path: Path, reason: str, label: str) -> None:
    """Rank 1 fetches input or computes for 6 ms more; gloo's thread of rank 0 waits."""
    paths = []
    for rank in (0, 1):
        feeding = 100.0 + 6000.0 * rank * (reason == "input")
        computing = 50.0 + 300.0 * rank * (reason == "compute")
        events, begin = [], 1000.0
        for step in range(3):
            computed = begin + feeding + 20 * computing
            start, end = computed + 10, begin + 6100 + 1010 + 400
            reduction = annotation("gloo:all_reduce", start, end - start, tid=2)
            reduction["args"] |= {"Input Dims": [[1000, 5]], "Input type": ["float"], "Concrete Inputs": [""]}
            events += [
                annotation(f"ProfilerStep#{step}", begin, end + 20 - begin),
                annotation("data", begin, feeding),
                *(op(f"aten::op{i}", begin + feeding + i * computing, computing, 100 * step + i) for i in range(20)),
                # It takes longer than any of them, and is no work.
                op("c10d::allreduce_", computed, 5.0 + 390 * rank, 100 * step + 50),
                reduction,
            ]
            begin = end + 20
        for event in events:
            event["ts"] += 1e6 * rank
        paths.append(tmp_path / f"host_{rank}.1.pt.trace.json")
        info = {"backend": "gloo", "rank": rank, "world_size": 2}
        paths[-1].write_text(json.dumps({"distributedInfo": info, "traceEvents": events}))
    report = window(paths)
    assert report.ranks is not None
    (row,) = report.ranks.collectives
    assert (row.kind, row.bytes, row.count) == ("all_reduce", 20_000, 3)
    assert row.algorithm_bandwidth == pytest.approx(20_000 / 400e-6)
    assert [one.waiting_us for one in report.ranks.ranks] == pytest.approx([6000.0, 0.0])
    found = report.ranks.straggler
    assert found is not None
    assert (found.rank, found.reason) == (1, reason)
    assert found.where is not None
    assert found.where.startswith("data" if reason == "input" else "aten::")
    assert report.verdict.label == label
    assert all((one.operator or "aten::").startswith(("aten::", "data")) for one in report.verdict.advice)
    assert report.verdict.evidence[-1].measure == "waiting for rank 1"


# ---- files ------------------------------------------------------------------------------------------------------


def test_one_rank_alone_tells_its_collectives(tmp_path: Path) -> None:
    path = Job([500.0, 700.0]).write(tmp_path)[0]
    report, alone = window([path]), analyze(read(path))
    assert report.ranks is not None
    assert (report.verdict, report.operators) == (alone.verdict, alone.operators)
    assert report.ranks.ranks[0].waiting_us is None
    assert report.ranks.collectives[0].waiting_us is None
    assert report.ranks.straggler is None


def test_a_trace_without_collectives_has_no_section() -> None:
    assert window([recorded("overhead_mlp")]).ranks is None


def test_a_rank_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    paths = Job([500.0, 600.0, 700.0]).write(tmp_path)
    paths[0].write_text("no trace")
    report = window(paths)
    assert report.rank == 1
    assert report.ranks is not None
    assert [row.rank for row in report.ranks.ranks] == [1, 2]
    assert any(paths[0].name in warning for warning in report.window.warnings)
    for path in paths:
        path.write_text("no trace")
    with pytest.raises(TraceError, match="no JSON"):
        analyze_window(paths, processes=2)


def test_two_files_of_one_rank_are_not_two_ranks(tmp_path: Path) -> None:
    paths = Job([500.0, 600.0]).write(tmp_path)
    paths.append(tmp_path / "node0_1.999.pt.trace.json")
    paths[-1].write_text(paths[1].read_text())
    report = window(paths)
    assert report.ranks is not None
    assert [row.rank for row in report.ranks.ranks] == [0, 1]
    assert any("rank 1" in warning for warning in report.window.warnings)


ASK = """
import multiprocessing, os, sys, time
from concurrent.futures import ProcessPoolExecutor
from harness.trace.ranks.findings import _end_with_parent

context = multiprocessing.get_context("spawn")
with ProcessPoolExecutor(1, mp_context=context, initializer=_end_with_parent) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_processes_end_with_the_one_that_asked() -> None:
    with subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True) as asking:
        assert asking.stdout is not None
        reader = Path("/proc", asking.stdout.readline().strip(), "stat")
        assert reader.exists()
        asking.kill()
    deadline = time.monotonic() + 20
    while reader.exists() and reader.read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < deadline, "a reader has outlived the process that asked"
        time.sleep(0.05)


def test_damage_in_a_collectives_arguments_costs_no_rank(tmp_path: Path) -> None:
    paths = Job([500.0, 600.0]).write(tmp_path)
    text = paths[1].read_text().replace('"Group size": 2', '"Group size": 2, "x": NaN', 1)
    paths[1].write_text(text)
    report = window(paths)
    assert report.ranks is not None
    assert len(report.ranks.ranks) == 2


def test_memory_reaches_the_ranks_rows(tmp_path: Path) -> None:
    paths = Job([500.0, 600.0]).write(tmp_path)
    for rank, path in enumerate(paths):
        document = json.loads(path.read_text())
        args = {"Bytes": 10, "Total Allocated": 1000 * (rank + 1), "Total Reserved": 9000, "Device Type": 1}
        document["traceEvents"].append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": 1,
                "tid": 1,
                "ts": 1500.0,
                "args": args | {"Device Id": rank},
            }
        )
        path.write_text(json.dumps(document))
    ranks = window(paths).ranks
    assert ranks is not None
    assert [row.peak_memory_bytes for row in ranks.ranks] == [1000, 2000]
    assert ranks.memory_imbalance == pytest.approx(2000 / 1500 - 1)


def test_copies_make_a_rank_late(tmp_path: Path) -> None:
    paths = Job([300.0, 300.0], host_us=[0.0, 5000.0]).write(tmp_path)
    document = json.loads(paths[1].read_text())
    launches = [event for event in document["traceEvents"] if event["name"] == "sgemm"]
    for number, event in enumerate(launches):  # what looked like the host is a copy
        copy = memcpy("Memcpy HtoD (Pageable -> Device)", event["ts"] - 4990, 4980, 900 + number)
        copy["args"]["device"] = 1
        document["traceEvents"] += [copy, runtime("cudaMemcpyAsync", copy["ts"] - 5, 4, 900 + number)]
    paths[1].write_text(json.dumps(document))
    report = window(paths)
    assert report.ranks is not None
    assert report.ranks.straggler is not None
    assert report.ranks.straggler.reason == "copy"
    assert report.verdict.label == "copy-bound"
