"""A document as GitHub's Markdown, fit for an issue or a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from harness.report.document import Block, Cell, Column, Facts, Numbered, Paragraph, Picture, Section, Table, plain
from harness.report.units import printable

PICTURE_WIDTH = 100
# Underscores inside a word mean nothing to GitHub.
_MEANING = re.compile(r"[\\`*\[\]<|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+-]")
_BACKTICKS = re.compile(r"`+")


def render(sections: Iterable[Section]) -> str:
    """The whole text; the first section's title is the heading of them all."""
    lines: list[str] = []
    for place, section in enumerate(sections):
        lines += [f"{'###' if place else '##'} {escape(plain(section.title))}", ""]
        for block in section.blocks:
            lines += [*_lines(block), ""]
    return "\n".join(lines)


def escape(text: str) -> str:
    """Prose that means what it says, in a table as well."""
    return _MEANING.sub(r"\\\g<0>", printable(text))


def code(text: str) -> str:
    """A name as code. A pipe would end the table's cell even here."""
    text = printable(text).replace("|", "\\|")
    if not text:
        return ""
    fence = "`" * (max((len(run) for run in _BACKTICKS.findall(text)), default=0) + 1)
    return f"{fence} {text} {fence}" if len(fence) > 1 else f"`{text}`"


def _lines(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield escape(block.text)
    elif isinstance(block, Facts):
        yield from (f"- **{escape(term)}**: {escape(sentence)}" for term, sentence in block.items)
    elif isinstance(block, Numbered):
        for place, (what, why) in enumerate(block.items, 1):
            yield f"{place}. **{escape(what)}**: {escape(why)}"
    elif isinstance(block, Picture):
        yield "```text"
        yield from (printable("".join(piece for piece, _ in line)).rstrip() for line in block.draw(PICTURE_WIDTH))
        yield "```"
    else:
        yield from _table(block)


def _table(table: Table) -> Iterator[str]:
    yield _row(column.title.replace("|", "\\|") for column in table.columns)
    yield _row("---:" if column.right else "---" for column in table.columns)
    for row in table.rows:
        yield _row(_cell(column, cell) for column, cell in zip(table.columns, row, strict=True))


def _cell(column: Column, cell: Cell) -> str:
    return code(plain(cell)) if column.code else escape(plain(cell))


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"
