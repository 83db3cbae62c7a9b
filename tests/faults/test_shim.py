"""The shim itself: what a rule names fails with what it says, and nothing else does."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.faults.shim import failing
from tests.launch import python

PROGRAM = """
import fcntl, os, sys
folder = sys.argv[1]
def attempt(name, call):
    try:
        call()
    except OSError as error:
        print(name, error.errno)
def lock():
    with open(f"{folder}/a.lock", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
def sync():
    with open(f"{folder}/synced", "wb") as file:
        os.fsync(file.fileno())
def link():
    os.link(f"{folder}/here", f"{folder}/there")
    os.unlink(f"{folder}/there")
attempt("open", lambda: open(f"{folder}/here", "rb").close())
attempt("read", lambda: open(f"{folder}/here", "rb").read())
attempt("stat", lambda: os.stat(f"{folder}/here"))
attempt("list", lambda: os.listdir(f"{folder}/folder"))
attempt("lock", lock)
attempt("sync", sync)
attempt("link", link)
attempt("rename", lambda: os.replace(f"{folder}/here", f"{folder}/renamed"))
"""


@pytest.mark.parametrize(
    ("rules", "fails"),
    [
        ("", {}),
        ("flock=ENOLCK", {"lock": errno.ENOLCK}),
        ("flock:other.lock=ENOLCK;fsync:synced=EIO", {"sync": errno.EIO}),
        ("open:here=ESTALE", {"open": errno.ESTALE, "read": errno.ESTALE}),
        ("read:*/here=EIO", {"read": errno.EIO}),
        ("stat:here=EACCES;link=EPERM;rename:renamed=EXDEV", {"stat": 13, "link": 1, "rename": errno.EXDEV}),
        ("opendir:folder=EIO", {"list": errno.EIO}),
        ("readdir:folder=ESTALE", {"list": errno.ESTALE}),
        ("open:here=EIO@2", {"read": errno.EIO}),
        ("open:here=EIO@2+;open:synced=EIO@2+", {"read": errno.EIO}),
    ],
)
def test_what_a_rule_names_fails(rules: str, fails: dict[str, int], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "here").write_bytes(b"here")
    done = python("-c", PROGRAM, str(tmp_path), cwd=tmp_path, **failing(rules))
    assert done.status == 0, done.text
    assert done.out.split() == [word for name, number in fails.items() for word in (name, str(number))]


CLOCKS = """
import time
started = time.time(), time.monotonic()
time.sleep(0.2)
print(round((time.time() - started[0]) / 100), round((time.monotonic() - started[1]) / 100))
"""


@pytest.mark.parametrize(
    ("clock", "seen"),
    [
        ("", ["0", "0"]),
        ("86400@0.1", ["864", "0"]),
        ("-3600@0.1", ["-36", "0"]),
        ("3600@600", ["0", "0"]),
    ],
)
def test_a_clock_jumps_when_it_is_told_to_and_no_other_does(clock: str, seen: list[str], tmp_path: Path) -> None:
    done = python("-c", CLOCKS, cwd=tmp_path, **failing(clock=clock))
    assert done.out.split() == seen, done.text
