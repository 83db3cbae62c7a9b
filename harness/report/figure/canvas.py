"""What a figure is drawn on: a vector file, or an image where nothing shows vectors."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import Literal, Protocol

Anchor = Literal["start", "middle", "end"]
Place = tuple[float, float]
INK = "#0f172a"
FONT_SIZE = 12
DASH, GAP = 5, 4


class Canvas(Protocol):
    """White, of a size in pixels; the origin is the upper left corner."""

    def line(self, places: Sequence[Place], colour: str, width: int = 1, *, dashed: bool = False) -> None: ...

    def dot(self, x: float, y: float, colour: str, radius: float = 3.5) -> None: ...

    def text(self, x: float, y: float, text: str, anchor: Anchor, colour: str = INK) -> None:
        """``y`` is that of the base line."""


class Svg:
    """title: what a screen reader says of it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            f'font-size="{FONT_SIZE}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="white"/>',
        ]

    def line(self, places: Sequence[Place], colour: str, width: int = 1, *, dashed: bool = False) -> None:
        dash = f' stroke-dasharray="{DASH} {GAP}"' if dashed else ""
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        self._parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>')

    def dot(self, x: float, y: float, colour: str, radius: float = 3.5) -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')

    def text(self, x: float, y: float, text: str, anchor: Anchor, colour: str = INK) -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'
        )

    def document(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])


class Png:
    """At twice the size, for screens that have the pixels."""

    SCALE = 2

    def __init__(self, width: int, height: int) -> None:
        from PIL import Image, ImageDraw, ImageFont

        self._image = Image.new("RGB", (width * self.SCALE, height * self.SCALE), "white")
        self._draw = ImageDraw.Draw(self._image)
        self._font = ImageFont.load_default(FONT_SIZE * self.SCALE)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self._image.size

    def line(self, places: Sequence[Place], colour: str, width: int = 1, *, dashed: bool = False) -> None:
        for piece in _dashes(places) if dashed else [places]:
            scaled = [(x * self.SCALE, y * self.SCALE) for x, y in piece]
            self._draw.line(scaled, fill=colour, width=width * self.SCALE, joint="curve")

    def dot(self, x: float, y: float, colour: str, radius: float = 3.5) -> None:
        self._draw.circle((x * self.SCALE, y * self.SCALE), radius * self.SCALE, fill=colour)

    def text(self, x: float, y: float, text: str, anchor: Anchor, colour: str = INK) -> None:
        text = text.replace("µ", "u")  # which Pillow's font lacks
        at = {"start": "ls", "middle": "ms", "end": "rs"}[anchor]
        self._draw.text((x * self.SCALE, y * self.SCALE), text, fill=colour, font=self._font, anchor=at)

    def document(self) -> bytes:
        file = io.BytesIO()
        self._image.save(file, "PNG", optimize=True)
        return file.getvalue()


def _dashes(places: Sequence[Place]) -> Iterator[list[Place]]:
    """The strokes of a dashed line, each of one segment."""
    for (x, y), (to_x, to_y) in pairwise(places):
        length = math.hypot(to_x - x, to_y - y)
        for number in range(math.ceil(length / (DASH + GAP))):
            ends = (number * (DASH + GAP) / length, min(1.0, (number * (DASH + GAP) + DASH) / length))
            yield [(x + (to_x - x) * end, y + (to_y - y) * end) for end in ends]
