"""Answers: JSON that a browser need not load twice, files piece by piece, errors in a sentence."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from tensorboard.backend import http_util
from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response

from harness.board.tab.places import Missing
from harness.board.tab.summaries import Unreadable

PIECE = 1 << 18
Handler = Callable[[Request], Response]


def app(handler: Handler) -> Callable[..., Any]:
    """A WSGI application that reads and never writes; what is missing or damaged is said in JSON."""

    @Request.application
    def answered(request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return _error(request, "only GET", 405)
        try:
            return handler(request)
        except Missing as error:
            return _error(request, str(error), 404)
        except Unreadable as error:
            return _error(request, str(error), 422)
        except OSError as error:
            return _error(request, f"it cannot be read: {error.strerror or type(error).__name__}", 404)

    return answered


class _NotModified(Response):
    """Keeps its content type, without which TensorBoard writes a warning for every such answer."""

    def get_wsgi_headers(self, environ: Any) -> Headers:
        headers = super().get_wsgi_headers(environ)
        headers["Content-Type"] = self.content_type or ""
        return headers


def json(request: Request, value: Any) -> Response:
    """``value``, or encoded JSON; 304 without it where the browser has it already."""
    content = value if isinstance(value, bytes) else msgspec.json.encode(value)
    return cached(request, content, "application/json")


def cached(request: Request, content: bytes, kind: str, *, packed: bytes | None = None) -> Response:
    """Content that is asked for again and again.

    Args:
        packed: The same, compressed with gzip, where that is at hand.
    """
    tag = hashlib.sha256(content if packed is None else packed).hexdigest()[:32]
    headers = [("ETag", f'W/"{tag}"')]
    if request.if_none_match.contains_weak(tag):
        return _NotModified(status=304, headers=[*headers, ("X-Content-Type-Options", "nosniff")], content_type=kind)
    if packed is not None:
        response = http_util.Respond(request, packed, kind, content_encoding="gzip", headers=headers)
    else:
        response = http_util.Respond(request, content, kind, headers=headers)
    answer: Response = response
    return answer


def download(request: Request, path: Path) -> Response:
    """A file as an attachment, read as the browser takes it."""
    length = path.stat().st_size
    headers = {
        "Content-Length": str(length),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(path.name)}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    kind = "application/gzip" if path.suffix == ".gz" else "application/json"
    content = _pieces(path, length) if request.method == "GET" else iter(())
    return Response(content, headers=headers, content_type=kind, direct_passthrough=True)


def _pieces(path: Path, length: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        while length > 0 and (piece := file.read(min(PIECE, length))):
            length -= len(piece)
            yield piece


def _error(request: Request, text: str, code: int) -> Response:
    response: Response = http_util.Respond(request, {"error": text}, "application/json", code=code)
    return response
