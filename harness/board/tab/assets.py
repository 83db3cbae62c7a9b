"""The page's own files, and plotly's bundle, which the package carries."""

from __future__ import annotations

import gzip
import threading
from functools import cache
from pathlib import Path

from werkzeug.wrappers import Request, Response

from harness.board.tab.places import Missing
from harness.board.tab.respond import cached

STATIC = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript", ".css": "text/css"}
_packing = threading.Lock()


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in STATIC.iterdir() if path.suffix in KINDS}


def static(request: Request) -> Response:
    """A module or a style sheet by its name."""
    name = request.path.rsplit("/", 1)[-1]
    if name not in _files():
        raise Missing(f"there is no file {name[:100]!r}")
    return cached(request, _files()[name], KINDS[Path(name).suffix])


def plotly(request: Request) -> Response:
    """The bundle; packed once, which takes a moment."""
    with _packing:
        packed = _plotly()
    return cached(request, b"", "text/javascript", packed=packed)


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return gzip.compress(get_plotlyjs().encode(), compresslevel=5, mtime=0)
