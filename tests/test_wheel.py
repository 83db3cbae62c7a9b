"""The wheel has all that the command needs, away from the checkout."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.launch import ROOT

needs_hatchling = pytest.mark.skipif(
    importlib.util.find_spec("hatchling") is None,
    reason="hatchling builds the wheel, and without a network pip cannot fetch it",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder, ROOT],
        check=True,
        timeout=120,
    )
    (built,) = folder.glob("harness-*.whl")
    return built


@needs_hatchling
def test_the_wheel_holds_every_file_of_the_configuration_and_no_more_than_ours(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    conf = {f"harness/conf/{path.relative_to(ROOT / 'conf')}" for path in (ROOT / "conf").rglob("*.yaml")}
    assert len(conf) > 20
    assert conf <= names
    sources = {
        str(path.relative_to(ROOT))
        for room in ("harness", "models")
        for path in (ROOT / room).rglob("*")
        if path.suffix in (".py", ".js", ".css", ".html")
    }
    assert sources <= names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"harness", "models"}
    assert any(name.endswith("entry_points.txt") for name in names)


@needs_hatchling
def test_from_the_wheel_the_command_finds_its_configuration(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (tmp_path / "elsewhere").mkdir()
    code = (
        "import harness.cli, sys, pathlib\n"
        f"assert pathlib.Path(harness.cli.__file__).is_relative_to({str(tmp_path)!r}), harness.cli.__file__\n"
        "sys.argv = ['harness', 'train', 'experiment=mlp_digits', '--cfg', 'job']\n"
        "harness.cli.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path / "elsewhere",
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "_target_: harness.models.MLP" in done.stdout
    assert not list((tmp_path / "elsewhere").iterdir())
