"""Reading a sharded checkpoint, as ``torch.distributed.checkpoint`` writes it, without running what its files say.

Torch's own reader unpickles ``.metadata`` as it comes, and the values that are no tensors too: whoever may write to a
checkpoint runs code in every job that goes on with it. Here a file gets the few classes that it needs and no more.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.futures import Future

from harness.errors import UsageError
from harness.files import open_regular, read_regular, why_refused

METADATA = ".metadata"
MOST_METADATA = 2**30
"""Bytes; those of a model of a thousand tensors on a thousand ranks has a tenth of it."""
_DATACLASSES: dict[tuple[str, str], type] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        metadata.BytesStorageMetadata,
        metadata.ChunkStorageMetadata,
        metadata.Metadata,
        metadata.MetadataIndex,
        metadata.StorageMeta,
        metadata.TensorProperties,
        metadata.TensorStorageMetadata,
        filesystem._StorageInfo,
    )
}
_ENCODING = metadata._MEM_FORMAT_ENCODING


class Reader(FileSystemReader):
    """Torch's, for a folder whose ``.metadata`` has been read by :func:`read_metadata`."""

    def __init__(self, folder: Path, found: Metadata) -> None:
        super().__init__(folder)
        self.fs = _RegularFiles()
        self._folder, self._found = folder, found

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._found

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        # Torch's own word, as of tensors of another size, stays what it is.
        with _refusing(self._folder, but=(RuntimeError, AssertionError)):
            return super().read_data(plan, planner)


class Planner(DefaultLoadPlanner):
    """Torch's, but what is no tensor is loaded as a tensor is: plain values, and nothing that the file names."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        safe = io.BytesIO()
        torch.save(torch.load(value, map_location="cpu", weights_only=True), safe)
        safe.seek(0)
        super().load_bytes(read_item, safe)


class _RegularFiles(FileSystem):
    @contextmanager
    def create_stream(self, path: Any, mode: str) -> Iterator[Any]:
        with open_regular(path) as stream:
            yield stream


def read_metadata(folder: Path) -> Metadata:
    """What the files of a checkpoint hold, and where.

    Raises:
        UsageError: where that cannot be read, is damaged, or names what is none of its business.
    """
    path = folder / METADATA
    with _refusing(path):
        found = _Unpickler(io.BytesIO(read_regular(path, MOST_METADATA))).load()
        if not _is_metadata(found):
            raise ValueError("it does not say which tensors lie where")
    assert isinstance(found, Metadata)
    return found


def _is_metadata(found: object) -> bool:
    return (
        isinstance(found, Metadata)
        and all(
            isinstance(name, str) and isinstance(kind, TensorStorageMetadata | BytesStorageMetadata)
            for name, kind in found.state_dict_metadata.items()
        )
        and all(isinstance(index, MetadataIndex) and _is_place(place) for index, place in found.storage_data.items())
    )


def _is_place(value: object) -> bool:
    """Whether it is a place in one of the checkpoint's own files."""
    if not isinstance(value, filesystem._StorageInfo) or getattr(value, "transform_descriptors", None):
        return False
    name = value.relative_path
    return Path(name).name == name not in ("", "..") and min(value.offset, value.length) >= 0


class _Unpickler(pickle._Unpickler):
    """In Python, so that each of its steps can be held to what a checkpoint's metadata is made of."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _DATACLASSES:
            return _DATACLASSES[module, name]
        if (module, name) == (_ENCODING.__module__, _ENCODING.__qualname__):
            return _ENCODING
        if (module, name) == ("torch", "Size"):
            return torch.Size
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if (module, name) == ("torch.serialization", "_get_layout"):
            return _layout
        if module in ("pathlib", "pathlib._local") and name in ("PosixPath", "WindowsPath"):
            # Where it was written; a path of the other system cannot be made here, a pure one can.
            return PurePosixPath if name == "PosixPath" else PureWindowsPath
        if (module, name) == ("builtins", "getattr"):
            return _member  # by which some versions of Python pickle the members of an enumeration
        raise pickle.UnpicklingError(f"GLOBAL {module}.{name}")

    def load_build(self) -> None:
        """Gives an object its state: an object, and none of the classes themselves."""
        if type(self.stack[-2]) not in _DATACLASSES.values():  # type: ignore[attr-defined]
            raise pickle.UnpicklingError("it changes what is no part of it")
        super().load_build()  # type: ignore[misc]

    dispatch: ClassVar[dict[int, Callable[..., None]]] = {**pickle._Unpickler.dispatch, pickle.BUILD[0]: load_build}


def _layout(name: str) -> Any:
    found = getattr(torch, name.removeprefix("torch."), None)
    if not isinstance(found, torch.layout):
        raise pickle.UnpicklingError(f"{name} is no layout")
    return found


def _member(kind: object, name: str) -> object:
    if kind is not _ENCODING:
        raise pickle.UnpicklingError("GLOBAL builtins.getattr")
    return _ENCODING.__members__[name]


@contextmanager
def _refusing(path: Path, *, but: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """What goes wrong in reading a file becomes a UsageError that says what was refused, or that it is damaged."""
    as_they_are: tuple[type[Exception], ...] = (UsageError, *but)
    try:
        yield
    except as_they_are:
        raise
    except OSError as error:
        raise UsageError(f"checkpoint {error.filename or path} cannot be read: {error.strerror or error}") from error
    except pickle.UnpicklingError as error:
        raise UsageError(f"checkpoint {path} is refused: {why_refused(error)}") from error
    except Exception as error:  # a damaged pickle raises whatever its bytes happen to say
        raise UsageError(f"checkpoint {path} is damaged ({type(error).__name__}: {error})") from error
