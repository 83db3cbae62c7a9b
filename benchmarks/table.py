"""What every benchmark prints: rows of medians with their ratios, as a table and with ``--json PATH`` as a file."""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table


class Row(msgspec.Struct, kw_only=True):
    """One measured value; ``ratio`` is against the row named ``versus``."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    versus: str | None = None


def interleaved(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """``rounds`` values of each contender, in turns and in another order each time, so that a noisy machine is
    noisy to all of them, and nobody always follows the same neighbour."""
    values: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(contenders), len(contenders)):
            values[name].append(contenders[name]())
    return values


def against(values: Mapping[str, list[float]], versus: str, unit: str) -> list[Row]:
    """A row each: the median, and its ratio to that of ``versus``."""
    medians = {name: statistics.median(measured) for name, measured in values.items()}
    return [
        Row(name=name, value=median, unit=unit, ratio=median / medians[versus], versus=versus)
        for name, median in medians.items()
    ]


def arguments(description: str | None) -> argparse.ArgumentParser:
    """A parser that knows ``--json``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the rows there")
    return parser


def show(title: str, rows: list[Row], json: Path | None) -> None:
    """Print ``rows``, and write them where ``--json`` says."""
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    table.add_column("")
    table.add_column("median", justify="right")
    table.add_column("ratio", justify="right")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.3f} × {row.versus}"
        table.add_row(row.name, f"{row.value:,.4g} {row.unit}", ratio)
    Console().print(table)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2))
