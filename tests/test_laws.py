"""The laws of the layout: what may import what, and what must start without torch."""

from __future__ import annotations

import ast
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest

from tests.launch import ROOT, python

HEAVY = ("torch", "torchvision", "hydra", "sklearn")

TRACE = str(ROOT / "tests" / "traces" / "matmul_64.pt.trace.json.gz")
RUN = """
import json, sys
sys.argv = ["harness", *sys.argv[1:]]
from harness.cli import main
try:
    main()
except SystemExit as end:
    status = end.code
print(json.dumps({"status": status, "modules": sorted({name.split(".")[0] for name in sys.modules})}))
"""


def modules_after(*arguments: str, cwd: Path) -> set[str]:
    """What a command has imported when it ends."""
    done = python("-c", RUN, *arguments, cwd=cwd)
    assert done.status == 0, done.text
    said = json.loads(done.out.splitlines()[-1])
    assert not said["status"], done.text
    return set(said["modules"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["commands"],
        ["runs", "."],
        ["runs", ".", "--format", "json"],
        ["compare", TRACE, TRACE],
        ["board", "--help"],
        ["timeline", "--help"],
    ],
    ids=" ".join,
)
def test_every_command_but_train_starts_without_torch(arguments: list[str], tmp_path: Path) -> None:
    assert not modules_after(*arguments, cwd=tmp_path) & set(HEAVY)


def test_a_mistake_is_told_before_torch_is_loaded(tmp_path: Path) -> None:
    """Of Hydra's, and of the values that Hydra takes."""
    done = python("-c", RUN, "train", "trainer.max_steps=0", cwd=tmp_path)
    assert "trainer.max_steps=0: must be at least 1" in done.err
    assert "torch" not in json.loads(done.out.splitlines()[-1])["modules"]


def test_the_board_serves_without_torch(tmp_path: Path) -> None:
    # A port that is taken ends the command once everything that it needs is imported.
    done = python(
        "-c",
        "import socket, sys\n"
        "taken = socket.create_server(('127.0.0.1', 0))\n"
        "from pathlib import Path\n"
        "from harness.board.launcher import serve\n"
        "from harness.errors import UsageError\n"
        "try:\n"
        "    serve(Path('.'), host='127.0.0.1', port=taken.getsockname()[1])\n"
        "except UsageError:\n"
        "    print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'hydra', 'tensorboard'}))\n",
        cwd=tmp_path,
    )
    assert done.out.splitlines()[-1:] == ["['tensorboard']"], done.text


@pytest.mark.parametrize(
    "package",
    ["harness.trace", "harness.publish", "harness.report", "harness.timeline"],
)
def test_findings_are_read_without_torch_hydra_or_tensorboard(package: str, tmp_path: Path) -> None:
    if find_spec(package) is None:
        pytest.skip(f"{package} is not there yet")
    code = f"import sys, pkgutil, importlib, {package} as package\n" + (
        "for found in pkgutil.walk_packages(getattr(package, '__path__', []), package.__name__ + '.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "print(' '.join({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.status == 0, done.text
    assert not set(done.out.split()) & {*HEAVY, "tensorboard"}


def imports(path: Path) -> set[str]:
    """Modules that a file imports at any place, under their full names; those for type checkers alone left out."""
    found: set[str] = set()
    pending: list[ast.AST] = [ast.parse(path.read_text())]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        pending += ast.iter_child_nodes(node)
    return found


def room(module: str) -> str:
    """The file or package of the harness that a module belongs to."""
    parts = module.split(".")
    if parts[:2] in (["harness", "record"], ["harness", "trace"]):
        return ".".join(parts[:2])
    path = ROOT.joinpath(*parts)
    while not path.with_suffix(".py").is_file() and not (path / "__init__.py").is_file():
        path, parts = path.parent, parts[:-1]
    return ".".join(parts)


def graph() -> dict[str, set[str]]:
    """Every room of the harness and those that it imports."""
    edges: dict[str, set[str]] = {}
    for path in sorted((ROOT / "harness").rglob("*.py")):
        here = room(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
        found = {room(name) for name in imports(path) if name.split(".")[0] == "harness"}
        edges.setdefault(here, set()).update(found - {here, "harness"})
    return edges


def test_models_know_no_harness() -> None:
    paths = sorted((ROOT / "harness" / "models").rglob("*.py"))
    assert len(paths) > 5
    for path in paths:
        others = {name for name in imports(path) if not name.startswith("harness.models.")}
        assert {name.split(".")[0] for name in others} <= {"torch", *sys.stdlib_module_names}, path


def test_there_is_one_package_of_models_and_nothing_of_ours_imports_it_by_the_other_name() -> None:
    """The folder `models` of a checkout is a link: its modules under that name would be second copies."""
    beside = ROOT / "models"
    # A tree that was made from the sdist has none.
    assert not beside.exists() or (beside.is_symlink() and beside.samefile(ROOT / "harness" / "models"))
    for folder in ("harness", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert "models" not in {name.split(".")[0] for name in imports(path)}, path


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    pending = [start]
    while pending:
        for room in edges.get(pending.pop(), set()) - found:
            found.add(room)
            pending.append(room)
    return found


def test_no_arrow_points_back() -> None:
    edges = graph()
    assert {"harness.cli", "harness.train.main", "harness.train.trainer", "harness.record"} <= set(edges)
    assert [start for start in edges if start in reachable(edges, start)] == []


@pytest.mark.parametrize(
    ("below", "above"),
    [
        (
            "harness.record",
            ["harness.train.trainer", "harness.train.main", "harness.cli", "harness.data", "harness.config.schema"],
        ),
        (
            "harness.trace",
            ["harness.record", "harness.board", "harness.train.trainer", "harness.train.main", "harness.cli"],
        ),
        ("harness.train.trainer", ["harness.train.job", "harness.train.main", "harness.cli", "harness.config.schema"]),
        ("harness.train.job", ["harness.train.main", "harness.cli"]),
        ("harness.data", ["harness.train.trainer", "harness.train.main", "harness.config.schema"]),
        ("harness.train.main", ["harness.cli"]),
    ],
)
def test_arrows_run_from_cli_to_train_to_trainer_to_record(below: str, above: list[str]) -> None:
    edges = graph()
    if below not in edges:
        pytest.skip(f"{below} is not there yet")
    assert not reachable(edges, below) & set(above)


def test_errors_of_msgspec_are_value_errors_in_every_version_that_may_be_there() -> None:
    # Readers of foreign files and the publisher count on it of what cannot be decoded.
    (bound,) = re.findall(r'"msgspec>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert tuple(map(int, bound.split("."))) >= (0, 21)
    assert issubclass(msgspec.DecodeError, ValueError)
    assert issubclass(msgspec.ValidationError, ValueError)
