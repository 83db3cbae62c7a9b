"""A document on standard output, as a terminal's tables or as Markdown."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from harness.report.document import Section


def show(document: Sequence[Section], *, as_markdown: bool) -> None:
    """Print it; a terminal that lacks a character gets a question mark for it."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    if as_markdown:
        from harness.report import markdown

        sys.stdout.write(markdown.render(document))
    else:
        from harness import console
        from harness.report import terminal

        terminal.show(document, console.out)
