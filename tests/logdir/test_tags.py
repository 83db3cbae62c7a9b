"""The names of curves stand in one file, and say what they always have."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from harness.logdir import tags
from tests.launch import ROOT

OWNER = ROOT / "harness" / "logdir" / "tags.py"
FAMILIES = "train|eval|perf|memory|window|idle|operators|phases|phases_device|ranks"
TAG = re.compile(rf"(?:{FAMILIES})/[a-z_/]*")


def literals(path: Path) -> list[str]:
    """Texts of a module that are no docstrings, the constant parts of f-strings among them; of a script, all."""
    if path.suffix == ".js":
        return re.findall(r"[\"'`]([^\"'`\n]*)[\"'`]", path.read_text())
    tree = ast.parse(path.read_text())
    explained = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in explained
    ]


def test_no_other_file_spells_a_tag() -> None:
    files = [path for path in (ROOT / "harness").rglob("*") if path.suffix in (".py", ".js") and path != OWNER]
    assert len(files) > 150
    found = [
        (path.relative_to(ROOT).as_posix(), text)
        for path in sorted(files)
        for text in literals(path)
        if TAG.fullmatch(text)
    ]
    assert found == []


def test_a_planted_tag_is_noticed(tmp_path: Path) -> None:
    for name, text in (
        ("a.py", "x = f'operators/{x}'"),
        ("b.py", "x = 'train/loss'"),
        ("c.js", 'line("window/device_busy")'),
    ):
        path = tmp_path / name
        path.write_text(text)
        assert any(TAG.fullmatch(found) for found in literals(path)), name


def test_old_runs_are_read_by_the_same_names() -> None:
    """Event files and manifests of 0.1.0 have them."""
    assert (tags.LOSS, tags.EVAL_LOSS, tags.EVAL_ACCURACY) == ("train/loss", "eval/loss", "eval/accuracy")
    assert (tags.LEARNING_RATE, tags.GRADIENT_NORM) == ("train/lr", "train/grad_norm")
    assert (tags.STEP_MS, tags.DATA_WAIT_MS) == ("perf/step_time_ms", "perf/data_wait_ms")
    assert tags.per_second("samples") == "perf/samples_per_second"
    assert [tags.unit_of(tag) for tag in ("perf/tokens_per_second", "perf/step_time_ms", "train/loss")] == [
        "tokens",
        None,
        None,
    ]
    assert (tags.PEAK_ALLOCATED_MIB, tags.WINDOW_PEAK_ALLOCATED_MIB) == (
        "memory/peak_allocated_mib",
        "window/peak_allocated_mib",
    )
    assert (tags.WINDOW_BUSY, tags.VERDICT) == ("window/device_busy", "window/verdict")
    assert tags.memory_of("activations and rest") == "memory/activations_and_rest_mib"
