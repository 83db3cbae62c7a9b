"""Answers: JSON that a browser need not load twice, files as attachments."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from tensorboard.backend import http_util
from werkzeug.datastructures import Headers
from werkzeug.wrappers import Request, Response

from harness.web.answers import sent


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
    kind = "application/gzip" if path.suffix == ".gz" else "application/json"
    named = f"attachment; filename*=UTF-8''{quote(os.fsencode(path.name))}"
    return sent(request, path, kind, {"Content-Disposition": named, "Cache-Control": "no-store"})
