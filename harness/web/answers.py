"""What a route answers where it cannot answer, and files that it sends: the tab's and the plugin's alike."""

from __future__ import annotations

import gzip
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from werkzeug.exceptions import HTTPException
from werkzeug.wrappers import Request, Response

from harness.errors import UsageError
from harness.files import open_regular, printable

log = logging.getLogger(__name__)

PIECE = 1 << 18
MOST_SAID = 1000
"""Letters of a refusal, which may repeat what was asked for."""
MISSING, UNREADABLE = 404, 422
Handler = Callable[[Request], Response]


def answering(handler: Handler) -> Callable[..., Any]:
    """A WSGI application of a route. What it cannot answer is said in JSON, in a sentence: other people's files can
    make any code fail, and a traceback helps nobody who looks at a page."""

    @Request.application
    def answered(request: Request) -> Response:
        try:
            return handler(request)
        except HTTPException as error:
            return refusal(error.description or error.name, error.code or MISSING)
        except Exception as error:
            return refusal(*why(error, request.path))

    return answered


def why(error: Exception, path: str) -> tuple[str, int]:
    """What is said of an error, and its status. One that nobody has foreseen is logged too."""
    if isinstance(error, UsageError):
        return str(error)[:MOST_SAID], getattr(error, "status", MISSING)
    if isinstance(error, OSError):
        return f"it cannot be read: {error.strerror or type(error).__name__}", MISSING
    told = f"it cannot be shown: {type(error).__name__}: {error}"[:MOST_SAID]
    log.warning("%s: %s", path, told)
    log.debug("%s", path, exc_info=error)
    return told, UNREADABLE


def refusal(text: str, status: int) -> Response:
    """``text`` as JSON."""
    content = msgspec.json.encode({"error": printable(text[:MOST_SAID])})
    headers = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
    return Response(content, status=status, headers=headers, content_type="application/json")


def sent(request: Request, path: Path, kind: str, headers: Mapping[str, str], *, is_packed: bool = False) -> Response:
    """A file as it is, read as the browser takes it.

    Args:
        is_packed: What it holds is compressed with gzip, and of this type once it is unpacked.

    Raises:
        OSError: where it cannot be read, or is no regular file.
    """
    file = open_regular(path)
    told = {"X-Content-Type-Options": "nosniff", **headers}
    length: int | None = os.fstat(file.fileno()).st_size
    content: BinaryIO = file
    if is_packed:
        told["Vary"] = "Accept-Encoding"
        if request.accept_encodings.quality("gzip") > 0:
            told["Content-Encoding"] = "gzip"
        else:
            content, length = gzip.GzipFile(fileobj=file), None  # type: ignore[assignment]
    if length is not None:
        told["Content-Length"] = str(length)
    pieces = _pieces(content, length) if request.method == "GET" else iter(())
    response = Response(pieces, headers=told, content_type=kind, direct_passthrough=True)
    response.call_on_close(file.close)
    return response


def _pieces(file: BinaryIO, length: int | None) -> Iterator[bytes]:
    """No more than was promised, of a file that grows."""
    while (length is None or length > 0) and (piece := file.read(PIECE if length is None else min(PIECE, length))):
        yield piece
        if length is not None:
            length -= len(piece)
