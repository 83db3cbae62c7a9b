"""Every reader on files that are damaged, odd, hostile or none.

``python -m benchmarks.faults --fuzz 1000`` does it for longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults import fuzz
from tests.faults.fuzz import Worker
from tests.faults.readers import READERS, Reader

SEED = os.environ.get("HARNESS_TEST_SEED", "1")
EACH = 25

# One process of pytest's, which starts one that has all imported.
pytestmark = pytest.mark.xdist_group("fuzz")


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    started = Worker(tmp_path_factory.mktemp("fuzz"))
    yield started
    started.close()


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_whatever_a_file_is_it_is_read_or_refused_by_name(reader: Reader, worker: Worker) -> None:
    answers = [worker.ask(reader.name, SEED, number) for number in range(EACH)]
    assert [answer for answer in answers if answer.outcome == "fault"] == []
    assert any(answer.outcome == "refused" for answer in answers) or not reader.refuses()


def careless(folder: Path) -> None:
    """Reads as nobody should."""
    data = (folder / "file").read_bytes()
    if data == b"slow":
        time.sleep(3600)
    if data == b"large":
        bytearray(2 * fuzz.MEMORY)
    if data == b"deadly":
        os.abort()
    if data == b"odd":
        raise ValueError("it is odd")
    if data == b"wrong":
        raise KeyError(data)
    if data == b"hostile":
        os.system("true")


DAMAGE = {
    "slow": "it took more than",
    "large": "MemoryError",
    "deadly": "the process died, with status -6",
    "odd": "it does not name file: it is odd",
    "wrong": "KeyError",
    "hostile": "it ran something",
    "good": "",
}


def serve_careless() -> None:
    fuzz.serve(
        [
            Reader(
                name=data,
                make=lambda folder: (folder / "file").write_bytes(b""),
                files=("file",),
                damage=partial(lambda data, *_: data.encode(), data),
                read=careless,
                refuses=lambda: (ValueError,),
                can_be_misplaced=False,
            )
            for data in DAMAGE
        ]
    )


def test_a_careless_reader_would_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(tmp_path, "tests.faults.test_fuzz:serve_careless")
    try:
        found = {}
        for data in DAMAGE:
            # Once it has all imported.
            monkeypatch.setattr(fuzz, "SECONDS", 3.0 if data == "slow" and worker.ask("good", SEED, 0) else 60.0)
            found[data] = worker.ask(data, SEED, 0)
    finally:
        worker.close()
    assert {data: answer.outcome for data, answer in found.items()} == {
        data: "fault" if says else "read" for data, says in DAMAGE.items()
    }
    for data, says in DAMAGE.items():
        assert says in found[data].text
