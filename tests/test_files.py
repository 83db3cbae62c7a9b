"""Reading and writing files by name, where anything else may stand under it."""

from __future__ import annotations

import errno
import os
import socket
import threading
from pathlib import Path

import pytest

from harness.files import NotRegularError, open_regular, read_regular


def something_else(folder: Path) -> dict[str, Path]:
    """Names under which no regular file is, by what is there."""
    (folder / "directory").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "link to a pipe").symlink_to("pipe")
    (folder / "dangling").symlink_to("nothing")
    (folder / "loop").symlink_to("loop")
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.open(folder, os.O_RDONLY)
        listener.bind(f"/proc/self/fd/{here}/socket")  # its own path may be longer than an address
        os.close(here)
    found = {path.name: path for path in folder.iterdir()}
    return found | {"device": Path("/dev/zero"), "zero byte": folder / "a\0b", "too long": folder / ("a" * 300)}


def test_what_is_no_regular_file_is_refused_at_once_and_named(tmp_path: Path) -> None:
    there = something_else(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name, path in there.items():
        for read in (open_regular, read_regular):
            with pytest.raises(OSError, match="Errno") as raised:
                read(path)
            kind = next((kind for kind in ("directory", "pipe", "socket", "device") if kind in name), None)
            assert isinstance(raised.value, NotRegularError) == (kind is not None), name
            assert kind is None or f"it is a {kind}" in str(raised.value)
            assert raised.value.filename == os.fspath(path)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2, "what was refused is still open"


def test_a_regular_file_is_read_whole_through_links_too_and_never_more_than_was_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"x" * 100 == read_regular(tmp_path / "file", 100)
    with pytest.raises(OSError, match="more than the 99 bytes") as raised:
        read_regular(tmp_path / "file", 99)
    assert raised.value.errno == errno.EFBIG
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="more than"):
        read_regular(tmp_path / "sparse")
    with open_regular(tmp_path / "link") as file:
        assert os.get_blocking(file.fileno())
        assert file.read() == b"x" * 100


def test_a_file_that_does_not_say_its_size_is_read_whole_and_bounded() -> None:
    status = read_regular("/proc/self/status")
    assert status.startswith(b"Name:")
    assert b"Threads:" in status
    with pytest.raises(OSError, match="more than the 10 bytes"):
        read_regular("/proc/self/status", 10)


def test_a_file_that_changes_into_a_pipe_between_two_looks_does_not_wait(tmp_path: Path) -> None:
    """The race that a check before opening loses."""
    path, over = tmp_path / "changing", threading.Event()

    def change() -> None:
        for number in range(10**9):
            if over.is_set():
                return
            aside = tmp_path / f"{number}"
            os.mkfifo(aside) if number % 2 else aside.write_bytes(b"file")
            aside.replace(path)

    changing = threading.Thread(target=change)
    changing.start()
    try:
        seen: set[object] = set()
        for number in range(100_000):
            if number > 1000 and len(seen) > 1:
                break
            try:
                seen.add(read_regular(path))
            except NotRegularError as error:
                seen.add(error.what)
            except FileNotFoundError:
                continue
    finally:
        over.set()
        changing.join()
    assert seen == {b"file", "a pipe"}
