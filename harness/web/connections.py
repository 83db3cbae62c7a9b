"""Connections that end: however slowly a client sends or reads, and however many there are, others are answered."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any

from werkzeug.serving import WSGIRequestHandler

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

    _Server = ThreadingMixIn
else:
    _Server = object

MOST = 96
"""Connections at a time, each with a thread. A browser has six."""
READ_S = 20.0
"""From a connection's beginning until all of its request is there."""
SEND_S = 30.0
"""For a client to take a piece of the answer."""
MOST_REQUEST_BYTES = 12 * 2**20
"""Of a request: a hundred header lines, as long as they may be, and a body."""
_PIECE = 1 << 16
_DISCARDED = 1 << 26
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 5\r\nConnection: close\r\n\r\n"


class Connection:
    """A client's connection and, while it is the client that is waited for, since when."""

    def __init__(self, client: socket.socket) -> None:
        self.client = client
        self.began = time.monotonic()
        self.waits_since: float | None = self.began
        self.answers = False
        """Whether the request is there, so that the application is at work."""

    @contextmanager
    def waiting(self, since: float) -> Iterator[None]:
        """The client is to send or to take something."""
        self.waits_since = since
        try:
            yield
        finally:
            self.waits_since = None if self.answers else self.began


class Bounded(_Server):
    """Of a server with a thread for each connection: so many at a time.

    Where there are more, the one that has been waiting for its client longest makes room: clients that say nothing, or
    never read, keep nobody out.
    """

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if need be in the place of another one."""
        connections = self.connections
        with self._lock:
            if len(connections) >= MOST and not self._make_room():
                with suppress(OSError):
                    request.setblocking(False)
                    request.send(_BUSY)
                self.shutdown_request(request)  # type: ignore[attr-defined]
                return
            connections[request] = Connection(request)
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    @property
    def connections(self) -> dict[socket.socket, Connection]:
        """Those that are open, by their sockets."""
        found: dict[socket.socket, Connection] = self.__dict__.setdefault("_connections", {})
        return found

    @property
    def _lock(self) -> threading.Lock:
        # A base class binds and listens before a constructor here could be done.
        found: threading.Lock = self.__dict__.setdefault("_connections_lock", threading.Lock())
        return found

    def _make_room(self) -> bool:
        """The lock is held."""
        waiting = [(since, one) for one in self.connections.values() if (since := one.waits_since) is not None]
        if not waiting:
            return False
        _, longest = min(waiting, key=lambda found: found[0])
        del self.connections[longest.client]
        # Its thread wakes, and ends.
        with suppress(OSError):
            longest.client.shutdown(socket.SHUT_RDWR)
        return True

    def _forget(self, request: socket.socket) -> None:
        with self._lock:
            self.connections.pop(request, None)


class Handler(WSGIRequestHandler):
    """Answers one request of a connection to a `Bounded` server, within time, and prints nothing of it."""

    protocol_version = "HTTP/1.1"
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        self.connection = self.request
        # One that has had to make room already is nobody's any more.
        self._one = self.server.connections.get(self.request) or Connection(self.request)  # type: ignore[attr-defined]
        self.rfile = _Buffered(_Received(self._one))
        self.wfile = _Sent(self._one)

    def make_environ(self) -> WSGIEnvironment:
        environ = super().make_environ()
        named = self.headers.get("Host")
        if "://" in self.path.partition("?")[0] and named is not None and named != environ.get("HTTP_HOST"):
            # The request's line names a host, and its header another one.
            environ["HTTP_HOST"] = f"{environ.get('HTTP_HOST')},{named}"
        return environ

    def run_wsgi(self) -> None:
        """The request's head is there."""
        self._one.answers, self._one.waits_since = True, None
        super().run_wsgi()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        # Of a line that is no request it is not known that its sender knows of statuses.
        self.request_version = self.protocol_version
        super().send_error(code, message, explain)
        # An answer is lost where a connection is closed while its client still sends.
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            for _ in range(_DISCARDED // _PIECE):
                self.connection.settimeout(max(0.001, self._one.began + READ_S - time.monotonic()))
                if not self.connection.recv(_PIECE):
                    break

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None: ...

    def log_error(self, format: str, *args: Any) -> None: ...


class _Received(io.RawIOBase):
    """What a client sends: so much, and until so late."""

    def __init__(self, one: Connection) -> None:
        self._one = one
        self._left = MOST_REQUEST_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._one.began + READ_S - time.monotonic()
        if self._left <= 0 or (left <= 0 and self._one.answers):
            return 0
        if left <= 0:
            raise TimeoutError
        with self._one.waiting(self._one.began):
            self._one.client.settimeout(left)
            got = self._one.client.recv_into(memoryview(buffer)[: self._left])
        self._left -= got
        return got


class _Buffered(io.BufferedReader):
    """Reads a little at a time, also for those who would take ten million bytes at once to throw them away."""

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(_PIECE if size is None or size < 0 else min(size, _PIECE))


class _Sent(io.BufferedIOBase):
    """The answer, piece by piece, each of which the client has to take in time."""

    def __init__(self, one: Connection) -> None:
        self._one = one

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        self._one.client.settimeout(SEND_S)
        for begin in range(0, len(view), _PIECE):
            with self._one.waiting(time.monotonic()):
                self._one.client.sendall(view[begin : begin + _PIECE])
        return len(view)
