"""Feeds damaged files to readers, in a process of its own that may hang, die, or take all memory.

Whatever a file is, it is read, or refused by the error that is documented, with a message that names it; within some
seconds and some hundred megabytes; and nothing that stands in it is run.
"""

from __future__ import annotations

import os
import random
import resource
import select
import shutil
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from tests.faults import hostile, mutations, readers
from tests.faults.readers import READERS, Reader
from tests.launch import ROOT, environment

SECONDS = 30.0
"""Each takes well under one on an idle machine."""
MEMORY = 500 * 2**20
MISPLACED = 0.06
"""How often something stands in a file's place that is none."""
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "socket.connect", "pty.spawn")
"""What no reader does, by the names of Python's audit events."""
BEGUN = "begun.json"
"""What is being read, for whoever hears no more."""


class Question(msgspec.Struct, kw_only=True):
    """A file to be made and read."""

    reader: str
    seed: str
    number: int
    folder: str


class Answer(msgspec.Struct, kw_only=True):
    """What came of it."""

    reader: str
    number: int
    outcome: Literal["read", "refused", "fault"]
    file: str = ""
    damage: str = ""
    text: str = ""
    """The message, or what is wrong."""


class Worker:
    """Makes and reads files, one after the other; it is started again where one of them ends it.

    Args:
        folder: Where the files lie; the last one stays there.
        serve: What it runs, a module and a function of no arguments that calls :func:`serve`.
    """

    def __init__(self, folder: Path, serve: str = "tests.faults.fuzz:serve") -> None:
        self._folder = folder
        module, _, function = serve.partition(":")
        self._boot = f"from {module} import {function}; {function}()"
        self._process = self._start()

    def ask(self, reader: str, seed: str, number: int) -> Answer:
        question = Question(reader=reader, seed=seed, number=number, folder=str(self._folder / "files"))
        process = self._process
        (self._folder / BEGUN).unlink(missing_ok=True)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(question) + b"\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], SECONDS)
        line = process.stdout.readline() if ready else b""
        if line:
            return msgspec.json.decode(line, type=Answer)
        text = f"the process died, with status {process.wait()}" if ready else f"it took more than {SECONDS:.0f} s"
        self.close()
        self._process = self._start()
        begun = self._folder / BEGUN
        if not begun.exists():
            return Answer(reader=reader, number=number, outcome="fault", text=text)
        lost = msgspec.json.decode(begun.read_bytes(), type=Answer)
        return msgspec.structs.replace(lost, outcome="fault", text=text)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", self._boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(OPENBLAS_NUM_THREADS="1", HARNESS_CACHE=str(self._folder / "cache")),
            cwd=ROOT,
        )


def fuzz(
    folder: Path, seed: str, count: int, *, chosen: Sequence[Reader] = READERS, first: int = 0
) -> Iterator[Answer]:
    """So many damaged files for each reader, the readers by turns."""
    worker = Worker(folder)
    try:
        for number in range(first, first + count):
            for reader in chosen:
                yield worker.ask(reader.name, seed, number)
    finally:
        worker.close()


def keep(folder: Path, answer: Answer, kept: Path) -> None:
    """Copy the files that an answer is about."""
    there = kept / f"{answer.reader.replace(' ', '_').replace(',', '')}_{answer.number}"
    shutil.rmtree(there, ignore_errors=True)
    shutil.copytree(folder / "files", there, symlinks=True, ignore=_pipes)
    (there / "answer.json").write_bytes(msgspec.json.format(msgspec.json.encode(answer), indent=2))


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]


class Guard:
    """Notes what no reader may do, while one reads."""

    def __init__(self) -> None:
        self.armed = False
        self.seen: list[str] = []
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        # The plugin has its traces parsed by processes of its own.
        if self.armed and event.startswith(FORBIDDEN) and arguments[:1] != (sys.executable,):
            self.seen.append(f"{event}{arguments}"[:300])


def serve(rows: Sequence[Reader] = READERS) -> None:
    """Answer questions on stdin until it ends; everything else that is printed goes nowhere."""
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    guard = Guard()
    known: set[str] = set()
    for line in sys.stdin.buffer:
        question = msgspec.json.decode(line, type=Question)
        (reader,) = (one for one in rows if one.name == question.reader)
        if reader.name not in known:
            # What it imports counts for nothing, and the good file has to be good.
            known.add(reader.name)
            answer = attempt(reader, question, guard, damaged=False)
            if answer.outcome != "read":
                answer.outcome, answer.text = "fault", f"the good file is not read: {answer.text}"
                _say(answers, answer)
                continue
            _limit_memory()
        _say(answers, attempt(reader, question, guard))


def _say(answers: BinaryIO, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


def _limit_memory() -> None:
    """From here on, so much more and no further."""
    (used,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:"))
    limit = int(used.split()[1]) * 1024 + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def attempt(reader: Reader, question: Question, guard: Guard, *, damaged: bool = True) -> Answer:
    """Make a damaged file and read it."""
    folder = Path(question.folder)
    draw = random.Random(f"{question.seed}/{question.reader}/{question.number}")
    readers.good(reader, folder)
    answer = Answer(reader=reader.name, number=question.number, outcome="read")
    mark = folder.with_name("ran")
    if damaged:
        path = readers.choose_file(reader, folder, draw)
        answer.file = str(path.relative_to(folder))
        if reader.can_be_misplaced and draw.random() < MISPLACED:
            answer.damage = mutations.misplaced(path, draw)
        else:
            before = path.read_bytes()
            data = _hostile(draw, mark) or reader.damage(before, draw)
            path.unlink()
            path.write_bytes(data)
            answer.damage = f"{len(before)} bytes to {len(data)}"
    folder.with_name(BEGUN).write_bytes(msgspec.json.encode(answer))
    guard.seen.clear()
    guard.armed = True
    try:
        reader.read(folder)
    except reader.refuses() as error:
        answer.outcome, answer.text = "refused", str(error)
        # A folder of several files may be refused as one.
        names = (Path(answer.file).name, str((folder / answer.file).parent))
        if not any(name in " ".join(str(error).split()) for name in names):
            answer.outcome, answer.text = "fault", f"it does not name {names[0]}: {error}"
    except BaseException as error:
        last = traceback.extract_tb(error.__traceback__)
        place = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last) if "/harness/" in f.filename), "")
        answer.outcome, answer.text = "fault", f"{type(error).__name__} at {place}: {str(error)[:300]}"
        if isinstance(error, KeyboardInterrupt):
            raise
    finally:
        guard.armed = False
    if guard.seen or mark.exists():
        answer.outcome, answer.text = "fault", f"it ran something: {guard.seen}"
        mark.unlink(missing_ok=True)
    return answer


def _hostile(draw: random.Random, mark: Path) -> bytes | None:
    """Now and then, whatever the reader is, a pickle that runs a command."""
    if draw.random() > 0.03:
        return None
    return draw.choice((hostile.pickled(mark), hostile.saved(mark, format=2, state={"step": 2}, sizes={}, segments=[])))
