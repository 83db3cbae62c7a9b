"""What a ``_target_`` names: today's names, those of 0.1.0, and what is said where there is none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from harness.config import locate, targets
from harness.train import sweep
from tests.launch import ROOT, Launcher

OF_0_1_0 = {
    "harness.data.Digits",
    "harness.data.SyntheticImages",
    "harness.data.SyntheticMatrices",
    "harness.data.SyntheticTokens",
    "harness.data.Text",
    "harness.data.cifar10",
    "harness.data.image_folder",
    "harness.schedulers.warmup_cosine",
    "harness.strategy.Strategy",
    "harness.tasks.Classification",
    "harness.tasks.Inference",
    "harness.tasks.LanguageModeling",
    "harness.tasks.auto",
    "models.CNN",
    "models.MLP",
    "models.MatmulAdd",
    "models.Transformer",
    "models.ViT",
    "models.attention.Block",
    "models.cnn.CNN",
}
"""What its ``conf/`` named, and more that one could."""

Project = Callable[[Mapping[str, str]], Path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Writes a user's folder, in which this process then is, as the command would be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # As where the command is given: behind all others.
    monkeypatch.setattr(sys, "path", [*sys.path[1:], sys.path[0]])
    before = set(sys.modules)

    def write(files: Mapping[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    yield write
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("models", "mine", "broken"):
            del sys.modules[name]


def problem(target: str) -> str:
    """The one thing that is wrong with it."""
    (found,) = targets.problems("model", {"_target_": target}, known={"num_classes"})
    return found


@pytest.mark.parametrize("name", sorted(OF_0_1_0))
def test_a_name_of_0_1_0_still_means_what_it_meant(name: str) -> None:
    found = locate.locate(locate.current(name))
    assert found.__name__ == name.rpartition(".")[2]
    assert found.__module__.startswith("harness.")


def test_the_callback_of_0_1_0_is_the_one_of_today() -> None:
    """Hydra itself looks it up, in a copied ``config.yaml`` too."""
    assert locate.locate(locate.current("harness.train.NoteSweep")) is sweep.followed


def test_every_target_of_the_configuration_is_there_by_the_name_it_has_now() -> None:
    named = {
        target
        for path in (ROOT / "conf").rglob("*.yaml")
        for target in re.findall(r"_target_: (\S+)", path.read_text())
        if target != "???"
    }
    assert len(named) > 15
    for target in named:
        assert locate.current(target) == target
        assert callable(locate.locate(target))


def test_a_models_of_the_users_own_is_theirs_and_what_it_lacks_is_ours(project: Project) -> None:
    project({"models/__init__.py": "class MyNet: ...\nclass MLP: ...\n", "models/nets.py": "class Deep: ...\n"})
    for mine in ("models.MyNet", "models.MLP", "models.nets.Deep"):
        assert locate.current(mine) == mine
        assert locate.locate(mine).__module__ in ("models", "models.nets")
    assert locate.current("models.CNN") == "harness.models.CNN"


def test_a_models_without_an_init_is_the_users_too(project: Project) -> None:
    project({"models/nets.py": "class Deep: ...\n"})
    assert locate.locate(locate.current("models.nets.Deep")).__name__ == "Deep"
    assert locate.current("models.CNN") == "harness.models.CNN"


def test_old_names_are_built_at_any_depth() -> None:
    node = {"_target_": "torch.nn.Sequential", "_args_": [{"_target_": "models.MLP", "hidden": [4]}]}
    known: dict[str, Any] = {"in_channels": 1, "image_size": [2, 2], "num_classes": 3}
    inner = {**node["_args_"][0], **known}  # type: ignore[dict-item]
    made = targets.build("model", OmegaConf.to_container(OmegaConf.create({**node, "_args_": [inner]})), {})  # type: ignore[arg-type]
    assert type(made[0]).__module__ == "harness.models.mlp"


def test_what_is_not_found_is_told_with_the_place_where_it_was_looked_for(project: Project) -> None:
    here = project(
        {
            "models/__init__.py": "class MyNet: ...\n",
            "models/nets.py": "class Deep: ...\n",
            "json.py": "class Net: ...\n",
        }
    )
    init = here / "models" / "__init__.py"
    assert problem("models.MyNte") == (
        f"model._target_=models.MyNte: looked in {init}, which has no MyNte; did you mean MyNet?"
    )
    assert f"looked in {init}, which has no net; did you mean nets?" in problem("models.net.Deep")
    assert f"looked in {here / 'models' / 'nets.py'}, which has no Dep; did you mean Deep?" in problem(
        "models.nets.Dep"
    )
    assert f"looked for modles in {here} and in what is installed (" in problem("modles.MyNet")
    assert problem("modles.MyNet").endswith("did you mean models?")
    assert problem("MLP").endswith("did you mean harness.models.MLP?")
    assert f"which has no Net, and which comes before {here / 'json.py'}" in problem("json.Net")
    assert "torch.nn.Linear has no forwrd; did you mean forward" in problem("torch.nn.Linear.forwrd")
    assert "is no name of a module" in problem("models..MyNet")


def test_without_a_models_of_the_users_what_is_not_in_ours_is_told_of_ours(project: Project) -> None:
    project({})
    said = problem("models.MPL")
    assert "harness/models/__init__.py, which has no MPL; did you mean MLP?" in said


def test_an_import_that_fails_is_told_with_its_line(project: Project) -> None:
    here = project(
        {"models/__init__.py": "import math\nimport away_from_here\n", "mine.py": "\nraise RuntimeError('of mine')\n"}
    )
    assert problem("models.MyNet").endswith(
        f"ModuleNotFoundError: No module named 'away_from_here' ({here / 'models' / '__init__.py'}, line 2)"
    )
    assert problem("mine.Net").endswith(f"RuntimeError: of mine ({here / 'mine.py'}, line 2)")


def test_from_the_checkouts_root_models_are_the_same_classes(harness: Launcher) -> None:
    """The folder there is a link: what it holds has its home in harness.models, for isinstance and for pickle."""
    code = (
        "import pickle, harness.models, models\n"
        "assert models is not harness.models\n"
        "for name in models.__all__:\n"
        "    mine = getattr(models, name)\n"
        "    assert mine is getattr(harness.models, name), name\n"
        "    assert b'harness.models' in pickle.dumps(mine), name\n"
    )
    done = harness.script(code, cwd=ROOT)
    assert done.status == 0, done.text
