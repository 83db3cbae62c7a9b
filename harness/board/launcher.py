"""``harness board``: TensorBoard on a logdir."""

from __future__ import annotations

import os
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from harness import console
from harness.board.official.at_load import repair
from harness.errors import UsageError
from harness.logdir.flags import logdirs
from harness.logdir.scan import Scanner, pass_over
from harness.web.hosts import Hosts, is_loopback

TAB = "#windows"
"""The tab Windows, at the end of TensorBoard's address."""


def serve(
    logdir: Path, *, host: str, port: int | None, allowed_hosts: Collection[str] = (), open_browser: bool = False
) -> None:
    """Run TensorBoard until SIGINT or SIGTERM.

    Args:
        logdir: It need not exist yet; its runs appear as they come.
        host: The address to listen on.
        port: None takes the first free one from TensorBoard's own, 6006, on.
        allowed_hosts: Further names that it answers to; see :class:`Hosts`.
        open_browser: Show the tab Windows in this machine's browser.

    Raises:
        UsageError: where the port is taken, the address is none of this machine's, or the logdir is a file.
    """
    from tensorboard import default, program

    if logdir.exists() and not logdir.is_dir():
        raise UsageError(f"{logdir} is no directory; give the logdir that the runs were written to")
    _check_address(host, port)
    board = program.TensorBoard(plugins=default.get_plugins(), server_class=_server_class(Hosts(host, allowed_hosts)))
    board.configure(
        argv=["tensorboard", "--logdir", _given(logdir), "--host", host, *(["--port", str(port)] if port else [])]
    )
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise UsageError(f"TensorBoard cannot start: {error.msg}") from error
    for line in _found(logdir):
        console.out.print(console.plain(line), highlight=False, soft_wrap=True)
    if not is_loopback(host):
        console.out.print(
            console.plain(
                f"whoever reaches {host} can read what lies in {logdir}; by other names than this machine's own "
                "with --allowed-hosts"
            ),
            style="yellow",
            soft_wrap=True,
        )
    console.out.print(f"TensorBoard: [bold]{url}{TAB}[/]   (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    if open_browser:
        webbrowser.open(f"{url}{TAB}")
    over.wait()


def _given(logdir: Path) -> str:
    """For TensorBoard, which takes a ``~`` and what looks like an address for something else than a folder's name."""
    return os.path.abspath(logdir) if logdir.is_dir() else str(logdir)


def _found(logdir: Path) -> Iterator[str]:
    """What there is to see."""
    places = logdirs(_given(logdir))
    scanner = Scanner(pass_over, bounded=True)
    runs = scanner.look(places).runs
    yield f"{len(runs)} runs with {sum(len(scanner.windows(run)) for run in runs)} windows in {logdir}" + (
        "" if any(place.path.exists() for place in places) else ", which is not there yet: runs appear as they come"
    )
    yield repair().message


def _server_class(hosts: Hosts) -> Callable[..., Any]:
    """TensorBoard's own server, which answers to these names and whose connections end."""
    from tensorboard import program

    from harness.web.connections import Bounded, Handler
    from harness.web.guard import TENSORBOARD, Guard

    class Server(Bounded, program.WerkzeugServer):  # type: ignore[misc]
        def __init__(self, wsgi_app: Any, flags: Any) -> None:
            super().__init__(Guard(wsgi_app, hosts, methods=TENSORBOARD, frames=True), flags)
            self.RequestHandlerClass = Handler

    scanning: Callable[..., Any] = program.with_port_scanning(Server)
    return scanning


def _check_address(host: str, port: int | None) -> None:
    """TensorBoard's server ends the process where it cannot listen on an address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        where = host if port is None else f"{host}:{port}"
        raise UsageError(f"TensorBoard cannot listen on {where}: {error}; give another --host or --port") from error
