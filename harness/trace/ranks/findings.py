"""Findings across the ranks of a window.

::

    each trace, in parallel processes ──> RankFindings ──> clocks aligned, waits ──> straggler ──> verdict

The report is the lowest rank's, with a section on all ranks, and with a verdict that knows waiting from transfer.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from harness.trace.analyze import Waits, analysis
from harness.trace.errors import TraceError
from harness.trace.figures import busy
from harness.trace.file.columns import Trace
from harness.trace.file.reader import read
from harness.trace.measure.collectives import bus_factor
from harness.trace.ranks.alignment import Aligned, align, exposed_wait
from harness.trace.ranks.rank import RankFindings, rank_findings
from harness.trace.ranks.straggler import late, late_advice, straggler, waiting_caused
from harness.trace.schema import Collective, Rank, Ranks, VerdictLabel, WindowReport
from harness.trace.verdict.questions import HostShares, Late, judge, judge_host

MOST_PROCESSES = 8
"""Each holds one trace at a time."""
SMALL_BYTES = 2 * 1024**2
"""Of all files together: less is read sooner than another process has started."""


def analyze_window(
    paths: Sequence[Path], *, step_ms: float | None = None, processes: int | None = None
) -> WindowReport:
    """Findings of a window from the traces of its ranks, in any order.

    What cannot be read, or is of a rank that another file has already told of, is left out with a warning.

    Args:
        paths: One file a rank; of one rank alone, the report is :func:`harness.trace.analyze`'s with its collectives.
        step_ms: Time of a step without the profiler, of every rank.
        processes: That read at the same time; as many as there are usable cores, at most 8,
            where none is given; one for small files.

    Raises:
        TraceError: where none of them can be read.
        ValueError: for no paths.
    """
    if not paths:
        raise ValueError("a window has at least one trace")
    found, unread = _read(sorted(paths), step_ms, processes)
    if not found:
        raise unread[0]
    by_rank: dict[int, tuple[Path, RankFindings]] = {}
    warnings = [f"a rank is left out: {error}" for error in unread]
    for path, one in found:
        if one.report.rank in by_rank:
            warnings.append(f"{path.name} is left out: it says that it is rank {one.report.rank}, as another file does")
        else:
            by_rank[one.report.rank] = path, one
    placed = [by_rank[rank] for rank in sorted(by_rank)]
    report = _across([one for _, one in placed], lambda: read(placed[0][0]), step_ms)
    if warnings:
        window = msgspec.structs.replace(report.window, warnings=[*report.window.warnings, *warnings])
        report = msgspec.structs.replace(report, window=window)
    return report


def analyze_rank(trace: Trace, *, step_ms: float | None = None) -> WindowReport:
    """Findings of one rank's trace alone, with its collectives."""
    return _across([rank_findings(trace, step_ms)], lambda: trace, step_ms)


def _read(
    paths: Sequence[Path], step_ms: float | None, processes: int | None
) -> tuple[list[tuple[Path, RankFindings]], list[TraceError]]:
    workers = min(len(paths), processes or _processes(paths))
    findings = partial(_findings_or_error, step_ms=step_ms)
    if workers == 1:
        results = [findings(path) for path in paths]
    else:
        # Spawned, not forked: the process that asks may have threads.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent) as pool:
            results = list(pool.map(findings, paths))
    read_ones = [(path, one) for path, one in zip(paths, results, strict=True) if isinstance(one, RankFindings)]
    return read_ones, [one for one in results if isinstance(one, TraceError)]


def _processes(paths: Sequence[Path]) -> int:
    if sum(os.path.getsize(path) for path in paths if os.path.exists(path)) < SMALL_BYTES:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST_PROCESSES)


def _end_with_parent() -> None:
    """A pool's processes would wait for ever where the one that asked is killed."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _findings_or_error(path: Path, step_ms: float | None) -> RankFindings | TraceError:
    try:
        return rank_findings(read(path), step_ms)
    except TraceError as error:
        return error


def _across(ranks: Sequence[RankFindings], lowest: Callable[[], Trace], step_ms: float | None) -> WindowReport:
    """lowest: reads the trace of the first rank again, where others change what it says."""
    report = ranks[0].report
    if len(ranks) == 1 and not len(ranks[0].collectives.sort):
        return report
    aligned = align([one.collectives for one in ranks])
    waits = [_exposed_wait_us(aligned, place, one) for place, one in enumerate(ranks)]
    late_one = straggler(aligned, ranks, [wait or 0.0 for wait in waits]) if len(ranks) > 1 else None
    named = late(late_one) if late_one is not None else None
    fractions = [_waiting_fraction(one, wait) for one, wait in zip(ranks, waits, strict=True)]
    labels = [_label(one, fraction, named) for one, fraction in zip(ranks, fractions, strict=True)]
    if len(ranks) > 1:
        own = next((one for one in ranks if late_one is not None and one.report.rank == late_one.rank), None)
        told = Waits(
            fraction=fractions[0],
            host=_host_shares(ranks[0], fractions[0]),
            late=named if named is not None and named.rank != report.rank else None,
            advice=late_advice(late_one, own) if late_one is not None and own is not None else [],
        )
        report = analysis(lowest(), step_ms=step_ms, waits=told).report
    section = Ranks(
        ranks=_rows(ranks, aligned, waits, labels),
        collectives=_collectives(ranks, aligned),
        straggler=late_one,
        unmatched_collectives=int(np.count_nonzero(aligned.instance < 0)),
        clock_error_us=aligned.error / 1000 if len(ranks) > 1 and (aligned.instance >= 0).any() else None,
        compute_imbalance=_imbalance([one.times.get("compute", 0.0) for one in ranks]),
        memory_imbalance=_imbalance([one.report.memory.peak_allocated_bytes for one in ranks if one.report.memory]),
    )
    return msgspec.structs.replace(report, ranks=section)


def _steps(one: RankFindings) -> int:
    return max(one.report.window.steps, 1)


def _exposed_wait_us(aligned: Aligned, place: int, one: RankFindings) -> float | None:
    """In a step; None where no collective of this rank is another's too."""
    mine = aligned.of(place)
    if not (aligned.instance[mine] >= 0).any():
        return None
    return exposed_wait(one.collectives, one.collectives.start, aligned.wait[mine]) / 1000 / _steps(one)


