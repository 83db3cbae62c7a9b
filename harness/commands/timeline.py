"""``harness timeline``: a trace in Perfetto, without TensorBoard."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.commands.options import AllowedHosts, Trace, Window


def timeline(
    path: Trace,
    window: Window = None,
    port: Annotated[
        int | None, typer.Option(help="The first free one from 9100 on where none is given.", min=0, max=65535)
    ] = None,
    allowed_hosts: AllowedHosts = "",
    open: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Show a trace on a timeline in the browser (Perfetto, offline), until Ctrl-C."""
    from harness.timeline.serve import serve
    from harness.web.hosts import allowed_hosts as names

    serve(path, window=window, port=port, allowed_hosts=names(allowed_hosts), open_browser=open)
