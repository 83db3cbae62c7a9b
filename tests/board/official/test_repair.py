"""When the plugin is repaired, and when it is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.board.official import at_load, pinned
from tests.browser import installed
from tests.launch import ROOT, python

STATE = """
import json
from harness.board.official.at_load import repair
{before}
first, second = repair(), repair()
from torch_tb_profiler.plugin import TorchProfilerPlugin
print(json.dumps([first == second, first.patched, first.message, TorchProfilerPlugin.runs_route.__module__]))
"""


def state(before: str, cwd: Path) -> list[object]:
    done = python("-c", STATE.format(before=before), cwd=cwd)
    assert done.status == 0, done.text
    found: list[object] = json.loads(done.out.splitlines()[-1])
    return found


@pytest.mark.parametrize("before", ["", "import torch_tb_profiler.plugin"], ids=["before it is loaded", "after"])
def test_the_plugins_class_is_repaired_once(before: str, tmp_path: Path) -> None:
    assert state(before, tmp_path) == [
        True,
        True,
        "profiler plugin: 0.4.3, repaired",
        "harness.board.official.plugin",
    ]


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("from harness.board.official import pinned; pinned.VERSION = '0.4.9'", "it is version 0.4.3"),
        ("from harness.board.official import pinned; pinned.SHA256['run.py'] = '0'", "its run.py is not that of"),
        ("from harness.board.official import pinned; pinned.SHA256['gone.py'] = '0'", "its gone.py cannot be read"),
    ],
)
def test_another_plugin_is_left_untouched_and_that_is_said(before: str, words: str, tmp_path: Path) -> None:
    same, patched, message, module = state(before, tmp_path)
    assert same
    assert not patched
    assert words in str(message)
    assert "untouched" in str(message)
    assert module == "torch_tb_profiler.plugin"


def test_without_the_plugin_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned, "folder", lambda: None)
    patched, message = at_load._repair()
    assert not patched
    assert "pip install torch-tb-profiler==0.4.3" in message


def test_every_place_that_is_changed_in_the_page_is_there_once() -> None:
    from harness.board.official import page

    script = page._plugin_script()
    assert len(script) > 1_000_000
    assert "https://www.gstatic.com" not in script
    assert "<script" not in page.PAGE.replace("<script defer src=", "").replace('<script type="module" src=', "")


def test_plain_tensorboard_finds_the_repair_by_its_entry_point(tmp_path: Path) -> None:
    done = python(
        "-c",
        "from tensorboard import default\n"
        "default.get_plugins()\n"
        "from torch_tb_profiler.plugin import TorchProfilerPlugin\n"
        "import sys\n"
        "print(TorchProfilerPlugin.runs_route.__module__, 'torch' in sys.modules)\n",
        cwd=tmp_path,
        PYTHONPATH=f"{installed(tmp_path)}:{ROOT}",
    )
    assert done.out.split()[-2:] == ["harness.board.official.plugin", "False"], done.text


@pytest.mark.parametrize("name", ["../page.py", "charts", "", "charts/../../page.py", "/etc/passwd", "static/page.css"])
def test_nothing_but_the_pages_own_files_is_served(name: str) -> None:
    from harness.board.official import page

    assert page.asset(name) is None
    assert page.asset("page.css") is not None