def _waiting_fraction(one: RankFindings, wait_us: float | None) -> float:
    """Of the exposed communication."""
    return min((wait_us or 0.0) * 1000 * _steps(one) / one.exposed_ns, 1.0) if one.exposed_ns else 0.0


def _host_shares(one: RankFindings, fraction: float) -> HostShares | None:
    if one.host_shares is None:
        return None
    waiting = one.host_shares.communication * fraction
    return one.host_shares._replace(communication=one.host_shares.communication - waiting, waiting=waiting)


def _label(one: RankFindings, fraction: float, named: Late | None) -> VerdictLabel:
    """As it is with waiting known from transfer."""
    other = named if named is not None and named.rank != one.report.rank else None
    if one.shares is not None:
        damaged = bool(one.report.window.lost_events)
        return judge(one.shares.less_waiting(fraction), one.report.roofline, damaged=damaged, late=other).label
    shares = _host_shares(one, fraction)
    if shares is None:
        return one.report.verdict.label
    return judge_host(shares.input, shares, other).label


def _rows(
    ranks: Sequence[RankFindings], aligned: Aligned, waits: Sequence[float | None], labels: Sequence[VerdictLabel]
) -> list[Rank]:
    caused = waiting_caused(aligned, [one.collectives for one in ranks])
    rows = []
    for place, (one, wait, label) in enumerate(zip(ranks, waits, labels, strict=True)):
        report, table, offset = one.report, one.collectives, aligned.offset[place]
        others = max(len(ranks) - 1, 1)
        rows.append(
            Rank(
                rank=report.rank,
                host=one.host,
                source=report.source,
                step_us=report.step_time.profiled_median_us,
                unprofiled_step_us=report.step_time.unprofiled_median_us,
                busy_fraction=busy(report),
                compute_us=one.times.get("compute", 0.0),
                communication_us=int((table.end - table.start).sum()) / 1000 / _steps(one),
                exposed_communication_us=one.exposed_ns / 1000 / _steps(one),
                waiting_us=wait,
                late_us=float(caused[place]) / 1000 / _steps(one) / others if wait is not None else None,
                peak_memory_bytes=report.memory.peak_allocated_bytes if report.memory is not None else None,
                clock_offset_us=offset / 1000 if offset is not None else None,
                verdict=label,
            )
        )
    return rows


def _collectives(ranks: Sequence[RankFindings], aligned: Aligned) -> list[Collective]:
    """Rows of one kind, size and size of group, whichever group it is."""
    hidden = np.concatenate([one.collectives.hidden for one in ranks])
    length = aligned.end - aligned.start
    alike: dict[tuple[str, int, int], list[int]] = {}
    for place, sort in enumerate(aligned.sorts):
        alike.setdefault((sort.kind, sort.bytes, sort.group_size), []).append(place)
    rows = []
    for (kind, size, group_size), places in alike.items():
        mine = np.isin(aligned.sort, places)
        time = int(length[mine].sum())
        count = np.bincount(aligned.rank[mine], minlength=len(ranks))
        told = bool((aligned.instance[mine] >= 0).any())
        moving = _transfers(aligned, mine) if told else length[mine]
        typical = float(np.median(moving)) if len(moving) else 0.0
        algorithm = size / typical * 1e9 if size > 0 and typical > 0 else None
        factor = bus_factor(kind, group_size)
        having = int(np.count_nonzero(count))
        rows.append(
            Collective(
                kind=kind,
                bytes=size if size >= 0 else None,
                group_size=group_size or None,
                count=int(count.max()),
                time_us=time / 1000 / having,
                waiting_us=int(aligned.wait[mine].sum()) / 1000 / having if told else None,
                hidden_fraction=int(hidden[mine].sum()) / time if time else 0.0,
                algorithm_bandwidth=algorithm,
                bus_bandwidth=algorithm * factor if algorithm is not None and factor is not None else None,
            )
        )
    return sorted(rows, key=lambda row: -row.time_us)


def _transfers(aligned: Aligned, chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """ns of each matched collective from the last rank's joining to that rank's own end."""
    last = chosen & aligned.last
    return (aligned.end - aligned.start)[last]


def _imbalance(values: Sequence[float]) -> float | None:
    mean = float(np.mean(values)) if len(values) > 1 else 0.0
    return max(values) / mean - 1 if mean else None
