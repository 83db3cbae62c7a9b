"""Raw requests to servers of the harness, and what comes back."""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.launch import Command, Launcher, wait_until

WAIT_S = 60.0
MOST_PIECES = 1000
TAB, OFFICIAL = "/data/plugin/windows", "/data/plugin/pytorch_profiler"


class Answer(NamedTuple):
    """What came back; status 0 where the connection was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass
class Server:
    """One that runs."""

    name: str
    port: int
    routes: tuple[str, ...]
    """Those that are guarded."""
    said: str = ""
    command: Command | None = field(default=None, repr=False)

    def send(self, request: bytes) -> Answer:
        """What the server answers to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S) as client:
            with contextlib.suppress(ConnectionError):
                client.sendall(request)
            return received(client)

    def get(self, path: str, *lines: str) -> Answer:
        return self.send(request(f"GET {path} HTTP/1.1", *(lines or (f"Host: localhost:{self.port}",))))


def request(*lines: str) -> bytes:
    return b"".join(line.encode("latin-1") + b"\r\n" for line in [*lines, ""])


def received(client: socket.socket) -> Answer:
    """The answer, or its beginning."""
    pieces: list[bytes] = []
    with contextlib.suppress(ConnectionError):
        while len(pieces) < MOST_PIECES and (piece := client.recv(1 << 16)):
            pieces.append(piece)
    head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/"):
        return Answer(0, {}, head)
    first, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines):
        headers[name.lower()] = ", ".join(filter(None, [headers.get(name.lower()), value.strip()]))
    return Answer(int(first.split()[1]), headers, body)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def begun(launcher: Launcher, what: str, path: Path, *arguments: str) -> tuple[Command, int]:
    """A server of the harness that has said where it is."""
    port = free_port()
    command = launcher.start(what, str(path), "--port", str(port), *arguments)
    wait_until(lambda: "Ctrl-C" in command.text or not command.running, WAIT_S, lambda: command.text)
    assert command.running, command.text
    return command, port
