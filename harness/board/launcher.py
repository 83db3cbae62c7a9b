"""``harness board``: TensorBoard on a logdir."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from harness import console
from harness.errors import UsageError
from harness.run import find_runs, windows


def serve(logdir: Path, *, host: str, port: int | None) -> None:
    """Run TensorBoard until SIGINT or SIGTERM.

    Args:
        logdir: It need not exist yet; its runs appear as they come.
        host: The address to listen on.
        port: None takes the first free one from TensorBoard's own, 6006, on.

    Raises:
        UsageError: where the port is taken or the address is none of this machine's.
    """
    from tensorboard import default, program

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
    console.out.print(f"TensorBoard: [bold]{url}[/]   (Ctrl-C ends it)", highlight=False, soft_wrap=True)
    over.wait()
