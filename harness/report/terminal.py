"""A document on a terminal: laid out for its width, styled and printed by Rich.

Rich's own tables shrink every column and cut names at their end, where kernels differ. Here numbers stay
whole: names are cut in the middle, then the least telling columns go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap as break_lines

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from harness.report.document import (
    Block,
    Cell,
    Column,
    Facts,
    Line,
    Numbered,
    Paragraph,
    Picture,
    Section,
    Styled,
    Table,
)
from harness.report.units import crop, pad, printable, shorten

GAP = 2
NARROWEST_NAME = 24
NARROWEST_PROSE = 30
WIDEST = 100
"""Of names and of prose: longer lines are hard to follow."""
# A number and its unit stay on one line.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|[µm]?s\b|[KMGT]iB\b|times\b)")
HEADING = "bold"
TITLE = "bold underline"
FAINT = "dim"


def show(sections: Iterable[Section], console: Console) -> None:
    """Print sections with a blank line between them."""
    width = console.width
    lines: list[Line] = []
    complete = True
    for section in sections:
        lines.append([_styled(section.title, TITLE)])
        for block in section.blocks:
            lines += _lines(block, width)
            complete &= not (isinstance(block, Table) and len(_kept(block, width)) < len(block.columns))
        lines.append([])
    if not complete:
        note = f"Columns that do not fit into {width} characters are left out; --format markdown has them all."
        lines += [[Styled(row, FAINT)] for row in wrap(note, width)]
    # One text for all: printing has a price of its own.
    text = Text()
    for line in lines:
        _append(line, width, text)
    text.rstrip()
    console.print(text, no_wrap=True, highlight=False, soft_wrap=True)


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters."""
    rows = break_lines(_BEFORE_UNIT.sub("\xa0", text), max(width, 1))
    return [row.replace("\xa0", " ") for row in rows]


def _append(line: Line, width: int, text: Text) -> None:
    """Add a line that does not exceed `width`, without spaces at its end."""
    pieces = [(crop(printable(piece), width), style) for piece, style in line]
    while pieces and not pieces[-1][0].strip():
        pieces.pop()
    left = width
    for place, (piece, style) in enumerate(pieces):
        shown = crop(piece.rstrip() if place == len(pieces) - 1 else piece, left)
        left -= cell_len(shown)
        text.append(shown, style or None)
    text.append("\n")


def _styled(cell: Cell, style: str = "") -> Styled:
    return cell if isinstance(cell, Styled) else Styled(cell, style)


def _lines(block: Block, width: int) -> Iterator[Line]:
    if isinstance(block, Paragraph):
        yield from ([Styled(row, block.style)] for row in wrap(block.text, min(width, WIDEST)))
    elif isinstance(block, Picture):
        yield from block.draw(width)
    elif isinstance(block, Facts):
        yield from _facts(block, width)
    elif isinstance(block, Numbered):
        yield from _numbered(block, width)
    else:
        yield from _table(block, width)


def _facts(facts: Facts, width: int) -> Iterator[Line]:
    indent = min(max((cell_len(term) for term, _ in facts.items), default=0), width // 3) + GAP
    for term, sentence in facts.items:
        rows = wrap(sentence, min(width, WIDEST + indent) - indent) or [""]
        for place, row in enumerate(rows):
            yield [Styled(pad(crop("" if place else term, indent - GAP), indent), HEADING), Styled(row, "")]


def _numbered(block: Numbered, width: int) -> Iterator[Line]:
    for place, (what, why) in enumerate(block.items, 1):
        number, bold = f"{place}. ", len(what) + 1
        for row in wrap(f"{what}: {why}", min(width, WIDEST) - len(number)):
            head, bold = row[:bold], max(bold - len(row) - 1, 0)
            yield [Styled(number, HEADING), Styled(head, HEADING), Styled(row[len(head) :], "")]
            number = " " * len(number)


def _table(table: Table, width: int) -> Iterator[Line]:
    kept = _kept(table, width)
    columns = [table.columns[place] for place in kept]
    cells = [[_styled(row[place]) for place in kept] for row in table.rows]
    widths = _widths(columns, cells, width)
    if any(column.title for column in columns):
        yield from _row(columns, [Styled(column.title, HEADING) for column in columns], widths)
    for row in cells:
        yield from _row(columns, row, widths)


def _row(columns: Sequence[Column], cells: Sequence[Styled], widths: Sequence[int]) -> Iterator[Line]:
    """One row: several lines where prose wraps."""
    pieces = [
        (wrap(cell.text, width) or [""]) if column.flex == "wrap" else [shorten(cell.text, width)]
        for column, cell, width in zip(columns, cells, widths, strict=True)
    ]
    for height in range(max(map(len, pieces))):
        line = []
        for place, (column, cell, width) in enumerate(zip(columns, cells, widths, strict=True)):
            piece = pieces[place][height] if height < len(pieces[place]) else ""
            gap = " " * GAP if place + 1 < len(columns) else ""
            line.append(Styled(pad(piece, width, right=column.right) + gap, cell.style))
        yield line


def _natural(column: Column, cells: Iterable[Cell]) -> int:
    widest = max((cell_len(_styled(cell).text) for cell in cells), default=0)
    return max(cell_len(column.title), widest if column.flex == "no" else min(widest, WIDEST))


def _least(column: Column, natural: int, width: int) -> int:
    """Narrower than this a flexible column would tell little; others are dropped for it."""
    if column.flex == "no":
        return natural
    return min(natural, max(NARROWEST_NAME, width // 5) if column.flex == "shorten" else NARROWEST_PROSE)


def _kept(table: Table, width: int) -> list[int]:
    """Places of the columns that fit."""
    least = [
        _least(column, _natural(column, (row[place] for row in table.rows)), width)
        for place, column in enumerate(table.columns)
    ]
    kept = list(range(len(least)))
    while sum(least[place] + GAP for place in kept) - GAP > width:
        worst = max(kept, key=lambda place: (table.columns[place].drop, place))
        if not table.columns[worst].drop:
            break
        kept.remove(worst)
    return kept


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """Width of each column: whole where it is rigid; the flexible ones share what is left, none more than it
    needs."""
    natural = [_natural(column, (row[place] for row in rows)) for place, column in enumerate(columns)]
    flexible = [place for place, column in enumerate(columns) if column.flex != "no"]
    left = width - GAP * (len(columns) - 1) - sum(natural[p] for p in range(len(columns)) if p not in flexible)
    result = list(natural)
    for served, place in enumerate(sorted(flexible, key=lambda place: natural[place])):
        result[place] = max(min(natural[place], left // (len(flexible) - served)), 1)
        left -= result[place]
    return result
