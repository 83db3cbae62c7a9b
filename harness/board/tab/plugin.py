"""The TensorBoard plugin: which address answers with what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tensorboard.plugins import base_plugin
from werkzeug.wrappers import Request, Response

from harness.board.official.at_load import repair
from harness.board.tab import assets, respond
from harness.board.tab.compare import comparison
from harness.board.tab.document import cell
from harness.board.tab.life import Lives
from harness.board.tab.places import Places
from harness.board.tab.runs import rows
from harness.board.tab.summaries import Summaries
from harness.board.tab.traces import Traces
from harness.board.tab.window import page
from harness.files import printable
from harness.logdir.flags import logdirs_of
from harness.logdir.window import Window
from harness.timeline.app import TimelineApp
from harness.web.answers import Handler, answering
from harness.web.guard import guarded

# TensorBoard imports every plugin's entry point before it makes the first plugin.
repair()

PAGE = 100
"""Windows of a list at a time."""


class WindowsPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab **Windows**. Every address takes ``run`` and ``window`` by the names that the lists give."""

    plugin_name = "windows"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._flags = context.flags
        self.places = Places(lambda: logdirs_of(context))
        self._summaries = Summaries()
        self._lives = Lives(self.places)
        self._traces = Traces(self.places)

    def is_active(self) -> bool:
        """Always: without a run the tab says how to get one."""
        return True

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        # The page looks for news by itself; TensorBoard's reload would begin it anew.
        return base_plugin.FrontendMetadata(es_module_path="/static/index.js", tab_name="Windows", disable_reload=True)

    def get_plugin_apps(self) -> dict[str, Callable[..., Any]]:
        routes: dict[str, Handler] = {
            "/static/*": assets.static,
            "/plotly.js": assets.plotly,
            "/runs": self._runs,
            "/list": self._list,
            "/life": lambda request: respond.json(request, self._lives.of(self.places.run(_of(request, "run")))),
            "/window": lambda request: respond.json(request, page(self._window(request), self.places, self._summaries)),
            "/compare": self._compare,
            "/memory": lambda request: respond.json(
                request, self._traces.memory(self._window(request), _of(request, "file"))
            ),
            "/rank": lambda request: respond.json(
                request, self._traces.rank(self._window(request), _of(request, "file"))
            ),
            "/trace": lambda request: respond.download(
                request, self.places.trace(self._window(request), _of(request, "file"))
            ),
        }
        apps: dict[str, Callable[..., Any]] = {route: answering(handler) for route, handler in routes.items()}
        apps["/timeline/*"] = TimelineApp(self._trace_file)
        return guarded(apps, self._flags)

    def _runs(self, request: Request) -> Response:
        where = [printable(str(logdir.path)) for logdir in self.places.logdirs()]
        return respond.json(request, {"logdirs": where, "runs": rows(self.places, self._summaries)})

    def _list(self, request: Request) -> Response:
        """A run's windows, newest first, so many at a time: those that begin before the step ``before``."""
        windows = self.places.windows(self.places.run(_of(request, "run")))
        before = request.args.get("before", type=int)
        older = windows if before is None else [window for window in windows if (window.step or 0) < before]
        page = older[: -PAGE - 1 : -1]
        shown = [self._summaries.of(window) for window in page]
        # Each against the window before it, which for the last one is on the next page.
        earlier = [*older[: -PAGE - 2 : -1], None][1:]
        changes = [cell(self._summaries.change(*pair)) for pair in zip(page, earlier, strict=False)]
        left = len(older) - len(shown)
        return respond.json(request, {"total": len(windows), "older": left, "windows": shown, "changes": changes})

    def _compare(self, request: Request) -> Response:
        return respond.json(request, comparison(self._window(request, "before_"), self._window(request)))

    def _trace_file(self, arguments: Mapping[str, str]) -> Path:
        """The trace that the arguments of the timeline's page name."""
        run = self.places.run(arguments.get("run", ""))
        return self.places.trace(self.places.window(run, arguments.get("window", "")), arguments.get("file", ""))

    def _window(self, request: Request, prefix: str = "") -> Window:
        run = self.places.run(_of(request, f"{prefix}run"))
        return self.places.window(run, _of(request, f"{prefix}window"))


def _of(request: Request, name: str) -> str:
    return request.args.get(name, "")
