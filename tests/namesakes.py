"""Files and folders of a user's own that have the names of others'."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SHADOWED = ("hydra", "msgspec", "numpy", "queue", "random", "rich", "socket", "tempfile", "torch", "typer")
"""Modules that everybody imports."""

MODELS = {
    "__init__.py": "from models.nets import MyNet\n",
    "nets.py": (
        "import os, sys\n"
        "from torch import nn\n"
        "class MyNet(nn.Module):\n"
        "    def __init__(self, in_channels, image_size, num_classes):\n"
        "        assert sys.path.index(os.getcwd()) == len(sys.path) - 1, sys.path\n"
        "        assert not os.environ.get('PYTHONSAFEPATH')\n"
        "        super().__init__()\n"
        "        height, width = image_size\n"
        "        self.line = nn.Linear(in_channels * height * width, num_classes)\n"
        "    def forward(self, x):\n"
        "        return self.line(x.flatten(1))\n"
    ),
    # As on a system without fork: each worker is a Python of its own.
    "points.py": (
        "import multiprocessing, os, sys\n"
        "import torch\n"
        "multiprocessing.set_start_method('spawn', force=True)\n"
        "class Points(torch.utils.data.Dataset):\n"
        "    facts = {'kind': 'images', 'in_channels': 1, 'image_size': (8, 8), 'num_classes': 10}\n"
        "    def __len__(self):\n"
        "        return 64\n"
        "    def __getitem__(self, index):\n"
        "        assert sys.path.index(os.getcwd()) == len(sys.path) - 1, sys.path\n"
        "        assert not os.environ.get('PYTHONSAFEPATH')\n"
        "        return torch.rand(1, 8, 8), index % 10\n"
    ),
}
"""A package of a name that 0.1.0 had taken."""


def shadow(folder: Path, names: Iterable[str] = SHADOWED) -> None:
    """Write a file for each of ``names``; who imports one is noted in the file ``imported``."""
    for name in names:
        (folder / f"{name}.py").write_text(
            f"with open({str(folder / 'imported')!r}, 'a') as file:\n    file.write('{name}\\n')\n"
            f"raise SystemExit('{name}.py of the folder was imported')\n"
        )


def project(folder: Path, *, harness: bool) -> Path:
    """A user's folder with all of it, and a ``conf/`` and ``tests/`` as most have them.

    Args:
        harness: Whether it has a ``harness.py`` too.
    """
    folder.mkdir()
    shadow(folder, (*SHADOWED, "harness") if harness else SHADOWED)
    for name in ("models", "conf", "tests"):
        (folder / name).mkdir()
    (folder / "conf" / "config.yaml").write_text("model: {depth: 3}\n")
    (folder / "tests" / "__init__.py").write_text("raise SystemExit('the tests of the folder were imported')\n")
    for name, text in MODELS.items():
        (folder / "models" / name).write_text(text)
    return folder


def imported(folder: Path) -> str:
    """The files of :func:`shadow` that somebody has imported."""
    noted = folder / "imported"
    return noted.read_text() if noted.exists() else ""
