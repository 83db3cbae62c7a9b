"""The house as its own imports draw it: modules, rooms, floors, circles.

The laws (tests/test_laws.py) are held against it, and docs/draw_architecture.py draws it.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

Arrows = Mapping[str, set[str]]
"""From each room or module to those that it imports."""


@dataclass(frozen=True)
class House:
    """Source files of the package, by their paths below the repository."""

    sources: Mapping[str, str]

    @classmethod
    def read(cls, root: Path) -> House:
        files = sorted((root / "harness").rglob("*.py"))
        return cls({path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in files})

    def planted(self, path: str, text: str) -> House:
        """The same with these lines at the end of a file, or in a new one."""
        before = self.sources.get(path, "")
        return House({**self.sources, path: f"{before}\n{text}\n"})

    @cached_property
    def modules(self) -> dict[str, str]:
        """Each module's file."""
        return {_module(path): path for path in self.sources}

    @cached_property
    def trees(self) -> dict[str, ast.Module]:
        """Each module, parsed."""
        return {module: ast.parse(self.sources[path]) for module, path in self.modules.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The full names that each module imports, at any place: at its head, in a function, for type checkers alone,
        or by ``import_module``."""
        return {
            module: set(_imported(module, tree, is_face=self.modules[module].endswith("/__init__.py")))
            for module, tree in self.trees.items()
        }

    @cached_property
    def arrows(self) -> dict[str, set[str]]:
        """From each module of the house to the others that it imports."""
        return {module: {self._home(name) for name in names} - {module, ""} for module, names in self.imports.items()}

    def libraries(self, module: str) -> set[str]:
        """Packages that are neither ours nor Python's own."""
        return {name.partition(".")[0] for name in self.imports[module]} - {"harness", *sys.stdlib_module_names}

    def within(self, room: str) -> list[str]:
        """The modules of a room, which is a module or a package; what is no room is an error, not an empty one."""
        found = [module for module in self.modules if _is_within(module, room)]
        assert found, f"there is no {room} any more; the laws name it"
        return found

    def between(self, here: str, there: Iterable[str]) -> list[str]:
        """The arrows from one room to others, as ``a -> b``."""
        there = tuple(there)
        return [
            f"{module} -> {target}"
            for module in self.within(here)
            for target in sorted(self.arrows[module])
            if any(_is_within(target, room) for room in there)
        ]

    def grouped(self, room_of: Callable[[str], str]) -> dict[str, set[str]]:
        """The arrows between groups of modules; those whose group is "" are left out."""
        found: dict[str, set[str]] = {}
        for module, targets in self.arrows.items():
            if here := room_of(module):
                found.setdefault(here, set()).update({room_of(target) for target in targets} - {here, ""})
        return found

    def rooms(self) -> dict[str, set[str]]:
        """The rooms at the top, and those that each imports; ``python -m harness`` is a door, no room."""
        return self.grouped(lambda module: f"{module}.".split(".")[1].replace("__main__", ""))

    def _home(self, name: str) -> str:
        """The module in which an imported name stands; "" for what is none of ours."""
        while name and name not in self.modules:
            name = name.rpartition(".")[0]
        return name


def circles(arrows: Arrows) -> list[list[str]]:
    """Groups of which every member reaches every other (Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(here: str) -> None:
        order[here] = low[here] = len(order)
        stack.append(here)
        for there in sorted(arrows.get(here, ())):
            if there not in order:
                visit(there)
                low[here] = min(low[here], low[there])
            elif there in stack:
                low[here] = min(low[here], order[there])
        if low[here] == order[here]:
            group = stack[stack.index(here) :]
            del stack[-len(group) :]
            if len(group) > 1 or here in arrows.get(here, ()):
                found.append(sorted(group))

    for start in sorted(arrows):
        if start not in order:
            visit(start)
    return found


def floors(arrows: Arrows) -> dict[str, int]:
    """How many rooms stand below each at most, one on the other; where there is no circle."""
    found: dict[str, int] = {}

    def floor(room: str) -> int:
        if room not in found:
            found[room] = max((floor(below) + 1 for below in arrows.get(room, ())), default=0)
        return found[room]

    for room in arrows:
        floor(room)
    return found


def literals(tree: ast.AST) -> Iterator[str]:
    """Texts in the code, those in f-strings too; docstrings, and what stands beside a name to explain it, left out."""
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in explained:
            yield node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


def _module(path: str) -> str:
    return ".".join(PurePosixPath(path).with_suffix("").parts).removesuffix(".__init__")


def _is_within(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def _imported(module: str, tree: ast.Module, *, is_face: bool) -> Iterator[str]:
    by_name = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            by_name.append(node)
    # A face hands names on from a table of where they are.
    for node in [tree] if is_face and by_name else by_name:
        yield from (text for text in literals(node) if text.partition(".")[0] == "harness" and text.isprintable())
