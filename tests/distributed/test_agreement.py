"""Ranks that agree on a step while they run, here as threads of one process."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from harness.distributed.meeting import AgreedStop, Meeting
from tests.launch import Launcher


@pytest.fixture
def store() -> Any:
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))


def together(ranks: int, run: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("asker", [0, 2])
def test_ranks_that_run_at_different_paces_stop_after_the_same_step(store: Any, asker: int) -> None:
    """Nothing holds them together but the agreement: a rank is up to three times as fast as another."""
    stopped: dict[int, int] = {}

    def run(rank: int) -> None:
        with AgreedStop(store, rank=rank, size=3) as stop:
            for step in range(1, 1_000_000):
                time.sleep(0.0002 * (1 + rank))
                if step == 100 and rank == asker:
                    stop._note(signal.SIGTERM, None)
                if step >= stop.attention and stop.agreed(step):
                    assert stop.received is signal.SIGTERM
                    stopped[rank] = step
                    return

    together(3, run)
    assert len(stopped) == 3
    assert len(set(stopped.values())) == 1, stopped


def test_a_step_costs_a_comparison_until_somebody_asks(store: Any) -> None:
    stop = AgreedStop(store, rank=0, size=2)
    assert stop.attention == float("inf")


def test_an_appointment_that_a_rank_hears_of_too_late_is_off_for_all(store: Any) -> None:
    leader, prompt, late = (Meeting(store, "test", rank=rank, size=3, wake=lambda: None) for rank in range(3))
    appointment = leader.call(10, b"what")
    prompt.promise(appointment)
    assert not leader.settle(appointment.key, lambda: leader.all_promised(appointment))
    assert not prompt.settle(appointment.key, lambda: True), "only rank 0 is asked"
    late.promise(appointment)
    assert not late.settle(appointment.key, lambda: True), "a decision stands"


@pytest.mark.parametrize("wanted", [True, False])
def test_rank_0_alone_decides_on_a_window_of_the_schedule_as_its_budget_allows(store: Any, wanted: bool) -> None:
    decided: dict[int, bool] = {}

    def run(rank: int) -> None:
        meeting = Meeting(store, "windows", rank=rank, size=3, wake=lambda: None)
        if rank == 0:
            time.sleep(0.1)
        meeting.start()
        decided[rank] = meeting.settle("window 7", lambda: wanted if rank == 0 else not wanted)
        meeting.close()

    together(3, run)
    assert decided == dict.fromkeys(range(3), wanted)


def test_whoever_waits_for_rank_0_in_vain_goes_on(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.distributed.meeting.DECISION_S", 0.05)
    monkeypatch.setattr("harness.distributed.meeting.JOIN_S", 0.05)
    leader, other = (Meeting(store, "test", rank=rank, size=2, wake=lambda: None) for rank in range(2))
    for key in ("window 7", "window 9"):  # which has not joined, and which has and does not come
        assert not other.settle(key, lambda: True)
        assert not leader.settle(key, lambda: True), "nor does rank 0 record it then"
        if key == "window 7":
            leader.start()
    leader.close()


def test_a_store_that_is_gone_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=1))
    meeting = Meeting(store, "gone", rank=0, size=2, wake=lambda: None)
    del store
    assert meeting.settle("window 3", lambda: True) is False


UNFINISHED = """
import sys, time
from datetime import timedelta
import torch.distributed as dist
from harness.distributed import meeting

meeting.POLL_S = 0.0  # as if each look took long: the thread is in the store whenever the process ends
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=10))
for rank in range(3):
    meeting.Meeting(store, "test", rank=rank, size=3, wake=lambda: None).start()
time.sleep(0.1)
sys.exit(7)
"""


def test_a_process_that_ends_without_closing_its_meetings_ends_as_it_says(harness: Launcher, tmp_path: Path) -> None:
    """A thread that Python ends in torch's store takes the process with it, by SIGABRT."""
    ended = [harness.script(UNFINISHED, cwd=tmp_path) for _ in range(2)]
    assert [one.status for one in ended] == [7, 7], ended[0].text
