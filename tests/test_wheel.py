"""The wheel that pip makes holds all that the command needs, away from the checkout, beside whatever its user has."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import harness
from tests import reading
from tests.launch import NOISE, ROOT, TINY, Ended, window_every
from tests.namesakes import imported, project

needs_hatchling = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None,
    reason="hatchling builds the wheel, and without a network pip cannot fetch it",
)
# One worker builds and installs.
pytestmark = [pytest.mark.xdist_group("wheel"), needs_hatchling]

WINDOW = window_every(wait=1, warmup=1, active=1, repeat=1)
CUSTOM = ("model=custom", "model._target_=models.MyNet")
JOB = (*NOISE, *(text for text in TINY if not text.startswith("model")))


TYPED = """
from pathlib import Path
from typing import assert_type

from harness.data import Digits, Loader
from harness.models import CNN, MLP
from harness.record import Keep, Profiler, PublishedWindow, Schedule, TraceOptions, span
from harness.trace import Trace, WindowReport, analyze, analyze_window, read

schedule = Schedule(wait=20, warmup=2, active=3)
with Profiler("tb_logs", "job", schedule, TraceOptions(record_shapes=True), keep=Keep(windows=3)) as profiler:
    assert_type(profiler, Profiler)
    with profiler.span("forward"), span("mine"):
        profiler.step()

trace = read(Path("window.pt.trace.json.gz"))
assert_type(trace, Trace)
assert_type(analyze(trace), WindowReport)
assert_type(analyze_window([Path("window.pt.trace.json.gz")]), WindowReport)

assert_type(CNN(in_channels=1, num_classes=10), CNN)
MLP(in_channels=1, image_size=(8, 8), num_classes=10, hidden=[8])
Loader(Digits("train"), batch_size=4, seed=0)

Schedule(wait="20", warmup=2, active=3)  # error: "wait" to "Schedule" has incompatible type "str"
profiler.stp()  # error: "Profiler" has no attribute "stp"
read(3)  # error: Argument 1 to "read" has incompatible type "int"
analyze(trace).verdct  # error: "WindowReport" has no attribute "verdct"
CNN(in_channel=1)  # error: Unexpected keyword argument "in_channel" for "CNN"
Digits("tset")  # error: Argument 1 to "Digits" has incompatible type "Literal['tset']"
"""
"""What a user's checker has to find: nothing but the errors that are named."""
LIBRARIES = ("torch", "numpy", "hydra", "omegaconf", "rich", "sklearn", "torchvision", "tensorboard", "PIL")


def pip(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "pip", *map(str, arguments), "--quiet"], check=True, timeout=120)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "-w", folder, ROOT)
    (built,) = folder.glob("*.whl")
    return built


