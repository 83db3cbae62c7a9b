"""Draws docs/architecture.svg: the rooms of the house on their floors, from the imports as they are.

    python docs/draw_architecture.py            writes it
    python docs/draw_architecture.py --check    exit status 1 where it is not as the imports are

An arrow that follows from two others is left out: who imports report, and through it trace, shows the first. So are
arrows to the ground floor, on which all others stand.
"""

from __future__ import annotations

import sys
from html import escape
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.house import Arrows, House, circles, floors  # noqa: E402

PICTURE = Path(__file__).with_name("architecture.svg")
WIDTH, FLOOR, HEIGHT, MARGIN = 960, 84, 44, 24
LANE, GAP = 24, 28
"""Widths of an arrow that passes a floor, and of what is free between two things on one."""
PASSES = 24
"""In which boxes move above what they import; more change nothing."""

Route = list[str]
"""The places of an arrow: a room, one place on each floor that it passes, a room."""


def drawn(arrows: Arrows) -> dict[str, set[str]]:
    """The arrows without those that follow from others, and without those to rooms that import none."""

    def below(room: str) -> set[str]:
        return set().union(*({there} | below(there) for there in arrows.get(room, ())))

    return {
        room: {one for one in others if arrows[one] and not any(one in below(other) for other in others - {one})}
        for room, others in arrows.items()
    }


def plan(arrows: Arrows) -> tuple[list[list[str]], list[Route]]:
    """What stands on each floor, from the ground up and from left to right, and the arrows through it.

    The barycentre heuristic of Sugiyama, Tagawa and Toda (1981): each thing where the middle of its neighbours is.
    """
    floor = floors(arrows)
    paths = [
        [room, *(f"{room}>{other}@{at}" for at in range(floor[room] - 1, floor[other], -1)), other]
        for room, others in sorted(drawn(arrows).items())
        for other in sorted(others)
    ]
    rows: list[list[str]] = [[] for _ in range(max(floor.values()) + 1)]
    for room in sorted(arrows):
        rows[floor[room]].append(room)
    near: dict[str, list[str]] = {}
    for path in paths:
        for place, name in enumerate(path):
            if ">" in name:
                rows[floor[path[0]] - place].append(name)
        for upper, lower in pairwise(path):
            near.setdefault(upper, []).append(lower)
            near.setdefault(lower, []).append(upper)
    for turn in range(PASSES):
        for row in rows if turn % 2 else rows[::-1]:
            at = {name: middle for one in rows for name, middle in _laid_out(one).items()}
            row.sort(
                key=lambda name: sum(at[other] for other in near[name]) / len(near[name]) if name in near else at[name]
            )
    return rows, paths


def _width(name: str) -> int:
    return LANE if ">" in name else max(84, 9 * len(name) + 30)


def _laid_out(row: list[str]) -> dict[str, float]:
    """The middle of each thing on a floor, all of them together in the middle of the picture."""
    left = (WIDTH - sum(map(_width, row)) - GAP * (len(row) - 1)) / 2
    found = {}
    for name in row:
        found[name] = left + _width(name) / 2
        left += _width(name) + GAP
    return found


def draw(house: House) -> str:
    """The picture, as SVG.

    Raises:
        ValueError: where rooms import each other in a circle, which has no floors.
    """
    arrows = house.rooms()
    if found := circles(arrows):
        raise ValueError("a circle has no floors: " + "; ".join(" <-> ".join(circle) for circle in found))
    rows, paths = plan(arrows)
    height = MARGIN * 2 + FLOOR * len(rows) - (FLOOR - HEIGHT)
    top = {name: height - MARGIN - HEIGHT - FLOOR * number for number, row in enumerate(rows) for name in row}
    middle = {name: x for row in rows for name, x in _laid_out(row).items()}
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
        "<title>The rooms of harness, each above those that it imports</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        '<g fill="none" stroke="#8a93a3" stroke-width="1.3">',
    ]
    for path in paths:
        d = f"M{middle[path[0]]:.0f} {top[path[0]] + HEIGHT}"
        for upper, lower in pairwise(path):
            x, y, to_x, to_y = middle[upper], top[upper] + HEIGHT, middle[lower], top[lower]
            bend = (to_y - y) / 2
            d += f" C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y}"
            if ">" in lower:
                d += f" V{to_y + HEIGHT}"
        x, y = middle[path[-1]], top[path[-1]]
        head = f"M{x - 4:.0f} {y - 7} L{x:.0f} {y} L{x + 4:.0f} {y - 7}"
        lines.append(f'<path d="{d}"/><path d="{head}" fill="#8a93a3"/>')
    lines.append('</g><g text-anchor="middle">')
    for room in sorted(arrows):
        x, y = middle[room], top[room]
        inside = len(house.within(f"harness.{room}")) - (f"harness/{room}/__init__.py" in house.sources)
        lines.append(
            f'<rect x="{x - _width(room) / 2:.0f}" y="{y}" width="{_width(room)}" height="{HEIGHT}" rx="6" '
            f'fill="#eef3fb" stroke="#33527a"/>'
            f'<text x="{x:.0f}" y="{y + 19}" font-size="15" font-weight="600" fill="#1b2c44">{escape(room)}</text>'
            f'<text x="{x:.0f}" y="{y + 35}" font-size="11" fill="#55606f">'
            f"{inside} module{'' if inside == 1 else 's'}</text>"
        )
    return "\n".join([*lines, "</g></svg>", ""])


def main() -> int:
    """The exit status."""
    house = House.read(ROOT)
    picture = draw(house)
    if "--check" in sys.argv[1:]:
        return int(not PICTURE.is_file() or PICTURE.read_text(encoding="utf-8") != picture)
    PICTURE.write_text(picture, encoding="utf-8")
    arrows = house.rooms()
    every, shown = (sum(map(len, some.values())) for some in (arrows, drawn(arrows)))
    stories = max(floors(arrows).values()) + 1
    print(f"{len(arrows)} rooms on {stories} floors, {every} arrows, {shown} of them drawn: {PICTURE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
