"""The page's own files, and plotly's bundle, which the package carries."""

from __future__ import annotations

import re
import threading
from functools import cache
from pathlib import Path

from isal import igzip
from werkzeug.wrappers import Request, Response

from harness.board.tab.places import Missing
from harness.board.tab.respond import cached

STATIC = Path(__file__).parent / "static"
KINDS = {".js": "text/javascript", ".css": "text/css"}
_OTHER_CHARTS = re.compile(r"\.register\(\[(?:[\w$]+\(\),?)+\]\)")
"""Where the bundle makes ready what is no curve: maps, surfaces, pies."""
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
    return igzip.compress(curves_only(bundle()).encode(), mtime=0)


def bundle() -> str:
    """Plotly's own, whole."""
    from plotly.offline import get_plotlyjs

    whole: str = get_plotlyjs()
    return whole


def curves_only(whole: str) -> str:
    """The bundle without the other kinds of charts, which take a browser longer to start than all else in it.

    They are left out of the one list that names them; a bundle without such a list stays as it is.
    """
    return _OTHER_CHARTS.sub(".register([])", whole) if len(_OTHER_CHARTS.findall(whole)) == 1 else whole
