"""No file that a resumption or a report reads runs code: real payloads, which make a file where they are run."""

from __future__ import annotations

import pickle
import shutil
import zlib
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta

from harness.distributed.sharded import read_metadata
from harness.errors import UsageError
from harness.train.checkpoint import FORMAT
from tests import reading
from tests.distributed.jobs import TINY_GPT, start, train
from tests.faults import hostile
from tests.launch import TINY, Launcher, expect_usage_error

CHECKPOINT = "checkpoints/step_00000002"
SHARDED = (*TINY_GPT, "data=text", "data.train.context_length=16", "data.eval=null", "trainer.eval_every=null")
METADATA = Path(__file__).parent / "metadata"
"""Of sharded checkpoints that 0.1.0 wrote, by several versions of torch."""


@pytest.fixture(scope="module")
def sharded(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two ranks with a sharded checkpoint after two of four steps."""
    logdir = tmp_path_factory.mktemp("sharded") / "logs"
    overrides = ("strategy=fsdp2", "data.batch_size=4", "checkpoint.every=2", "trainer.max_steps=4")
    train(launcher, 2, *SHARDED, *overrides, f"logdir={logdir}")
    run = reading.only_run(logdir)
    shutil.rmtree(run / "checkpoints/step_00000004")
    return run


@pytest.fixture(scope="module")
def whole(launcher: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process with a checkpoint after two of four steps."""
    logdir = tmp_path_factory.mktemp("whole") / "logs"
    overrides = ("checkpoint=default", "checkpoint.every=2", "trainer.max_steps=4", f"logdir={logdir}")
    done = launcher.run("train", *TINY, *overrides)
    assert done.status == 0, done.text
    run = reading.only_run(logdir)
    (run / "checkpoints/step_00000004.pt").unlink()
    return run


# Of one process of pytest's, in which the two runs are trained once.
pytestmark = pytest.mark.xdist_group("no code")


def copy(run: Path, logdir: Path) -> Path:
    return Path(shutil.copytree(run, logdir / "default" / run.name, symlinks=True))


def spoil_metadata(folder: Path, mark: Path) -> None:
    hostile_one = hostile.pickled(mark)
    path = folder / ".metadata"
    hostile.in_place(path, 0, path.stat().st_size, hostile_one)


def spoil_value(folder: Path, mark: Path) -> None:
    """A value that is no tensor, as the learning rate; torch's own planner unpickles it."""
    found = read_metadata(folder)
    for index, place in found.storage_data.items():
        if isinstance(found.state_dict_metadata[index.fqn], BytesStorageMetadata):
            hostile.in_place(folder / place.relative_path, place.offset, place.length, hostile.pickled(mark))


def spoil_tensor(folder: Path, mark: Path) -> None:
    found = read_metadata(folder)
    for index, place in found.storage_data.items():
        if not isinstance(found.state_dict_metadata[index.fqn], BytesStorageMetadata):
            hostile.in_place(folder / place.relative_path, place.offset, place.length, hostile.pickled(mark))


def spoil_rest(folder: Path, mark: Path) -> None:
    (folder / "state.pt").write_bytes(hostile.saved(mark, format=FORMAT, state={"step": 2}, sizes={}))


def sign(folder: Path) -> None:
    """Have the sizes and checksums fit what is there now, as whoever spoils a checkpoint on purpose would."""
    state = torch.load(folder / "state.pt", weights_only=True)
    parts = {name: (folder / name).read_bytes() for name in state["sizes"]}
    state["sizes"] = {name: len(data) for name, data in parts.items()}
    state["checksums"] = {name: zlib.crc32(data) for name, data in parts.items()}
    torch.save(state, folder / "state.pt")


@pytest.mark.parametrize("spoil", [spoil_metadata, spoil_value, spoil_tensor, spoil_rest])
def test_a_sharded_checkpoint_runs_nothing(spoil, sharded: Path, harness: Launcher, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run, mark = copy(sharded, tmp_path / "logs"), tmp_path / "ran"
    spoil(run / CHECKPOINT, mark)
    if spoil is not spoil_rest:
        sign(run / CHECKPOINT)
    job = start(harness, 2, f"resume={run}", cwd=tmp_path)
    ended = job.wait()
    assert not mark.exists()
    assert [rank.status for rank in ended] == [2, 2], job.text
    expect_usage_error(ended[0], "refused" if spoil is not spoil_rest else "none of the 1 checkpoints can be read")
    assert "posix.system" in job.text


def test_a_good_sharded_checkpoint_goes_on_at_another_number_of_ranks(
    sharded: Path, harness: Launcher, tmp_path: Path
) -> None:
    run = copy(sharded, tmp_path / "logs")
    before = reading.scalars(run, "train/loss")
    # Of the same global batch.
    train(harness, 1, f"resume={run}", "data.batch_size=8", cwd=tmp_path)
    assert reading.manifest(run)["resumed_from"] == [2]
    assert reading.scalars(run, "train/loss") == pytest.approx(before, rel=1e-4)


@pytest.mark.parametrize("kind", ["saved", "pickled"])
@pytest.mark.parametrize("name", ["step_00000002.pt", "best.pt"])
def test_a_checkpoint_runs_nothing(kind: str, name: str, whole: Path, harness: Launcher, tmp_path: Path) -> None:
    run, mark = copy(whole, tmp_path / "logs"), tmp_path / "ran"
    data = hostile.pickled(mark) if kind == "pickled" else hostile.saved(mark, format=FORMAT, state={"step": 2})
    (run / "checkpoints" / name).unlink(missing_ok=True)
    (run / "checkpoints" / name).write_bytes(data)
    done = harness.run("train", f"resume={run}", cwd=tmp_path)
    assert not mark.exists()
    if name == "best.pt":  # which nothing reads
        assert done.status == 0, done.text
    else:
        expect_usage_error(done, "none of the 1 checkpoints can be read")
        assert ("posix.system, which no checkpoint needs" in done.said) == (kind == "saved")


@pytest.mark.parametrize("name", ["oom_00000002.pickle", "window.json", "host_0.1.pt.trace.json", "run.json"])
def test_a_report_runs_nothing(name: str, whole: Path, harness: Launcher, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    (tmp_path / name).write_bytes(hostile.pickled(mark))
    for command in (["report", str(tmp_path / name)], ["compare", str(tmp_path / name), str(tmp_path / name)]):
        expect_usage_error(harness.run(*command))
    harness.run("report", str(tmp_path))
    harness.run("runs", str(tmp_path))
    assert not mark.exists()


def test_overrides_run_nothing_where_they_are_read(whole: Path, harness: Launcher, tmp_path: Path) -> None:
    run, mark = copy(whole, tmp_path / "logs"), tmp_path / "ran"
    (run / ".hydra/overrides.yaml").write_text(f"- !!python/object/apply:os.system ['touch {mark}']\n")
    expect_usage_error(harness.run("train", f"resume={run}", cwd=tmp_path), "cannot be resumed")
    assert not mark.exists()


def written(folder: Path, data: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / ".metadata").write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
    return folder


def by_getattr(name: str) -> bytes:
    """`getattr(<class>, name)`, as some versions of Python pickle members of an enumeration."""
    module = "torch.distributed.checkpoint.metadata"
    return f"cbuiltins\ngetattr\n(c{module}\n_MEM_FORMAT_ENCODING\nV{name}\ntR.".encode()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"cbuiltins\neval\n(V1\ntR.", "builtins.eval"),
        (b"cbuiltins\ngetattr\n(cbuiltins\neval\nV__call__\ntR.", "builtins.eval"),
        (b"ctorch\nload\n(V/etc/passwd\ntR.", "torch.load"),
        (b"ctorch\nhub.load\n(V/etc/passwd\ntR.", "torch.hub.load"),
        (b"ctorch.serialization\n_get_layout.__globals__\n.", "torch.serialization._get_layout.__globals__"),
        (b"ctorch\nSize.__new__\n.", "torch.Size.__new__"),
        (b"ctorch.distributed.checkpoint.metadata\nos.system\n(Vtrue\ntR.", "metadata.os.system"),
        (b"ctorch.distributed.checkpoint.filesystem\npickle.loads\n.", "pickle.loads"),
        (b"ctorch.serialization\n_get_layout\n(Vtorch.load\ntR.", "no layout"),
        (by_getattr("__class__"), "__class__"),
        # A class is changed, for this process and all that it loads later.
        (b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N(dVx\nI1\nstb.", "no part of it"),
        (b"\x80\x04N.", "does not say"),
        (Metadata({}), "damaged"),
        (Metadata({"a": 1}, storage_data={}), "does not say"),  # type: ignore[dict-item]
        (Metadata({}, storage_data={"a": 1}), "does not say"),
        (b"", "damaged"),
        (b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.", "damaged"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "does not say"),  # a memo of 2^32 entries
    ],
)
def test_metadata_that_is_more_than_metadata_is_refused(data: object, says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^checkpoint .*metadata.* is (refused|damaged)") as raised:
        read_metadata(written(tmp_path / "checkpoint", data))
    assert says in str(raised.value)
    assert not hasattr(Metadata, "x")


@pytest.mark.parametrize("name", ["/etc/passwd", "../state.pt", "a/b", "", "..", 7])
def test_metadata_that_leads_out_of_its_folder_is_refused(name: object, tmp_path: Path) -> None:
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    place = _StorageInfo(name, 0, 1)  # type: ignore[arg-type]
    data = Metadata({"a": BytesStorageMetadata()}, storage_data={MetadataIndex("a"): place}, storage_meta=StorageMeta())
    with pytest.raises(UsageError, match="is damaged"):
        read_metadata(written(tmp_path / "checkpoint", data))


def test_metadata_cut_or_changed_anywhere_is_refused_or_read(tmp_path: Path) -> None:
    """By the hundred; a change in a name or a number is none that can be seen here."""
    good = next(METADATA.iterdir()).read_bytes()
    for place in range(0, len(good), 37):
        damaged = bytearray(good)
        damaged[place] ^= 1 << place % 8
        for data in (good[:place], bytes(damaged)):
            try:
                read_metadata(written(tmp_path / "checkpoint", data))
            except UsageError:
                continue
            assert data != good[:place]


@pytest.mark.parametrize("path", sorted(METADATA.iterdir()), ids=lambda path: path.name)
def test_good_metadata_is_what_torch_reads(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    found, expected = read_metadata(written(tmp_path / "checkpoint", data)), pickle.loads(data)
    assert str(found.storage_meta.checkpoint_id) == str(expected.storage_meta.checkpoint_id)
    found.storage_meta.checkpoint_id = expected.storage_meta.checkpoint_id
    assert found == expected
    assert len(found.state_dict_metadata) > 5


def test_members_of_enumerations_are_read_as_any_python_pickles_them() -> None:
    import io

    from harness.distributed.sharded import _Unpickler

    assert _Unpickler(io.BytesIO(by_getattr("TORCH_CHANNELS_LAST"))).load().value == 1


def test_every_kind_of_tensor_is_read(tmp_path: Path) -> None:
    from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata

    dtypes = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
    tensors = {
        str(dtype): TensorStorageMetadata(
            TensorProperties(dtype, memory_format=torch.channels_last),
            torch.Size([2]),
            [ChunkStorageMetadata(torch.Size([0]), torch.Size([2]))],
        )
        for dtype in dtypes
    }
    data = Metadata(tensors, storage_data={})  # type: ignore[arg-type]
    assert read_metadata(written(tmp_path / "checkpoint", data)) == data
