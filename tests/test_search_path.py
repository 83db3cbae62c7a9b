"""Where modules are looked for: the user's folder is never before others, in no process that is started here."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import search_path
from tests.launch import ROOT, Launcher
from tests.namesakes import SHADOWED, imported, shadow

LIBRARY = [os.path.dirname(os.__file__), "/site-packages"]
RANKS = sorted((ROOT / "tests" / "traces").glob("ddp_straggler_rank1.*.pt.trace.json.gz"))

Path_ = Callable[..., list[str]]


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path_:
    """Makes this process's path such as Python would, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)

    def begin(*head: str, tail: tuple[str, ...] = (), named: str | None = None, script: str | None = None) -> list[str]:
        monkeypatch.setattr(sys, "path", [*head, *LIBRARY, *tail])
        monkeypatch.setattr(sys.modules["__main__"], "__file__", script, raising=False)
        if named is not None:
            monkeypatch.setenv("PYTHONPATH", named)
        search_path.leave_the_head()
        once = list(sys.path)
        search_path.leave_the_head()
        assert sys.path == once
        return once

    return begin


def test_what_python_has_put_before_its_library_goes_to_the_end(tmp_path: Path, path: Path_) -> None:
    here, others = str(tmp_path), "/somewhere"
    last = [*LIBRARY, here]
    assert path("", named=None) == last
    assert path(here) == last
    # An empty entry of PYTHONPATH, as a shell leaves it that adds to one that is not set, is nobody's word.
    assert path(here, others, named=f":{others}") == [others, *last]
    assert path(others, here, named=f"{others}:") == [others, *last]
    assert path(here, tail=(here,)) == last
    assert path("/scripts", script="/scripts/one.py") == [*LIBRARY, "/scripts"]
    assert path(others) == [others, *LIBRARY]


def test_where_pythonpath_names_the_folder_it_is_the_users_word(tmp_path: Path, path: Path_) -> None:
    here = str(tmp_path)
    assert path(here, named=here) == [here, *LIBRARY]
    assert path(here, named=".") == [here, *LIBRARY]
    assert path(here, "/a", here, named=f"/a:{here}") == ["/a", here, *LIBRARY]
    assert path("/scripts", named="/scripts", script="/scripts/one.py") == ["/scripts", *LIBRARY]


def test_a_folder_that_is_gone_is_nowhere(tmp_path: Path, path: Path_, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    path()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setattr(sys, "path", ["", *LIBRARY])
    search_path.join_users_folder()
    assert sys.path == LIBRARY


def test_a_library_is_sheltered_while_it_starts_a_process_and_what_a_user_has_set_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for before in (None, "", "1"):
        if before is None:
            monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
        else:
            monkeypatch.setenv("PYTHONSAFEPATH", before)
        with search_path.Sheltered():
            assert os.environ["PYTHONSAFEPATH"]
        assert os.environ.get("PYTHONSAFEPATH") == before


def test_nothing_is_imported_before_the_folder_has_left_the_head() -> None:
    """By what `python -m harness` and `python -m harness.train` run first."""
    for name in ("__init__", "__main__", "search_path", "train/__init__", "train/__main__"):
        module = ast.parse((ROOT / "harness" / f"{name}.py").read_text())
        lines = {ast.unparse(node) for node in module.body if isinstance(node, ast.Import | ast.ImportFrom)}
        assert lines <= {"import os", "import sys", "from harness import search_path"}, name


@pytest.mark.parametrize("name", ["plain", "with:colon", "with 'quotes\" and\nlines", "\udcff"])
def test_a_child_has_the_same_path_in_order_and_this_harness(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("harness.py", "json.py"):
        (folder / file).write_text("raise SystemExit('the one in the folder')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    code = "import json, sys, harness.errors; print(json.dumps([harness.errors.__file__, sys.path, sys.argv]))"
    done = subprocess.run(
        search_path.command("builtins:exec", code),
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert not done.stderr
    file, path, _ = json.loads(done.stdout)
    assert file == str(ROOT / "harness" / "errors.py")
    assert path == [*sys.path[1:], str(folder)]


CHILDREN = """
import importlib
import sys
from pathlib import Path

def main():
    from harness.board.official.parser import Request
    from harness.board.official.pool import Pool
    from harness.timeline.cache import Cache
    from harness.logdir.window import Window
    from harness.trace.ranks import findings

    one, two, *others = map(Path, sys.argv[1:])
    # What this process itself imports is there before it has a path as `python -c` makes it.
    for other in others:
        importlib.import_module(str(other))
    sys.path.insert(0, "")
    print(Cache().prepared(one).facts.slices > 0)
    pool = Pool()
    parsed = pool.submit(Request(str(one), "worker", "span"), awaited=True).result(60)
    print(parsed.answer.error)
    pool.close()
    # Small ones are read in this process.
    findings.SMALL_BYTES = 0
    window = Path("window_00000007")
    window.mkdir()
    for trace in (one, two):
        (window / trace.name).symlink_to(trace)
    print(len(Window(window).report().ranks.ranks))

if __name__ == "__main__":
    main()
"""


def test_no_file_of_the_folder_is_imported_by_what_reads_traces(harness: Launcher, tmp_path: Path) -> None:
    """The parsers of TensorBoard's plugin, the timeline's preparation, and the readers of several ranks."""
    shadow(tmp_path)
    done = harness.script(CHILDREN, *map(str, RANKS), *SHADOWED, "multiprocessing.connection", cwd=tmp_path)
    assert done.status == 0, done.text
    assert done.out.splitlines() == ["True", "None", "2"], done.text
    assert not imported(tmp_path)
