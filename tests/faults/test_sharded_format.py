"""A sharded checkpoint under the torch that is there: saved by torch, read by us, and refused where it is hostile.

One process and gloo: what is looked at is torch's own format, which differs between its versions.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from harness.distributed.sharded import Planner, Reader, read_metadata
from harness.distributed.strategy import _as_runtime_error
from harness.errors import UsageError
from tests.faults import hostile


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state() -> dict[str, Any]:
    return {"model": {"a": torch.arange(6.0).reshape(2, 3)}, "optimizer": {"lr": 0.1, "betas": (0.9, 0.99)}}


def nothing_yet() -> dict[str, Any]:
    return {"model": {"a": torch.zeros(2, 3)}, "optimizer": {"lr": 0.0, "betas": (0.0, 0.0)}}


def restored(folder: Path) -> dict[str, Any]:
    found = nothing_yet()
    with _as_runtime_error():
        load(found, storage_reader=Reader(folder, read_metadata(folder)), planner=Planner())
    return found


@pytest.mark.usefixtures("alone")
def test_what_torch_saved_is_restored_and_what_would_run_is_refused(tmp_path: Path) -> None:
    folder, mark = tmp_path / "checkpoint", tmp_path / "ran"
    save(state(), storage_writer=FileSystemWriter(folder))
    if "OUT" in os.environ:
        (Path(os.environ["OUT"]) / f"torch-{torch.__version__}").write_bytes((folder / ".metadata").read_bytes())
    found = restored(folder)
    assert torch.equal(found["model"]["a"], state()["model"]["a"])
    assert found["optimizer"] == state()["optimizer"]
    metadata = read_metadata(folder)
    for index, place in metadata.storage_data.items():
        if isinstance(metadata.state_dict_metadata[index.fqn], BytesStorageMetadata):
            hostile.in_place(folder / place.relative_path, place.offset, place.length, hostile.pickled(mark))
    with pytest.raises(UsageError, match=r"posix\.system"):
        restored(folder)
    (folder / ".metadata").write_bytes(pickle.dumps(hostile.Touch(mark)))
    with pytest.raises(UsageError, match=r"posix\.system"):
        restored(folder)
    assert not mark.exists()
