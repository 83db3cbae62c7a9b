"""``harness timeline``: one window's timeline in a browser, without TensorBoard."""

from __future__ import annotations

import signal
import socket
import threading
import webbrowser
from collections.abc import Collection, Mapping
from pathlib import Path
from urllib.parse import urlencode

from werkzeug.serving import ThreadedWSGIServer

from harness import console
from harness.errors import UsageError
from harness.logdir.find import choose
from harness.logdir.window import Window
from harness.timeline.app import MOUNT, Resolve, TimelineApp
from harness.timeline.cache import Cache
from harness.web.connections import Bounded, Handler
from harness.web.guard import Guard
from harness.web.hosts import Hosts

HOST = "127.0.0.1"
FIRST_PORT = 9100
PAGE_SAYS_IT_S = 5.0
"""How long a browser has to fetch what is wrong with the file."""
_PORTS_TRIED = 100


class Server(Bounded, ThreadedWSGIServer):
    """Whose connections end."""


def serve(
    path: Path, *, window: int | None, port: int | None, open_browser: bool, allowed_hosts: Collection[str] = ()
) -> None:
    """Serve the timeline of a trace file, a window, a run (its newest window) or a logdir (its newest run), on
    loopback and to it alone, until SIGINT or SIGTERM.

    Args:
        window: Of a run, the window that begins at this step; negative ones count from the newest.
        port: None takes the first free one from 9100 on.
        allowed_hosts: Further names that it answers to; see :class:`Hosts`.

    Raises:
        UsageError: where there is no trace to show, or the port is taken.
    """
    files = _files(choose(path, window).window)
    first = next(iter(files.values()))
    cache = Cache()
    listening = _listening(port)
    with listening:
        app = Guard(TimelineApp(_only(files), cache), Hosts(HOST, allowed_hosts), frames=True)
        server = Server(HOST, 0, app, Handler, fd=listening.fileno())
        over = threading.Event()
        wrong: list[UsageError] = []

        def prepare_ahead() -> None:
            """While the browser starts."""
            try:
                cache.prepared(first)
            except UsageError as error:
                wrong.append(error)
                if open_browser:
                    over.wait(PAGE_SAYS_IT_S)
                over.set()

        threading.Thread(target=prepare_ahead, daemon=True).start()
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: over.set())
        base = f"http://{HOST}:{listening.getsockname()[1]}{MOUNT}view.html"
        for name in files:
            address = f"{base}?{urlencode({'file': name})}"
            console.out.print(f"Timeline: [bold]{console.plain(address)}[/]", highlight=False, soft_wrap=True)
        console.out.print("Ctrl-C ends it", highlight=False)
        if open_browser:
            webbrowser.open(f"{base}?{urlencode({'file': first.name})}")
        over.wait()
        server.shutdown()
    if wrong:
        raise wrong[0]


def _files(window: Window) -> dict[str, Path]:
    """The traces of all ranks, by name."""
    if window.trace is None:
        raise UsageError(f"{window.path} holds findings, but no trace to show")
    return {path.name: path for path in (window.trace, *(window.path / name for name in window.others))}


def _only(files: Mapping[str, Path]) -> Resolve:
    def resolve(arguments: Mapping[str, str]) -> Path:
        try:
            return files[arguments.get("file", next(iter(files)))]
        except KeyError as error:
            raise UsageError(f"there is no {arguments['file'][:200]} in this window") from error

    return resolve


def _listening(port: int | None) -> socket.socket:
    tried = range(FIRST_PORT, FIRST_PORT + _PORTS_TRIED) if port is None else (port,)
    for number in tried:
        found = socket.socket()
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((HOST, number))
            found.listen()
        except OSError as error:
            found.close()
            last = error
        else:
            return found
    raise UsageError(f"the timeline cannot be served on {HOST}:{tried[-1]}: {last.strerror}; give another --port")
