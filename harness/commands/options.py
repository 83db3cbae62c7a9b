"""Arguments that several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Logdir = Annotated[Path, typer.Argument(help="Where runs were written.", show_default=True)]
Trace = Annotated[Path, typer.Argument(help="A trace file, a window, a run, or a logdir (its newest run).")]
Window = Annotated[
    int | None,
    typer.Option(help="The window of a run that begins at this step; -1 is the newest, -2 the one before."),
]
AllowedHosts = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        envvar="HARNESS_ALLOWED_HOSTS",
        help="Further names by which browsers may ask, as behind a proxy: hub.example.com,.lab.example.com",
        show_default=False,
    ),
]


class Format(StrEnum):
    table = "table"
    json = "json"


class ReportFormat(StrEnum):
    table = "table"
    markdown = "markdown"
    json = "json"
