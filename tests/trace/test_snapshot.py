"""Memory snapshots in the format that torch documents."""

from __future__ import annotations

import os
import pickle
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.record.snapshots import MemorySnapshots
from harness.trace.snapshot import UNKNOWN, Allocation, SnapshotError, read_snapshot
from harness.train.exhausted import describe
from tests.faults import hostile

MIB = 2**20


def frame(filename: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}


TORCH = frame("/usr/lib/python3.11/site-packages/torch/nn/functional.py", 2000, "linear")
FORWARD = [TORCH, frame("/home/me/job/net.py", 12, "forward"), frame("/home/me/job/train.py", 40, "main")]
CPP = frame("??", 0, "at::empty_cuda")


def block(size: int, state: str = "active_allocated", frames: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"address": 0, "size": size, "requested_size": size, "state": state, "frames": frames or []}


def segment(*blocks: dict[str, Any]) -> dict[str, Any]:
    total = sum(one["size"] for one in blocks)
    active = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
    return {
        "device": 0,
        "address": 0,
        "total_size": total,
        "allocated_size": active,
        "active_size": active,
        "requested_size": active,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
    }


def written(path: Path, *segments: dict[str, Any]) -> Path:
    snapshot = {"segments": list(segments), "device_traces": [[]], "allocator_settings": {}, "external_annotations": []}
    path.write_bytes(pickle.dumps(snapshot))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return written(
        tmp_path / "oom_00000012.pickle",
        segment(block(6 * MIB, frames=FORWARD), block(2 * MIB, "inactive"), block(4 * MIB, frames=[CPP, *FORWARD])),
        segment(block(8 * MIB), block(1 * MIB, "inactive"), block(3 * MIB, "active_pending_free", FORWARD[1:])),
    )


def test_live_blocks_are_summed_by_the_innermost_line_of_ones_own(snapshot: Path) -> None:
    found = read_snapshot(snapshot)
    assert found.allocations == [
        Allocation(10 * MIB, 2, "net.py(12): forward", "linear"),
        Allocation(8 * MIB, 1, UNKNOWN, ""),
        Allocation(3 * MIB, 1, "net.py(12): forward", "forward"),
    ]
    assert (found.allocated, found.reserved, found.largest_free) == (21 * MIB, 24 * MIB, 2 * MIB)


def test_a_library_that_allocates_by_itself_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "s.pickle", segment(block(MIB, frames=[TORCH])), segment(block(MIB // 2, frames=[CPP])))
    assert [row.line for row in read_snapshot(path).allocations] == [
        "functional.py(2000): linear",
        "??(0): at::empty_cuda",
    ]


@pytest.mark.parametrize("content", [b"", b"no pickle", pickle.dumps([1])])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(content)
    with pytest.raises(SnapshotError, match="is no memory snapshot"):
        read_snapshot(path)


def test_a_snapshot_that_names_a_function_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [hostile.Touch(mark)]}))
    with pytest.raises(SnapshotError, match=r"it names posix\.system"):
        read_snapshot(path)
    assert not mark.exists()


def test_a_snapshot_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "a pipe"), (Path("/dev/zero"), "a device"), (tmp_path, "a directory")):
        with pytest.raises(SnapshotError, match=what):
            read_snapshot(path)


MEMORY = 1024 * 2**20
DAMAGED = f"""
import resource, sys
from pathlib import Path
from harness.report import markdown
from harness.report.sections.snapshot import snapshot_section
from harness.trace.snapshot import SnapshotError, read_snapshot
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
for line in sys.stdin:
    try:
        markdown.render([snapshot_section(read_snapshot(Path(line.rstrip("\\n"))), "")])
    except SnapshotError as error:
        print("refused")
    else:
        print("read")
"""


