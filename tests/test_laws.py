"""The laws of the house: what may import what, where a fact stands, what must start without torch.

Each law is held against the source as it is, and against the source with a violation planted in it: a law that lets
one pass is none.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from tests.house import House, circles, floors, literals
from tests.launch import ROOT, python

HOUSE = House.read(ROOT)


@dataclass(frozen=True)
class Law:
    """A rule, what breaks it, and ways to break it that it must notice."""

    says: str
    broken: Callable[[House], list[str]]
    plants: tuple[Mapping[str, str], ...]
    """Files of the house with lines that may not stand in them."""


def never(here: str, *there: str) -> Callable[[House], list[str]]:
    """The room imports none of these."""
    return lambda house: house.between(here, [f"harness.{room}" for room in there])


def only(here: str, *there: str, libraries: set[str] | None = None) -> Callable[[House], list[str]]:
    """The room imports itself and these, and no other of the house; and of libraries, where given, these alone."""

    def broken(house: House) -> list[str]:
        allowed = (here, *(f"harness.{room}" for room in there))
        found = [
            f"{module} -> {target}"
            for module in house.within(here)
            for target in house.arrows[module]
            if target != "harness" and not any(target == room or target.startswith(f"{room}.") for room in allowed)
        ]
        if libraries is not None:
            found += [
                f"{module} -> {name}" for module in house.within(here) for name in house.libraries(module) - libraries
            ]
        return found

    return broken


def only_for(there: str, *here: str) -> Callable[[House], list[str]]:
    """The room is imported by itself and by these, and by no other."""

    def broken(house: House) -> list[str]:
        house.within(there)
        rooms = [f"harness.{room.split('.')[1]}" for room in house.modules if room.count(".")]
        above = {f"harness.{room}" for room in here} | {there}
        return [arrow for room in sorted({*rooms} - above) for arrow in house.between(room, [there])]

    return broken


def together(*laws: Callable[[House], list[str]]) -> Callable[[House], list[str]]:
    return lambda house: [breach for law in laws for breach in law(house)]


def where_there(here: str, law: Callable[[House], list[str]]) -> Callable[[House], list[str]]:
    """A law of a room that is to come."""
    return lambda house: law(house) if any(module.startswith(here) for module in house.modules) else []


TRACE = ("file", "measure", "verdict", "analyze", "ranks")
"""The floors within harness.trace, from the ground."""
FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "
HEAVY = ("torch", "torchvision", "hydra", "sklearn")
ABOVE_LOGDIR = ("publish", "record", "report", "timeline", "board", "data", "config", "train", "commands", "cli")


def inner_floors(house: House) -> list[str]:
    found = []
    for number, here in enumerate(TRACE):
        found += house.between(f"harness.trace.{here}", [f"harness.trace.{above}" for above in TRACE[number + 1 :]])
    return found


def prints(*rooms: str) -> Callable[[House], list[str]]:
    """Whatever reaches a terminal: print, the streams of the process, Rich and the console."""

    def broken(house: House) -> list[str]:
        found = []
        for module in (module for room in rooms for module in house.within(room)):
            for node in ast.walk(house.trees[module]):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                    found.append(f"{module}:{node.lineno} prints")
                if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stdout", "sys.stderr"):
                    found.append(f"{module}:{node.lineno} has a stream in hand")
            if "rich" in house.libraries(module) or "harness.console" in house.arrows[module]:
                found.append(f"{module} knows a terminal")
        return found

    return broken


def faces_define_nothing(house: House) -> list[str]:
    """Docstrings, imports, ``__all__`` and ``__version__``, and a ``__getattr__`` are all that an ``__init__`` has."""

    def defines(node: ast.stmt) -> bool:
        if isinstance(node, ast.Import | ast.ImportFrom):
            return False
        if isinstance(node, ast.Expr):
            return not isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign):
            return not all(isinstance(name, ast.Name) and name.id.startswith("__") for name in node.targets)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            return any(defines(inner) for inner in node.body + node.orelse)
        return not (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")

    return [
        f"{path}:{node.lineno} defines something"
        for path in house.sources
        if path.endswith("/__init__.py")
        for node in ast.parse(house.sources[path]).body
        if defines(node)
    ]


def stands_once(text: str) -> Callable[[House], list[str]]:
    """This text is a literal of one file, from which all others have it. (``window_us`` is no window's directory.)"""

    def broken(house: House) -> list[str]:
        has = re.compile(rf"(?<![a-z_]){re.escape(text)}(?![a-z])")
        found = [module for module, tree in house.trees.items() if any(map(has.search, literals(tree)))]
        return [] if len(found) == 1 else [f"{text!r} stands in {module}" for module in found] or [f"no {text!r}"]

    return broken


def no_circle(house: House) -> list[str]:
    """Neither of modules, nor of rooms, nor of the rooms within trace."""
    within_trace = house.grouped(lambda module: ".".join(module.split(".")[:3]) if ".trace." in module else "")
    return [
        f"{here} -> {there}"
        for arrows in (house.arrows, house.rooms(), within_trace)
        for circle in circles(arrows)
        for here in circle
        for there in sorted(arrows[here] & {*circle})
    ]


def sizes(house: House) -> list[str]:
    """At most 24 rooms at the top, and 22 modules flat in a folder."""
    found = []
    flat: dict[PurePosixPath, set[str]] = {}
    for path in map(PurePosixPath, house.sources):
        flat.setdefault(path.parent, set()).add(path.name)
    top = PurePosixPath("harness")
    rooms = {path.relative_to(top).parts[0] for path in map(PurePosixPath, house.sources)}
    rooms -= {"__init__.py", "__main__.py"}
    if len(rooms) > 24:
        found.append(f"{len(rooms)} rooms at the top: {', '.join(sorted(rooms))}")
    for folder, names in flat.items():
        if len(names - {"__init__.py", "__main__.py"}) > 22:
            found.append(f"{len(names)} modules in {folder}")
    return found


LAWS = (
    Law(
        "trace imports errors and libraries alone",
        only("harness.trace", "errors", libraries={"msgspec", "numpy", "isal", "scipy"}),
        (
            {"harness/trace/schema.py": "from harness.files import write_whole"},
            {"harness/trace/measure/steps.py": "def late():\n    from harness.report import units"},
            {"harness/trace/file/reader.py": "import torch"},
            {"harness/trace/ranks/rank.py": "from harness import console"},
        ),
    ),
    Law(
        "within trace: file <- measure <- verdict <- analyze <- ranks",
        inner_floors,
        (
            {"harness/trace/file/columns.py": "from harness.trace.measure.steps import steps_of"},
            {"harness/trace/measure/idle.py": "from harness.trace import verdict"},
            {"harness/trace/analyze.py": "from harness.trace.ranks.rank import x"},
            {"harness/trace/file/decode.py": FOR_TYPES + "from harness.trace.measure import steps"},
        ),
    ),
    Law(
        "trace.compare knows reports, and nothing of how they were made",
        never("harness.trace.compare", "trace.file", "trace.measure", "trace.verdict", "trace.analyze", "trace.ranks"),
        (
            {"harness/trace/compare/noise.py": "from harness.trace.measure.steps import x"},
            {"harness/trace/compare/changes.py": "import harness.trace.file.reader"},
            {"harness/trace/compare/comparison.py": "from harness.trace.verdict import questions"},
        ),
    ),
    Law(
        "logdir stands on trace and the ground floor",
        together(
            only("harness.logdir", "trace", "files", "errors", "credentials", "search_path"),
            never("harness.logdir", *ABOVE_LOGDIR),
        ),
        (
            {"harness/logdir/layout.py": "from harness.publish.staging import Staging"},
            {"harness/logdir/rows.py": "def late():\n    from harness.train import resume"},
            {"harness/logdir/scan.py": "from harness.console import out"},
        ),
    ),
    Law(
        "logdir and trace print nothing",
        prints("harness.logdir", "harness.trace"),
        (
            {"harness/logdir/scan.py": "print('a run')"},
            {"harness/logdir/rows.py": "import sys\nsys.stdout.write('a row')"},
            {"harness/trace/analyze.py": "import sys\nprint('slow', file=sys.stderr)"},
            {"harness/logdir/rows.py": "from rich.table import Table"},
        ),
    ),
    Law(
        "publish never imports record, report, board, train",
        never("harness.publish", "record", "report", "board", "train", "commands", "config"),
        (
            {"harness/publish/worker.py": "from harness.record.schedule import Schedule"},
            {"harness/publish/retention.py": "def late():\n    import harness.report.units"},
            {"harness/publish/job.py": "from harness import board"},
        ),
    ),
    Law(
        "record never imports report, board, config, train, data",
        never("harness.record", "report", "board", "config", "train", "data", "commands", "timeline"),
        (
            {"harness/record/snapshots.py": "from harness.report import markdown"},
            {"harness/record/plan.py": "from harness.config.schema import Config"},
            {"harness/record/spans.py": "import importlib\nimportlib.import_module('harness.board.events.trends')"},
        ),
    ),
    Law(
        "report and timeline never import board, record, publish, train",
        together(
            never("harness.report", "board", "record", "publish", "train", "commands", "timeline"),
            never("harness.timeline", "board", "record", "publish", "train", "commands"),
        ),
        (
            {"harness/report/units.py": "from harness.publish import Keep"},
            {"harness/report/sections/runs.py": "from harness.train import resume"},
            {"harness/timeline/app.py": "from harness.board.tab import plugin"},
        ),
    ),
    Law(
        "what TensorBoard serves never imports the writer of events, torch, train or record",
        together(
            *(
                never(f"harness.board.{room}", "board.events.logger", "board.events.trends", "train", "record", "data")
                for room in ("tab", "official")
            ),
            lambda house: [
                f"{module} -> {name}"
                for room in ("tab", "official")
                for module in house.within(f"harness.board.{room}")
                for name in house.libraries(module) & {*HEAVY}
            ],
        ),
        (
            {"harness/board/tab/life.py": "from harness.board.events.logger import Logger"},
            {"harness/board/official/plugin.py": "import torch"},
            {"harness/board/tab/window.py": "def late():\n    from harness.record import Profiler"},
        ),
    ),
    Law(
        "only cli imports commands; only train and cli import train",
        together(
            only_for("harness.commands", "cli"),
            only_for("harness.train", "cli", "__main__"),
        ),
        (
            {"harness/board/launcher.py": "from harness.commands import report"},
            {"harness/commands/trigger.py": "def late():\n    from harness.train import resume"},
            {"harness/distributed/sharded.py": "from harness.train.checkpoint import x"},
            {"harness/train/run.py": "from harness.commands.report import report"},
            {"harness/newcomer.py": "import harness.train.main"},
        ),
    ),
    Law(
        "integrations import record alone",
        where_there("harness.integrations", only("harness.integrations", "record")),
        ({"harness/integrations/lightning.py": "from harness.publish import Keep"},),
    ),
    Law(
        "config stands below record and publish",
        never("harness.config", "record", "publish", "train", "board", "report", "data", "commands"),
        ({"harness/config/schema.py": "from harness.publish.retention import size"},),
    ),
    Law(
        "models know torch alone",
        only("harness.models", libraries={"torch"}),
        ({"harness/models/mlp.py": "from harness.data import facts"}, {"harness/models/cnn.py": "import torchvision"}),
    ),
    Law(
        "no __init__ defines anything",
        faces_define_nothing,
        (
            {"harness/report/__init__.py": "def report():\n    pass"},
            {"harness/trace/__init__.py": "LIMIT = 3"},
            {"harness/web/__init__.py": "class Server:\n    pass"},
            {"harness/newroom/__init__.py": "for name in ():\n    pass"},
            {"harness/record/__init__.py": "if TYPE_CHECKING:\n    Late = int"},
        ),
    ),
    *(
        Law(
            f"{text!r} stands in one file",
            stands_once(text),
            (
                {"harness/board/tab/window.py": f"NAME = '{text}7'"},
                {"harness/record/plan.py": f"def name(step):\n    return f'{text}{{step}}'"},
                {"harness/publish/staging.py": f"PATTERN = re.compile(rb'{text}')"},
            ),
        )
        for text in ("window_", "window.json", ".pt.trace.json")
    ),
    Law(
        "no circle, imports for type checkers counted",
        no_circle,
        (
            {"harness/errors.py": FOR_TYPES + "from harness.trace.schema import WindowReport"},
            {"harness/trace/measure/launches.py": "from harness.trace.measure.operators import x"},
            {"harness/web/hosts.py": "def late():\n    from harness.board.tab import plugin"},
        ),
    ),
    Law(
        "few enough rooms to be looked over",
        sizes,
        (
            {f"harness/room{number}/__init__.py": "" for number in range(24)},
            {f"harness/trace/measure/{number}.py": "" for number in range(22)},
        ),
    ),
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.says)
def test_law_holds(law: Law) -> None:
    assert law.broken(HOUSE) == []


@pytest.mark.parametrize(
    ("law", "plant"),
    [(law, plant) for law in LAWS for plant in law.plants],
    ids=lambda value: getattr(value, "says", ""),
)
def test_law_bites(law: Law, plant: Mapping[str, str]) -> None:
    house = HOUSE
    for path, text in plant.items():
        house = house.planted(path, text)
    assert set(law.broken(house)) - set(law.broken(HOUSE)), f"nobody noticed {dict(plant)}"


def test_a_law_of_a_room_that_is_gone_fails() -> None:
    gone = House({path: text for path, text in HOUSE.sources.items() if "/logdir/" not in path})
    with pytest.raises(AssertionError, match=r"no harness\.logdir"):
        gone.between("harness.logdir", ["harness.train"])


def test_floors_and_circles_are_told() -> None:
    arrows = {"roof": {"wall"}, "wall": {"ground"}, "window": {"ground"}, "ground": set[str]()}
    assert floors(arrows) == {"roof": 2, "wall": 1, "window": 1, "ground": 0}
    assert circles(arrows) == []
    assert circles({**arrows, "ground": {"roof"}}) == [["ground", "roof", "wall"]]
    assert circles({"alone": {"alone"}}) == [["alone"]]


A_TRACE = str(ROOT / "tests" / "traces" / "matmul_64.pt.trace.json.gz")
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
        ["compare", A_TRACE, A_TRACE],
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
    ["harness.trace", "harness.publish", "harness.report", "harness.timeline", "harness.logdir", "harness.web"],
)
def test_findings_are_read_without_torch_hydra_or_tensorboard(package: str, tmp_path: Path) -> None:
    code = f"import sys, pkgutil, importlib, {package} as package\n" + (
        "for found in pkgutil.walk_packages(getattr(package, '__path__', []), package.__name__ + '.'):\n"
        "    if not found.name.endswith('__main__'):\n"
        "        importlib.import_module(found.name)\n"
        "print(' '.join({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = python("-c", code, cwd=tmp_path)
    assert done.status == 0, done.text
    assert not set(done.out.split()) & {*HEAVY, "tensorboard"}


def test_there_is_one_package_of_models_and_nothing_of_ours_imports_it_by_the_other_name() -> None:
    """The folder `models` of a checkout is a link: its modules under that name would be second copies."""
    beside = ROOT / "models"
    # A tree that was made from the sdist has none.
    assert not beside.exists() or (beside.is_symlink() and beside.samefile(ROOT / "harness" / "models"))
    paths = [path for folder in ("harness", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    house = House({path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths})
    assert [module for module, names in house.imports.items() if {"models"} & {n.split(".")[0] for n in names}] == []


def test_errors_of_msgspec_are_value_errors_in_every_version_that_may_be_there() -> None:
    # Readers of foreign files and the publisher count on it of what cannot be decoded.
    (bound,) = re.findall(r'"msgspec>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert tuple(map(int, bound.split("."))) >= (0, 21)
    assert issubclass(msgspec.DecodeError, ValueError)
    assert issubclass(msgspec.ValidationError, ValueError)
