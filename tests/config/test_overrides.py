"""Overrides are read as Hydra reads them, and what it does not take is read all the same."""

from __future__ import annotations

import pytest

from harness.config import overrides


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("seed=1", "seed"),
        ("+data.train.seconds=0.1", "data.train.seconds"),
        ("++seed=1", "seed"),
        ("~scheduler", "scheduler"),
        ("~scheduler=cosine", "scheduler"),
        ("hydra/launcher=joblib", "hydra/launcher"),
        ("model@other=cnn", "model@other"),
        ("optimizer.lr=1e-3,1e-2", "optimizer.lr"),
        ("name='a=b'", "name"),
        # A path that a shell has completed, which the grammar does not take.
        ("resume=logs of (mine)/a=b/run", "resume"),
        ("-m", None),
        ("--config-dir=here", None),
        ("-cd", None),
        ("a folder", None),
    ],
)
def test_the_key(text: str, key: str | None) -> None:
    assert overrides.key(text) == key


@pytest.mark.parametrize(
    ("text", "varies"),
    [
        ("seed=1", False),
        ("seed=1,2", True),
        ("seed=range(3)", True),
        ("name='1,2'", False),
        ("-m", False),
        ("x", False),
    ],
)
def test_what_varies(text: str, varies: bool) -> None:
    assert overrides.varies(text) == varies
