"""The plugin as TensorBoard builds it, asked over WSGI."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tensorboard.plugins.base_plugin import TBContext
from werkzeug.test import Client, TestResponse

from harness.board.tab.plugin import WindowsPlugin
from tests.board.tab import layout

MOUNT = "/data/plugin/windows"


class Tab:
    """The plugin's addresses."""

    def __init__(self, logdir: str = "", logdir_spec: str = "") -> None:
        self.plugin = WindowsPlugin(TBContext(flags=Namespace(logdir=logdir, logdir_spec=logdir_spec)))
        self._apps = self.plugin.get_plugin_apps()

    def ask(self, route: str, method: str = "GET", headers: dict[str, str] | None = None, **query: str) -> TestResponse:
        """What ``/route?query`` answers."""
        wildcard = f"/{route.split('/')[0]}/*"
        app = self._apps.get(f"/{route}") or self._apps[wildcard]
        return Client(app).open(f"{MOUNT}/{route}", method=method, query_string=query, headers=headers)

    def get(self, route: str, **query: str) -> Any:
        """The JSON of an answer that must be there."""
        answer = self.ask(route, **query)
        assert answer.status_code == 200, answer.text
        assert answer.content_type == "application/json"
        return answer.json

    def refused(self, route: str, **query: str) -> str:
        """The reason why there is no answer."""
        answer = self.ask(route, **query)
        assert answer.status_code in (404, 422), answer.status
        assert answer.content_type == "application/json"
        said: str = answer.json["error"]
        return said


@pytest.fixture
def tab_on() -> Callable[..., Tab]:
    """The plugin on a logdir, or on what ``--logdir_spec`` says."""
    return Tab


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logdir with runs of all kinds; not to be changed."""
    folder = tmp_path_factory.mktemp("tab") / "logs"
    layout.long_run(folder / "gpt" / "long", 130)
    layout.manifest(folder / "cnn" / "short", started="2026-11-29T09:00:00.000+00:00", step=300, max_steps=300)
    layout.window(folder / "cnn" / "short", 100, "lab5_cnn_mem")
    layout.window(folder / "cnn" / "short", 200, "copy_bound")
    layout.window(folder / "cnn" / "short", 300, "copy_bound", slower=1.5)
    layout.manifest(folder / "ddp" / "two", started="2026-11-29T08:00:00.000+00:00", world_size=2)
    ranks = ["ddp_straggler_rank1.rank1"]
    layout.window(folder / "ddp" / "two", 200, "ddp_straggler_rank1.rank0", ranks=ranks, told=False)
    layout.window(folder / "ddp" / "two", 400, "ddp_straggler_rank1.rank0", ranks=ranks)
    layout.manifest(folder / "new" / "run", started="2026-11-29T11:00:00.000+00:00", step=40, first_window=200)
    layout.window(folder / "own" / "loop", 12, "lab5_gpt_tiny")
    return folder


@pytest.fixture(scope="session")
def tab(logs: Path) -> Tab:
    return Tab(str(logs))
