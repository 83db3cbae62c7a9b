"""The plugin's methods that are replaced: how it finds runs, which files it parses, what its routes answer."""

from __future__ import annotations

import functools
import gzip
import html
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
from tensorboard.plugins import base_plugin
from werkzeug import Request, Response, exceptions

from harness.board.official.catalog import Entry, entries
from harness.board.official.diff import compare
from harness.board.official.page import CONTENT_SECURITY_POLICY, PAGE, asset
from harness.board.official.parser import Answer
from harness.board.official.profiles import Profiles
from harness.board.official.ranks import EVERY_RANK, compared
from harness.errors import UsageError
from harness.files import printable
from harness.logdir.flags import logdirs_of
from harness.logdir.scan import Scanner, pass_over
from harness.timeline.app import TimelineApp
from harness.web.answers import answering, sent
from harness.web.guard import guarded

log = logging.getLogger(__name__)

SCAN_S = 3.0
MADE_READY = 4
"""Runs, the newest ones, whose newest windows are parsed before anybody asks."""
DIFFS_KEPT = 4
DISTRIBUTED = "Distributed"
TIMELINE = "../windows/timeline/view.html"
"""The Perfetto page of the harness's own plugin, seen from this plugin's routes."""
OWN_TIMELINE = "files/timeline/view.html"


def apply() -> None:
    """Give the plugin's class these methods. Instances that exist already are not changed."""
    from torch_tb_profiler.plugin import TorchProfilerPlugin

    for name, method in vars(Repaired).items():
        if name == "__init__" or not name.startswith("__"):
            setattr(TorchProfilerPlugin, name, method)


class UnreadableSpan(UsageError):
    """A trace that cannot be shown; the message says why."""

    status = 422


