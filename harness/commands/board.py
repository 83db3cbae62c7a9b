"""``harness board``: TensorBoard, with the tab Windows and the repaired plugin."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.commands.options import AllowedHosts, Logdir


def board(
    logdir: Logdir = Path("tb_logs"),
    port: Annotated[int | None, typer.Option(help="The first free one from 6006 on where none is given.")] = None,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than this machine reach no loopback one.")
    ] = "localhost",
    allowed_hosts: AllowedHosts = "",
    open: Annotated[bool, typer.Option("--open", help="Open the tab Windows in the browser.")] = False,
) -> None:
    """Start TensorBoard on a logdir or a run, until Ctrl-C.

    It answers to localhost and to what --host says; where others reach it, to this machine's names and to addresses in
    digits. Whoever may ask may read the logdir: there is no password.
    """
    from harness.board.launcher import serve
    from harness.web.hosts import allowed_hosts as names

    serve(logdir, host=host, port=port, allowed_hosts=names(allowed_hosts), open_browser=open)