class Environment:
    """An environment of its own, with what is installed in this one but for the harness."""

    def __init__(self, folder: Path, *install: object) -> None:
        venv.create(folder)
        self._bin = folder / "bin"
        (site,) = folder.glob("lib/*/site-packages")
        # Files .pth of these, as of an editable install, are not read.
        (site / "others.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
        pip("--python", self._bin / "python", "install", "--no-deps", "--no-index", *install)
        torchrun = self._bin / "torchrun"
        torchrun.write_text(f"#!{self._bin / 'python'}\nfrom torch.distributed.run import main\nmain()\n")
        torchrun.chmod(0o755)

    def run(self, program: str, *arguments: str, cwd: Path) -> Ended:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        done = subprocess.run(
            [self._bin / program, *arguments],
            cwd=cwd,
            env={**kept, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return Ended(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_holds_every_file_of_the_configuration_and_no_more_than_ours(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    conf = {f"harness/conf/{path.relative_to(ROOT / 'conf')}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert len(conf) > 20
    assert conf <= names
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "harness").rglob("*")
        if path.suffix in (".py", ".js", ".css", ".html") or path.name == "py.typed"
    }
    assert {"harness/py.typed", "harness/models/cnn.py"} <= sources
    assert sources <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"harness"}
    assert any(name.endswith("entry_points.txt") for name in names)


def test_the_sdist_holds_the_models_once(tmp_path: Path) -> None:
    """hatchling follows the link that a checkout has beside the package."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], cwd=ROOT, check=True)
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert [name.split("/", 1)[1] for name in names if name.endswith("/cnn.py")] == ["harness/models/cnn.py"]


def test_its_version_is_the_packages_and_its_name_nobody_elses(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    lines = archive.read(name).decode().splitlines()
    assert f"Version: {harness.__version__}" in lines
    # "harness" is another project, and nobody is told to install that.
    assert "Name: torch-tb-harness" in lines
    paths = [
        ROOT / "pyproject.toml",
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "harness").rglob("*.py"),
    ]
    for path in paths:
        assert not re.search(r"(?<!torch-tb-)\bharness\[[a-z]", path.read_text()), path


def test_from_the_wheel_the_command_finds_its_configuration(installed: Environment, tmp_path: Path) -> None:
    done = installed.run("harness", "train", "experiment=mlp_digits", "--cfg", "job", cwd=tmp_path)
    assert done.status == 0, done.text
    assert "_target_: harness.models.MLP" in done.out
    assert not list(tmp_path.iterdir())


def test_every_way_of_starting_trains_beside_a_users_own_names(installed: Environment, tmp_path: Path) -> None:
    """A folder with its own models/, conf/ and tests/, and files that have the names of what everybody imports."""
    plain, namesake = project(tmp_path / "plain", harness=False), project(tmp_path / "namesake", harness=True)
    points = ("data=custom", "data.train._target_=models.points.Points", "data.workers=1", "data.batch_size=16")
    module, joblib = ("-m", "harness.train"), ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")
    ways = {
        "command": (namesake, "harness", "train", *JOB, *WINDOW, "model=cnn"),
        "custom": (namesake, "harness", "train", *JOB[len(NOISE) :], *points, *CUSTOM),
        "devices": (namesake, "harness", "train", *JOB, *CUSTOM, *WINDOW, "trainer.devices=2"),
        "module": (plain, "python", *module, *JOB, "model=cnn"),
        "torchrun": (plain, "torchrun", "--nproc-per-node", "1", *module, *JOB, "model=cnn"),
        "sweep": (plain, "python", "-m", "harness", "train", "-m", *joblib, "seed=1", *JOB, *CUSTOM),
    }
    with ThreadPoolExecutor(2) as together:
        ends = {
            way: together.submit(installed.run, *arguments, f"logdir={tmp_path / way}", cwd=folder)
            for way, (folder, *arguments) in ways.items()
        }
    for way, end in ends.items():
        done = end.result()
        assert done.status == 0, f"{way}: {done.text}"
        assert "publisher" not in done.text
        runs = [path.parent for path in (tmp_path / way).rglob("run.json")]
        assert [reading.manifest(run)["status"] for run in runs] == ["completed"], way
        recorded = [len(list(window.glob("*.pt.trace.json.gz"))) for run in runs for window in reading.windows(run)]
        assert recorded == {"command": [1], "devices": [2]}.get(way, []), way
    assert not imported(plain)
    assert not imported(namesake)


def test_in_an_editable_install_the_checkouts_models_do_not_hide_the_users(tmp_path: Path) -> None:
    editable = Environment(tmp_path / "environment", "--no-build-isolation", "--editable", ROOT)
    folder = project(tmp_path / "project", harness=True)
    done = editable.run(
        "harness", "train", *JOB, *CUSTOM, "trainer.devices=2", f"logdir={tmp_path / 'logs'}", cwd=folder
    )
    assert done.status == 0, done.text
    assert reading.manifest(reading.only_run(tmp_path / "logs"))["status"] == "completed"
    assert not imported(folder)


def test_a_users_type_checker_sees_what_is_public(installed: Environment, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "mine.py").write_text(TYPED)
    # To read torch takes a minute, and its types are not in question.
    skipped = ",".join(f"{library}.*" for library in LIBRARIES)
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nstrict = true\n[mypy-{skipped}]\nfollow_imports = skip\nignore_missing_imports = true\n"
    )
    done = installed.run("python", "-m", "mypy", "mine.py", cwd=tmp_path)
    found = [line.split(": error: ") for line in done.out.splitlines() if ": error: " in line]
    expected = {
        f"mine.py:{number}": line.split("# error: ")[1]
        for number, line in enumerate(TYPED.splitlines(), 1)
        if "# error: " in line
    }
    assert [place for place, _ in found] == list(expected), done.text
    for place, text in found:
        assert expected[place] in text
