"""Kernels, copies, streams, and what ran alone with room beside it."""

from harness.trace import analyze, read
from tests.trace.conftest import Write, kernel, memcpy, op, recorded, runtime


def test_a_kernel_names_the_operator_that_launched_most_of_its_time(write: Write):
    trace = write(
        [
            op("rare", 0, 5, external=1),
            op("often", 10, 5, external=2),
            kernel("k", 20, 3, correlation=1, external=1),
            kernel("k", 30, 9, correlation=2, external=2),
        ]
    )
    (row,) = analyze(trace).kernels
    assert (row.count, row.total_us, row.mean_us, row.max_us, row.operator) == (2, 12, 6, 9, "often")


def test_kinds_tell_communication_from_computation():
    kinds = {row.name.split("(")[0]: row.kind for row in analyze(read(recorded("ddp_straggler_rank1.rank0"))).kernels}
    assert kinds["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] == "communication"
    assert kinds["Memcpy DtoD "] == "memcpy"
    assert kinds["Memset "] == "memset"
    assert list(kinds.values()).count("communication") == 1


def test_a_copy_is_hidden_while_a_kernel_runs_beside_it(write: Write):
    trace = write(
        [
            kernel("k", 0, 10, correlation=1),
            memcpy("Memcpy HtoD (Pinned -> Device)", 4, 10, correlation=2, stream=9),
            memcpy("Memcpy DtoH (Device -> Pageable)", 20, 10, correlation=3),
        ]
    )
    there, back = sorted(analyze(trace).copies, key=lambda copy: copy.direction, reverse=True)
    assert (there.direction, there.pageable, there.hidden_us, there.time_us) == ("HtoD", False, 6, 10)
    assert (back.direction, back.pageable, back.hidden_us) == ("DtoH", True, 0)


def test_copies_of_the_copy_bound_trace():
    (copy,) = analyze(read(recorded("copy_bound"))).copies
    assert copy.name == "Memcpy HtoD (Pageable -> Device)"
    assert (copy.count, copy.hidden_us, copy.operator) == (6, 0, "aten::copy_")
    assert copy.bytes // 3 >> 20 == 256


def small(name: str, ts: float, dur: float, correlation: int, stream: int = 7) -> dict:
    event = kernel(name, ts, dur, correlation, stream=stream)
    event["args"]["blocks per SM"] = 0.25
    return event


def test_small_kernels_that_run_alone_are_serialized_and_those_beside_others_are_not(write: Write):
    trace = write([small("alone", 0, 10, 1), small("a", 20, 10, 2, stream=1), small("b", 20, 10, 3, stream=2)])
    found = analyze(trace).serialization
    assert (found.serial_small_us, found.serial_small_count, found.concurrent_us) == (10, 1, 10)
    assert [row.name for row in found.kernels] == ["alone"]


def test_a_kernel_that_could_start_but_for_another_stream_is_waiting_for_it(write: Write):
    trace = write(
        [
            runtime("cudaLaunchKernel", 0, 1, correlation=1),
            runtime("cudaLaunchKernel", 2, 1, correlation=2),
            kernel("first", 5, 20, correlation=1, stream=1),
            kernel("second", 25, 5, correlation=2, stream=2),
        ]
    )
    found = analyze(trace).serialization
    assert (found.waiting_streams_us, found.waiting_streams_count) == (20, 1)


def test_streams_are_listed_with_their_busy_time(write: Write):
    trace = write([kernel("a", 0, 4, 1, stream=1), kernel("b", 2, 4, 2, stream=2), kernel("c", 9, 1, 3, stream=1)])
    assert [(s.stream, s.events, s.busy_us) for s in analyze(trace).streams] == [(1, 2, 5), (2, 1, 4)]
