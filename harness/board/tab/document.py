"""The report's document as JSON, which the page turns into elements with text in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.report.document import Block, Cell, Facts, Numbered, Paragraph, Section, Styled, Table


def as_json(found: Iterable[Section | None]) -> list[dict[str, Any]]:
    """Those that have something to say."""
    return [
        {"title": cell(section.title), "blocks": [_block(block) for block in section.blocks]}
        for section in found
        if section is not None
    ]


def _block(block: Block) -> dict[str, Any]:
    if isinstance(block, Paragraph):
        return {"kind": "paragraph", "text": block.text, "style": block.style}
    if isinstance(block, Facts | Numbered):
        return {"kind": "facts" if isinstance(block, Facts) else "numbered", "items": list(block.items)}
    if isinstance(block, Table):
        columns = [
            {"title": column.title, "right": column.right, "code": column.code, "prose": column.flex == "wrap"}
            for column in block.columns
        ]
        return {"kind": "table", "columns": columns, "rows": [[cell(value) for value in row] for row in block.rows]}
    raise TypeError(f"a page draws no {type(block).__name__}")


def cell(value: Cell) -> str | dict[str, str]:
    """Text, or text with Rich's style."""
    return {"text": value.text, "style": value.style} if isinstance(value, Styled) else value
