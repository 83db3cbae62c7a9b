"""Sizes and times: taken as people write them, and written as people read them."""

from __future__ import annotations

import re
from collections.abc import Mapping

MIB, GIB = 2**20, 2**30

_SIZES = {"": 1, "b": 1, **{f"{unit}b": 1000**power for power, unit in enumerate("kmgt", 1)}}
_SIZES |= {f"{unit}ib": 1024**power for power, unit in enumerate("kmgt", 1)}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_bytes(text: str) -> int:
    """``500 MB``, ``20GiB`` or a plain number of bytes, as bytes.

    Raises:
        ValueError: for anything else.
    """
    return int(_quantity(text, _SIZES, "a size as 500MB or 20GiB"))


def parse_seconds(text: str) -> float:
    """``90m``, ``12h``, ``30d`` or a plain number of seconds, as seconds.

    Raises:
        ValueError: for anything else.
    """
    return _quantity(text, _TIMES, "a time as 90m, 12h or 30d")


def _quantity(text: str, units: Mapping[str, int], expected: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    if match is None or match[2] not in units or not float(match[1]):
        raise ValueError(f"must be {expected}, more than 0")
    return float(match[1]) * units[match[2]]


def duration(us: float) -> str:
    """Microseconds with three digits: `23.1 µs`, `1.28 ms`, `2.05 s`."""
    for unit, scale in (("µs", 1.0), ("ms", 1e3)):
        if abs(us) / scale < 999.5:
            return f"{three_digits(us / scale)} {unit}"
    return f"{three_digits(us / 1e6)} s"


def size(count: float) -> str:
    """Bytes with three digits: `512 B`, `1.66 GiB`."""
    if abs(count) < 1024:
        return f"{count:,.0f} B"
    for unit, scale in (("KiB", 2**10), ("MiB", MIB), ("GiB", GIB)):
        if abs(count) / scale < 999.5:
            return f"{three_digits(count / scale)} {unit}"
    return f"{three_digits(count / 2**40)} TiB"


def three_digits(value: float) -> str:
    """`0`, `1.28`, `23.1`, `512`."""
    if value == 0:
        return "0"
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    return f"{value:,.{digits}f}"
