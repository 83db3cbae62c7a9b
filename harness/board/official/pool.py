"""Parser processes: a few, started when there is work and ended when there is none."""

from __future__ import annotations

import atexit
import importlib
import itertools
import os
import pickle
import queue
import subprocess
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from harness import search_path
from harness.board.official.parser import Answer, Request

MOST = 4
IDLE_S = 20.0
LONGEST_S = 600.0
"""Of one file; then its parser is ended, so that others come to their turn."""


class Parsed(NamedTuple):
    """An answer and the size of its pickle, a measure of the memory that it takes."""

    answer: Answer
    size: int


class Pool:
    """At most ``most`` parser processes. What somebody waits for comes before what is only made ready."""

    def __init__(self, most: int | None = None) -> None:
        # Answers are the plugin's objects, and its modules import each other in a circle that is entered here.
        importlib.import_module("torch_tb_profiler.plugin")
        self._queue: queue.PriorityQueue[tuple[bool, int, Request, Future[Parsed]]] = queue.PriorityQueue()
        self._order = itertools.count()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0
        self._most = most or min(MOST, os.cpu_count() or 1)
        self._processes: set[subprocess.Popen[bytes]] = set()
        atexit.register(self.close)

    def submit(self, request: Request, *, awaited: bool) -> Future[Parsed]:
        """Parse a file; the newest requests of each kind come last."""
        future: Future[Parsed] = Future()
        with self._lock:
            self._queue.put((not awaited, next(self._order), request, future))
            if self._idle < self._queue.qsize() and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="profiler-parser", daemon=True).start()
        return future

    def close(self) -> None:
        """End all processes."""
        for process in list(self._processes):
            process.kill()

    def _work(self) -> None:
        process: subprocess.Popen[bytes] | None = None
        try:
            while True:
                with self._lock:
                    self._idle += 1
                try:
                    *_, request, future = self._queue.get(timeout=IDLE_S)
                except queue.Empty:
                    with self._lock:
                        self._idle -= 1
                        if self._queue.empty():
                            self._threads -= 1
                            return
                    continue
                with self._lock:
                    self._idle -= 1
                process = process if process is not None and process.poll() is None else self._start()
                try:
                    future.set_result(self._ask(process, request))
                except BaseException as error:
                    future.set_exception(error)
                    raise
        finally:
            if process is not None:
                self._end(process)

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            search_path.command("harness.board.official.parser:main"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        self._processes.add(process)
        return process

    def _ask(self, process: subprocess.Popen[bytes], request: Request) -> Parsed:
        assert process.stdin is not None
        assert process.stdout is not None
        too_long = threading.Timer(LONGEST_S, process.kill)
        too_long.daemon = True
        too_long.start()
        try:
            pickle.dump(request, process.stdin)
            process.stdin.flush()
            source = _Counting(process.stdout)
            answer: Answer = pickle.load(source)
        except (OSError, EOFError, pickle.UnpicklingError):
            process.kill()
            why = f"its parser ended with status {process.wait()}; perhaps the memory was not enough"
            if not too_long.is_alive():
                why = f"parsing it took more than {LONGEST_S:.0f} s; record fewer steps in a window"
            return Parsed(Answer(error=f"{os.path.basename(request.path)} cannot be shown: {why}"), 0)
        finally:
            too_long.cancel()
        return Parsed(answer, source.size)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        self._processes.discard(process)
        with suppress(OSError):
            process.communicate()


class _Counting:
    """A file for `pickle` that counts what is read."""

    def __init__(self, file: object) -> None:
        self._file = file
        self.size = 0

    def read(self, length: int = -1) -> bytes:
        data: bytes = self._file.read(length)  # type: ignore[attr-defined]
        self.size += len(data)
        return data

    def readline(self) -> bytes:
        line: bytes = self._file.readline()  # type: ignore[attr-defined]
        self.size += len(line)
        return line

    def readinto(self, buffer: bytearray) -> int:
        length: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self.size += length
        return length
