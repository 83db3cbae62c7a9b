"""Parsed traces, as many as fit the memory; the others are parsed again when somebody looks at them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from harness.board.official.parser import Answer, Request
from harness.board.official.pool import Parsed, Pool

MOST_BYTES = 48 << 20
"""Of pickles; the objects take about six times as much."""
FEWEST = 2
"""Kept whatever their size: the Diff view needs two."""


class Stamp(NamedTuple):
    """Changes when a file does."""

    modified_ns: int
    size: int


class Profiles:
    """What the plugin shows of each file."""

    def __init__(self, pool: Pool | None = None) -> None:
        self._pool = pool or Pool()
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[str, str, str], tuple[Stamp, Future[Parsed]]] = OrderedDict()

    def get(self, path: Path, worker: str, span: str) -> Answer:
        """Parse the file, or return what it was parsed to. A file that has changed since, as one that could not be
        read while it was written, is parsed anew."""
        return self._future(path, worker, span, awaited=True).result().answer

    def make_ready(self, path: Path, worker: str, span: str) -> None:
        """Parse the file while nobody waits for it."""
        self._future(path, worker, span, awaited=False)

    def _future(self, path: Path, worker: str, span: str, *, awaited: bool) -> Future[Parsed]:
        request = Request(str(path), worker, span)
        try:
            status = path.stat()
        except OSError as error:
            gone: Future[Parsed] = Future()
            gone.set_result(Parsed(Answer(error=f"{path.name} cannot be read: {error.strerror}"), 0))
            return gone
        stamp = Stamp(status.st_mtime_ns, status.st_size)
        with self._lock:
            known = self._found.get(request)
            if known is None or known[0] != stamp:
                self._found[request] = known = (stamp, self._pool.submit(request, awaited=awaited))
            self._found.move_to_end(request)
            self._forget()
        return known[1]

    def _forget(self) -> None:
        """The lock is held."""
        done = [(key, future.result().size) for key, (_, future) in self._found.items() if future.done()]
        total = sum(size for _, size in done)
        for key, size in done[:-FEWEST]:
            if total <= MOST_BYTES:
                return
            del self._found[key]
            total -= size
