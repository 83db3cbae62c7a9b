"""What a report consists of, before anything is known of the place where it will be shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from harness.trace.schema import Advice


class Styled(NamedTuple):
    """Text with a Rich style, which Markdown ignores."""

    text: str
    style: str


Cell = str | Styled
Line = Sequence[Styled]


def plain(cell: Cell) -> str:
    """Its text."""
    return cell.text if isinstance(cell, Styled) else cell


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Where the width is short the column with the largest `drop` goes first; one with 0 stays.
    """

    title: str
    right: bool = True
    drop: int = 0
    flex: Literal["no", "shorten", "wrap"] = "no"
    code: bool = False
    """Names from the trace: Markdown sets them as code."""


def name(title: str, *, drop: int = 0) -> Column:
    """A column of names, shortened in the middle."""
    return Column(title, right=False, drop=drop, flex="shorten", code=True)


def prose(title: str, *, drop: int = 0) -> Column:
    """A column of sentences, wrapped."""
    return Column(title, right=False, drop=drop, flex="wrap")


def text(title: str, *, drop: int = 0) -> Column:
    """A column of short words."""
    return Column(title, right=False, drop=drop)


@dataclass(frozen=True)
class Table:
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def without(table: Table, *titles: str) -> Table:
    """A table less the columns of these titles."""
    kept = [place for place, column in enumerate(table.columns) if column.title not in titles]
    return Table([table.columns[p] for p in kept], [[row[p] for p in kept] for row in table.rows])


@dataclass(frozen=True)
class Facts:
    """Terms, each with a sentence."""

    items: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Numbered:
    """A list of things to do: what, and why."""

    items: Sequence[tuple[str, str]]


def numbered(advice: Sequence[Advice]) -> Numbered:
    """Advice as a list, with the operator and the line in parentheses."""
    items = []
    for one in advice:
        named = one.operator if one.operator and one.operator not in one.reason else None
        place = ", ".join(part for part in (named, one.line) if part)
        items.append((one.lever, f"{one.reason} ({place})" if place else one.reason))
    return Numbered(items)


@dataclass(frozen=True)
class Paragraph:
    text: str
    style: str = ""


@dataclass(frozen=True)
class Picture:
    """Lines of characters, drawn for a width."""

    draw: Callable[[int], Sequence[Line]]


Block = Table | Facts | Numbered | Paragraph | Picture


@dataclass(frozen=True)
class Section:
    title: Cell
    blocks: Sequence[Block] = field(default_factory=list)


def more(shown: int, there: int) -> list[Paragraph]:
    """What is said below a table that does not show all of its rows."""
    return [Paragraph(f"{shown} of {there:,} rows; --rows shows more.", "dim")] if shown < there else []