class Repaired:
    """Methods for `TorchProfilerPlugin`; what is not here is its own."""

    # What they share with the plugin's own methods is beyond a type checker: self is the plugin.
    def __init__(self: Any, context: base_plugin.TBContext) -> None:
        base_plugin.TBPlugin.__init__(self, context)
        self._flags = context.flags
        self._context = context
        self._scanner = Scanner(pass_over, bounded=True)
        self._runs: dict[str, Entry] = {}
        self._scanned = threading.Event()
        self._profiles = Profiles()
        self._diffs: OrderedDict[Any, Any] = OrderedDict()
        threading.Thread(target=self._scan, name="profiler-scan", daemon=True).start()

    def is_active(self: Any) -> bool:
        return bool(self._runs) or not self._scanned.is_set()

    def _scan(self: Any) -> None:
        """Look for runs and windows for as long as TensorBoard runs."""
        said = ""
        while True:
            try:
                self._runs = entries(logdirs_of(self._context), self._scanner)
                newest = sorted(self._runs.values(), key=lambda run: -run.newest)[:MADE_READY]
                for run in newest:
                    worker = run.workers[0]
                    span = run.spans_of(worker)[-1]
                    self._profiles.make_ready(run.spans[span][worker], worker, span)
            except Exception as error:  # whatever lies there: what comes later is to be found
                if said != str(error):
                    said = str(error)
                    log.warning("profiler plugin: the logdir cannot be looked through: %r", error)
            self._scanned.set()
            time.sleep(SCAN_S)

    def get_plugin_apps(self: Any) -> dict[str, Any]:
        names = (
            *("runs", "views", "workers", "spans", "trace", "memory", "memory_curve", "memory_events"),
            "module",
        )
        routes = {f"/{name}": f"{name}_route" for name in names} | {
            "/index.js": "page_route",
            "/index.html": "page_route",
            "/static/*": "page_route",
            "/overview": "overview_or_why_not",
            "/timeline": "timeline_route",
            "/operation": "operation_pie_route",
            "/operation/table": "operation_table_route",
            "/operation/stack": "operation_stack_route",
            "/kernel": "kernel_pie_route",
            "/kernel/table": "kernel_table_route",
            "/kernel/tc_pie": "kernel_tc_route",
            "/distributed/gpuinfo": "dist_gpu_info_route",
            "/distributed/overlap": "comm_overlap_route",
            "/distributed/waittime": "comm_wait_route",
            "/distributed/commops": "comm_ops_route",
            "/tree": "op_tree_route",
            "/diff": "diff_run_route",
            "/diffnode": "diff_run_node_route",
        }
        apps = {route: answering(functools.partial(_undecorated(self, name), self)) for route, name in routes.items()}
        apps[f"/{OWN_TIMELINE.replace('view.html', '*')}"] = TimelineApp(self._traced)
        return guarded(apps, self._flags)

    def page_route(self: Any, request: Request) -> Response:
        name = request.path.partition("/pytorch_profiler/")[2]
        if name == "index.html":
            return Response(
                PAGE,
                content_type="text/html; charset=utf-8",
                headers=[("Content-Security-Policy", CONTENT_SECURITY_POLICY), *_NO_SNIFFING],
            )
        if name == "index.js":
            script = 'export function render() {\n  document.location.href = "index.html";\n}\n'
            return Response(script, content_type="text/javascript; charset=utf-8", headers=_NO_SNIFFING)
        found = asset(name.removeprefix("static/"))
        if found is None:
            raise exceptions.NotFound
        headers = [("Cache-Control", "private, max-age=3600"), *_NO_SNIFFING]
        if found.is_compressed:
            headers.append(("Content-Encoding", "gzip"))
        return Response(found.content, content_type=found.type, headers=headers)

    def runs_route(self: Any, request: Request) -> Response:
        self._scanned.wait(SCAN_S)
        answer: Response = self.respond_as_json({"runs": list(self._runs), "loading": not self._scanned.is_set()})
        return answer

    def views_route(self: Any, request: Request) -> Response:
        """Of one span; of the newest one where the page has not chosen yet."""
        run = self._get_run(request.args.get("run"))
        worker = request.args.get("worker") or run.workers[0]
        worker = run.workers[0] if worker == EVERY_RANK else worker
        spans = run.spans_of(worker)
        if not spans:
            raise exceptions.NotFound(f"{run.name} has no worker {worker}")
        chosen = request.args.get("span", "")
        span = chosen if chosen in spans else spans[-1]
        try:
            profile = self._get_profile(run.name, worker, span)
        except UnreadableSpan as error:
            profile = _unreadable(worker, span, str(error))
        views = [view.display_name for view in profile.views]
        if len(run.spans[span]) > 1 and profile.has_communication:
            views.append(DISTRIBUTED)
        answer: Response = self.respond_as_json(views)
        return answer

    def overview_or_why_not(self: Any, request: Request) -> Response:
        """The plugin's own; of a trace that cannot be read it says so in the place of advice."""
        try:
            answer: Response = _undecorated(self, "overview_route")(self, request)
        except UnreadableSpan as error:
            worker, span = request.args.get("worker", ""), request.args.get("span", "")
            answer = self.respond_as_json({**_unreadable(worker, span, str(error)).overview, "environments": []})
        return answer

    def workers_route(self: Any, request: Request) -> Response:
        run = self._get_run(request.args.get("run"))
        workers = [EVERY_RANK] if request.args.get("view") == DISTRIBUTED else run.workers
        answer: Response = self.respond_as_json(workers)
        return answer

    def spans_route(self: Any, request: Request) -> Response:
        run, worker = self._get_run(request.args.get("run")), request.args.get("worker")
        if worker == EVERY_RANK:
            spans = [span for span, files in run.spans.items() if len(files) > 1]
        else:
            spans = run.spans_of(worker)
        answer: Response = self.respond_as_json(spans)
        return answer

    def operation_stack_route(self: Any, request: Request) -> Response:
        """Calls of an operator by call stack; none in a span without it, which the page may ask for."""
        profile = self._get_profile_for_request(request)
        name = request.args.get("op_name", "")
        found = profile.operation_stack_by_name
        if request.args.get("group_by") == "OperationAndInputShape":
            name, found = f"{name}###{request.args.get('input_shape')}", profile.operation_stack_by_name_input
        tooltips = profile.operation_table_by_name["metadata"]["tooltips"]
        answer: Response = self.respond_as_json(found.get(name, {"metadata": {"tooltips": tooltips}, "data": []}))
        return answer

    def trace_route(self: Any, request: Request) -> Response:
        """The file as it is."""
        path = self._path(request)
        packed = {"Content-Encoding": "gzip"} if path.suffix == ".gz" else {}
        return sent(request, path, "application/json", packed)

    def timeline_route(self: Any, request: Request) -> Response:
        """The Perfetto page on this file: that of the Windows tab, or one of its own where it is in no window."""
        path = self._path(request)
        run, span = request.args.get("run", ""), request.args.get("span", "")
        window = self._get_run(run).windows.get(span)
        named = {"run": run, "window": window, "file": printable(path.name)}
        address = f"{OWN_TIMELINE}?{urlencode(request.args)}" if window is None else f"{TIMELINE}?{urlencode(named)}"
        return Response(status=302, headers=[("Location", address), *_NO_SNIFFING])

    @staticmethod
    def respond_as_json(value: Any, compress: bool = False) -> Response:
        """Numbers to the nanosecond: what follows is noise of sums."""
        content = msgspec.json.encode(_rounded(value))
        headers = [*_NO_SNIFFING, ("Cache-Control", "no-cache")]
        if compress:
            content = gzip.compress(content, 1)
            headers.append(("Content-Encoding", "gzip"))
        return Response(content, content_type="application/json", headers=headers)

    def _path(self: Any, request: Request) -> Path:
        try:
            path: Path = self._traced(request.args)
        except UsageError as error:
            raise exceptions.NotFound(str(error)) from None
        return path

    def _traced(self: Any, arguments: Mapping[str, str]) -> Path:
        """The file that a page's arguments name.

        Raises:
            UsageError: where there is none.
        """
        run, span, worker = (arguments.get(name, "") for name in ("run", "span", "worker"))
        found = self._runs.get(run)
        if found is None or worker not in found.spans.get(span, {}):
            raise UsageError(f"{run[:200]} has no trace of {worker[:200]} in {span[:200]}")
        path: Path = found.spans[span][worker]
        return path

    def _get_run(self: Any, name: str | None) -> Entry:
        self._scanned.wait(SCAN_S)
        if name not in self._runs:
            raise exceptions.NotFound(f"there is no run {name}")
        run: Entry = self._runs[name]
        return run

    def _get_profile(self: Any, name: str, worker: str, span: str) -> Any:
        """What the views show, of one worker or of all together; the trace is parsed if it was not yet."""
        files = self._get_run(name).spans.get(span, {})
        if worker == EVERY_RANK:
            for each, path in files.items():
                self._profiles.make_ready(path, each, span)
            answers = [self._profiles.get(path, each, span) for each, path in files.items()]
            profile = compared([answer for answer in answers if answer.distributed is not None], span)
            if profile is None:
                raise exceptions.NotFound(f"the ranks of {name}, {span}, did not take part in the same collectives")
            return profile
        if worker not in files:
            raise exceptions.NotFound(f"{name} has no trace of {worker} in {span}")
        answer: Answer = self._profiles.get(files[worker], worker, span)
        if answer.error is not None:
            raise UnreadableSpan(answer.error)
        return answer.profile

    def get_diff_status(self: Any, base: Any, experiment: Any) -> Any:
        return self._diff(base, experiment)[0]

    def get_diff_stats_dict(self: Any, base: Any, experiment: Any) -> Any:
        return self._diff(base, experiment)[1]

    def _diff(self: Any, base: Any, experiment: Any) -> Any:
        """The compared trees, and their nodes by path; those of the last few pairs are kept."""
        key = (base, experiment)
        if key not in self._diffs:
            stats = compare(base, experiment)
            self._diffs[key] = (stats, stats.flatten_diff_tree())
        self._diffs.move_to_end(key)
        while len(self._diffs) > DIFFS_KEPT:
            self._diffs.popitem(last=False)
        return self._diffs.get(key)


def _undecorated(plugin: Any, name: str) -> Callable[[Any, Request], Response]:
    """A method that answers a request; the plugin's own ones are hidden in WSGI applications, which say no reasons."""
    method = getattr(type(plugin), name)
    found: Callable[[Any, Request], Response] = getattr(method, "__wrapped__", method)
    return found


_NO_SNIFFING = [("X-Content-Type-Options", "nosniff")]


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(float(value), 3)  # also of numpy
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else _plain(value)


def _plain(value: Any) -> Any:
    """Numbers of numpy as Python's."""
    return value.item() if hasattr(value, "item") else value


def _unreadable(worker: str, span: str, error: str) -> Any:
    """A profile whose Overview says why there is none."""
    from torch_tb_profiler import consts
    from torch_tb_profiler.run import RunProfile

    profile = RunProfile(worker, span)
    profile.views = [consts.OVERALL_VIEW]
    profile.overview = {
        "steps": {"columns": [{"type": "string", "name": "Step"}, {"type": "number", "name": "Other"}], "rows": []},
        "performance": [{"name": "Average Step Time", "description": "", "value": 0, "extra": 0, "children": []}],
        "recommendations": f"<ul><li>{html.escape(error)}</li></ul>",
    }
    return profile
