"""Numbers and names as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from harness.quantities import duration as duration
from harness.quantities import size as size
from harness.quantities import three_digits

GONE = "…"


def share(fraction: float) -> str:
    """A fraction as `12.3 %`; what is there but rounds to nothing is `<0.1 %`."""
    if 0 < abs(fraction) < 0.0005:
        return "<0.1 %"
    return f"{100 * fraction:.1f} %"


def rate(value: float, unit: str) -> str:
    """With a decimal prefix: `4.5 TFLOP`, `21.3 GB/s`."""
    for prefix, scale in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)):
        if abs(value) / scale < 999.5:
            return f"{three_digits(value / scale)} {prefix}{unit}"
    return f"{three_digits(value / 1e15)} P{unit}"


def torch_time(us: float) -> str:
    """As `key_averages().table()` prints it: `276.715us`, `3.979ms`."""
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def torch_share(part: float, whole: float) -> str:
    """As `key_averages().table()` prints it: `47.49%`."""
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


def torch_size(count: int) -> str:
    """The digits of `key_averages().table()`, which writes `MB` for what is 2^20 bytes: `-142.29 MiB`."""
    for unit, unit_size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(count) >= unit_size:
            return f"{count / unit_size:.2f} {unit}"
    return f"{count} B"


def shapes(dims: Sequence[Sequence[int]]) -> str:
    """Shapes of the inputs that have one: `[32×1024] [4096×1024]`."""
    return " ".join("[" + "×".join(map(str, shape)) + "]" for shape in dims if shape)


def printable(text: str) -> str:
    """Without control characters: names come from files, and a terminal obeys what it is sent."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "�" for c in text)


def shorten(text: str, width: int) -> str:
    """At most `width` cells, cut in the middle: the two ends of a name tell most of it."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return GONE[:width]
    head, tail = _cut(text, width // 2), _cut(text[::-1], (width - 1) // 2)[::-1]
    return head + GONE + tail


def crop(text: str, width: int) -> str:
    """At most `width` cells, cut at the end."""
    return text if cell_len(text) <= width else _cut(text, width)


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Filled with spaces to `width` cells; `right` aligns to the right."""
    space = " " * (width - cell_len(text))
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    if text.isascii():
        return text[:width]
    used = 0
    for place, character in enumerate(text):
        used += cell_len(character)
        if used > width:
            return text[:place]
    return text


def bar(fraction: float, width: int = 24) -> str:
    """A bar of block characters, in eighths of one."""
    eighths = round(min(max(fraction, 0.0), 1.0) * width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