def test_no_damage_to_a_snapshot_ends_in_a_traceback_or_takes_the_memory(snapshot: Path, tmp_path: Path) -> None:
    """Cuts, flipped bits, bytes in place of others, values of other kinds, at places of a seed."""
    good, chance = snapshot.read_bytes(), random.Random(10)
    damaged = [good[: chance.randrange(len(good))] for _ in range(100)]
    for _ in range(600):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 4))):
            place = chance.randrange(len(data))
            data[place] = chance.choice((data[place] ^ 1 << chance.randrange(8), chance.randrange(256)))
        damaged.append(bytes(data))
    # A memo of 2^32 entries, which the unpickler in C makes.
    damaged += [b"\x80\x04Nr\xff\xff\xff\xff.", good[:-1] + b"r\xff\xff\xff\x7f."]
    odd = [None, -1, 2**70, 1.5, "x", b"x", [], {}, [1], (), float("nan"), {1: 2}, [None], [{}], {"frames": 1}]
    plain = pickle.loads(good)
    for value in odd:
        for key in ("segments", "device_traces"):
            damaged.append(pickle.dumps({**plain, key: value}))
        segment = plain["segments"][0]
        for key in ("total_size", "blocks"):
            damaged.append(pickle.dumps({"segments": [{**segment, key: value}]}))
        for key in ("size", "state", "frames", "history"):
            damaged.append(pickle.dumps({"segments": [{**segment, "blocks": [{**segment["blocks"][0], key: value}]}]}))
        for key in ("filename", "line", "name"):
            frames = [{**FORWARD[0], key: value}]
            damaged.append(pickle.dumps({"segments": [{**segment, "blocks": [block(MIB, frames=frames)]}]}))
    paths = [tmp_path / f"{number}.pickle" for number in range(len(damaged))]
    for path, data in zip(paths, damaged, strict=True):
        path.write_bytes(data)
    asked = "".join(f"{path}\n" for path in paths)
    done = subprocess.run([sys.executable, "-c", DAMAGED], input=asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split()
    assert len(answers) == len(damaged)
    assert answers.count("refused") > 300
    assert set(answers[:100]) == {"refused"}, "one that was cut"


def test_the_list_beside_it_and_the_log_name_the_largest(snapshot: Path, caplog: pytest.LogCaptureFixture) -> None:
    describe(snapshot, 12)
    text = snapshot.with_suffix(".md").read_text()
    assert text.startswith("## Out of memory in step 12\n")
    assert "| 10.0 MiB | 47.6 % | 2 | `net.py(12): forward` | `linear` |" in text
    (message,) = caplog.messages
    assert message.startswith("step 12: out of memory with 21.0 MiB allocated: 10.0 MiB by net.py(12): forward; ")


def exhausted(run: Path, content: Path, describe: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job on a device, which has had this allocated, fails for want of memory."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", lambda path: shutil.copy(content, path))
    snapshots = MemorySnapshots(run, on_oom=True, describe=describe)  # type: ignore[arg-type]
    snapshots.failed(ValueError("something else"), 11)
    snapshots.failed(torch.cuda.OutOfMemoryError("no more"), 12)


def test_an_exhausted_device_leaves_a_snapshot_and_the_list_of_whoever_was_asked_for_one(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exhausted(tmp_path / "told", snapshot, describe, monkeypatch)
    assert sorted(path.name for path in (tmp_path / "told" / "memory").iterdir()) == [
        "oom_00000012.md",
        "oom_00000012.pickle",
    ]
    exhausted(tmp_path / "alone", snapshot, None, monkeypatch)
    assert [path.name for path in (tmp_path / "alone" / "memory").iterdir()] == ["oom_00000012.pickle"]


def test_a_list_that_cannot_be_made_hides_no_error_of_the_job(
    snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    snapshot.write_bytes(b"no snapshot")
    exhausted(tmp_path / "run", snapshot, describe, monkeypatch)
    assert "is written, but not described" in caplog.text


def test_without_a_device_there_is_nothing_to_write(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    snapshots = MemorySnapshots(tmp_path, every_window=True, every=1, on_oom=True)
    snapshots.start()
    snapshots.window_over(3)
    snapshots.failed(torch.cuda.OutOfMemoryError("no more"), 3)
    snapshots.stop()
    assert list(tmp_path.iterdir()) == []


def test_reading_one_loads_no_torch() -> None:
    program = "import sys, harness.trace.snapshot, harness.report.sections.snapshot; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
