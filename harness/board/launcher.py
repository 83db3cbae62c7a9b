"""``harness board``: TensorBoard on a logdir."""

from __future__ import annotations

import signal
import socket
import threading
from pathlib import Path

from harness import console
from harness.board.official import repair
from harness.errors import UsageError
from harness.run import find_runs, windows


def serve(logdir: Path, *, host: str, port: int | None) -> None:
    """Run TensorBoard until SIGINT or SIGTERM.

    Args:
        logdir: It need not exist yet; its runs appear as they come.
        host: The address to listen on.
        port: None takes the first free one from TensorBoard's own, 6006, on.

    Raises:
        UsageError: where the port is taken, the address is none of this machine's, or the logdir is a file.
    """
    from tensorboard import default, program

    if logdir.exists() and not logdir.is_dir():
        raise UsageError(f"{logdir} is no directory; give the logdir that the runs were written to")
    _check_address(host, port)
    plugin = repair()
    board = program.TensorBoard(plugins=default.get_plugins())
    board.configure(
        argv=["tensorboard", "--logdir", str(logdir), "--host", host, *(["--port", str(port)] if port else [])]
    )
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    try:
        url = board.launch()
    except program.TensorBoardServerException as error:
        raise UsageError(f"TensorBoard cannot start: {error.msg}") from error
    found = list(find_runs(logdir))
    console.out.print(
        f"{len(found)} runs with {sum(len(windows(run)) for run in found)} windows in {logdir}", highlight=False
    )
    console.out.print(plugin.message, highlight=False)
    console.out.print(f"TensorBoard: [bold]{url}[/]   (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    over.wait()


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
