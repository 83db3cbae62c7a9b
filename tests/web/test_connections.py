"""Connections end, whatever their clients do; here with limits that a test can wait for."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from werkzeug.serving import ThreadedWSGIServer

from harness.web import connections
from harness.web.connections import Bounded, Handler
from tests.launch import wait_until

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

WAIT_S = 30.0
LARGE = 32 * 2**20
REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Server(Bounded, ThreadedWSGIServer):
    pass


class App:
    """Answers at once, at length, or when it is let."""

    def __init__(self) -> None:
        self.at_work = threading.Semaphore(0)
        self.let = threading.Event()
        self.given_up = threading.Event()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/large":
            start_response("200 OK", [("Content-Length", str(LARGE))])
            return self._large()
        if environ["PATH_INFO"] == "/slow":
            self.at_work.release()
            assert self.let.wait(WAIT_S)
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response("200 OK", [("Content-Length", str(len(body) + 2))])
        return [b"ok" + body]

    def _large(self) -> Iterator[bytes]:
        try:
            for _ in range(LARGE >> 20):
                yield bytes(1 << 20)
        finally:
            self.given_up.set()


@pytest.fixture
def app() -> App:
    return App()


@pytest.fixture
def server(app: App) -> Iterator[Server]:
    started = Server("127.0.0.1", 0, app, Handler)
    thread = threading.Thread(target=started.serve_forever, args=(0.01,))
    thread.start()
    yield started
    app.let.set()
    wait_until(lambda: not started.connections, WAIT_S, "connections that do not end")
    started.shutdown()
    thread.join()


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_to(**values: Any) -> None:
        for name, value in values.items():
            monkeypatch.setattr(connections, name, value)

    return set_to


def connected(server: Server, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(server.server_address[:2], timeout=WAIT_S)
    client.sendall(sent)
    return client


def rest(client: socket.socket) -> bytes:
    """All that comes until the server closes."""
    pieces = []
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(1 << 16):
            pieces.append(piece)
    return b"".join(pieces)


@pytest.mark.parametrize(
    "sent",
    [b"", b"G", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nHost: local"],
    ids=["nothing", "a letter", "a line", "no end", "half a line"],
)
def test_a_client_that_falls_silent_is_left(sent: bytes, server: Server, limits: Callable[..., None]) -> None:
    limits(READ_S=0.2)
    with connected(server, sent) as client:
        assert rest(client) == b""


def test_a_letter_now_and_then_is_no_request_either(server: Server, limits: Callable[..., None]) -> None:
    limits(READ_S=0.3)
    over = threading.Event()
    with connected(server, b"GET / HTTP/1.1\r\nX: ") as client:

        def drip() -> None:
            with contextlib.suppress(OSError):
                while not over.wait(0.02):
                    client.sendall(b"a")

        dripping = threading.Thread(target=drip)
        dripping.start()
        assert rest(client) == b""
        over.set()
        dripping.join()


def test_a_body_that_does_not_come_ends_the_wait_for_it(server: Server, limits: Callable[..., None]) -> None:
    limits(READ_S=0.2)
    with connected(server, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc") as client:
        assert b"ok" not in rest(client)


def test_what_is_sent_after_a_request_is_not_waited_for(server: Server, limits: Callable[..., None]) -> None:
    limits(READ_S=0.2)
    with connected(server, REQUEST % b"" + b"x") as client:
        assert rest(client).endswith(b"\r\n\r\nok")


def test_a_client_that_does_not_read_is_left(app: App, server: Server, limits: Callable[..., None]) -> None:
    limits(SEND_S=0.2)
    with connected(server, REQUEST % b"large"):
        assert app.given_up.wait(WAIT_S)
        wait_until(lambda: not server.connections, WAIT_S)


def test_a_client_that_reads_slowly_gets_all(server: Server, limits: Callable[..., None]) -> None:
    limits(SEND_S=5.0)
    with connected(server, REQUEST % b"large") as client:
        assert len(rest(client)) > LARGE


def test_a_request_has_an_end(server: Server, limits: Callable[..., None]) -> None:
    limits(MOST_REQUEST_BYTES=10_000)
    with connected(server, b"GET / HTTP/1.1\r\n" + b"X: yyyyyyyyyyyyyyyyy\r\n" * 90 * 10) as client:
        assert b"200" not in rest(client)[:20]


def test_the_one_that_says_nothing_longest_makes_room(server: Server, limits: Callable[..., None]) -> None:
    limits(MOST=3)
    with contextlib.ExitStack() as over:
        silent = [over.enter_context(connected(server)) for _ in range(3)]
        wait_until(lambda: len(server.connections) == 3, WAIT_S)
        with connected(server, REQUEST % b"") as client:
            assert rest(client).endswith(b"ok")
        assert rest(silent[0]) == b""
        for one in silent[1:]:
            one.sendall(REQUEST % b"")
            assert rest(one).endswith(b"ok"), "only one had to go"


def test_work_is_not_given_up_for_others_who_are_told_to_come_again(
    app: App, server: Server, limits: Callable[..., None]
) -> None:
    limits(MOST=2)
    with connected(server, REQUEST % b"slow") as first, connected(server, REQUEST % b"slow") as second:
        assert app.at_work.acquire(timeout=WAIT_S)
        assert app.at_work.acquire(timeout=WAIT_S)
        with connected(server, REQUEST % b"") as third:
            assert rest(third).startswith(b"HTTP/1.1 503 ")
        app.let.set()
        assert [rest(one)[-2:] for one in (first, second)] == [b"ok", b"ok"]
    wait_until(lambda: not server.connections, WAIT_S)
    with connected(server, REQUEST % b"") as again:
        assert rest(again).endswith(b"ok")
