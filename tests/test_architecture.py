"""docs/architecture.md says what the source says: its rooms, its laws, its picture."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.house import House, circles, floors
from tests.launch import ROOT
from tests.test_laws import HOUSE, LAWS

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_picture_is_as_the_imports_are() -> None:
    done = subprocess.run([sys.executable, "docs/draw_architecture.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "python docs/draw_architecture.py"


def test_the_picture_has_every_room_and_no_floors_for_a_circle() -> None:
    picture = (ROOT / "docs" / "architecture.svg").read_text(encoding="utf-8")
    assert set(re.findall(r'font-weight="600"[^>]*>(\w+)<', picture)) == set(HOUSE.rooms())
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        from draw_architecture import draw
    finally:
        sys.path.pop(0)
    with pytest.raises(ValueError, match="errors <-> trace"):
        draw(House({"harness/errors.py": "import harness.trace", "harness/trace/__init__.py": "import harness.errors"}))


def test_every_room_has_its_line() -> None:
    rows = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)/?`", rows)) == set(HOUSE.rooms())
    for room in HOUSE.rooms():
        is_package = f"harness/{room}/__init__.py" in HOUSE.sources
        assert (f"`{room}/`" in rows) == is_package


def test_every_law_is_told() -> None:
    told = PAGE.replace("`", "")
    for law in LAWS:
        said = re.sub(r"^'(\S+)' stands in one file$", r"\1", law.says)
        assert said in told, law.says


def test_files_and_folders_that_the_page_names_are_there() -> None:
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", PAGE):
        assert (ROOT / name).is_file() or (ROOT / "harness" / name).is_file(), name


def test_rooms_floors_and_arrows_are_few() -> None:
    """A newcomer draws the house after one look: 37 rooms on 12 floors with 142 arrows were too many."""
    rooms = HOUSE.rooms()
    assert circles(rooms) == []
    assert len(rooms) <= 24
    assert max(floors(rooms).values()) + 1 <= 10
    assert sum(map(len, rooms.values())) <= 100
