"""The plugin's page as it is served: its own script with a few places changed, and no address outside this machine."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import NamedTuple

from harness.board.official.pinned import folder

STATIC = Path(__file__).parent / "static"
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'"
)
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>PyTorch Profiler</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="static/page.css">
<script type="module" src="static/theme.js"></script>
<script defer src="static/plotly.js"></script>
<script type="module" src="static/charts/main.js"></script>
<script defer src="static/plugin.js"></script>
</head>
<body><div id="app"></div></body>
</html>
"""
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}
_SCRIPT_BEGINS, _SCRIPT_ENDS = "<script>/*!", "</script></body></html>"


class Change(NamedTuple):
    """A place in the plugin's minified script, which occurs once."""

    old: str
    new: str


# The page asks for the list of runs every five seconds (its variable d); with it, now, for what follows from it. What
# is chosen stays chosen while it is there. c is the run, I the view, x the worker, N the span; P, b and E their lists.
CHANGES = (
    # Views are those of the chosen span: of a run with windows, only some may hold memory or modules.
    Change("c&&Ir.viewsGet(c).then", "c&&Ir.viewsGet(c,{query:{worker:x,span:N}}).then"),
    Change("filter(Boolean);R(e)}))}),[c])", "filter(Boolean);e.of=[c,x,N].join();R(e)}))}),[c,x,N,d])"),
    Change('var n;_(null!==(n=Yk(P))&&void 0!==n?n:"")}),[P])', 'P.includes(I)||_(Yk(P)||"")}),[P])'),
    Change(
        "workersGet(c,I).then((function(n){v(n)}))}),[c,I])", "workersGet(c,I).then((function(n){v(n)}))}),[c,I,d])"
    ),
    Change('var n;w(null!==(n=Yk(b))&&void 0!==n?n:"")}),[b])', 'b.includes(x)||w(Yk(b)||"")}),[b])'),
    Change(
        "spansGet(c,x).then((function(n){C(n)}))}),[c,x])",
        "spansGet(c,x).then((function(n){n.of=[c,x].join();C(n)}))}),[c,x,d])",
    ),
    # Nothing is asked for that the chosen run and span do not have: what is chosen changes one by one.
    Change(
        "if(!(z&&c&&x&&I&&N))return",
        "if(!(z&&c&&x&&I&&N&&P.of===[c,x,N].join()&&P.includes(I)&&E.of===[c,x].join()&&E.includes(N)))return",
    ),
    # Spans are in order; the newest is shown first.
    Change('var n;O(null!==(n=Yk(E))&&void 0!==n?n:"")}),[E])', 'E.includes(N)||O(E[E.length-1]||"")}),[E])'),
    # A span stays chosen when another view or worker is, as long as it is there.
    Change('_(n.target.value),w(""),O("")', '_(n.target.value),w("")'),
    Change('w(n.target.value),O("")', "w(n.target.value)"),
    # The timeline reads the trace by itself; the page need not load it and hand it over.
    Change("s(Ir.traceGet(t,r,o).then((function(n){return JSON.stringify(n)})))", "s(null)"),
    Change(
        'src:"./trace_embedding.html"}))}),[])',
        'title:"Timeline",src:"./timeline?"+new URLSearchParams({run:t,worker:r,span:o})}))}),[t,r,o])',
    ),
)


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    type: str
    is_compressed: bool = False


@cache
def asset(name: str) -> Asset | None:
    """What the page loads from below ``static/``; None where there is no such file."""
    if name == "plugin.js":
        return Asset(gzip.compress(_plugin_script().encode(), 6), _TYPES[".js"], is_compressed=True)
    if name == "plotly.js":
        from plotly.offline import get_plotlyjs

        return Asset(gzip.compress(get_plotlyjs().encode(), 6), _TYPES[".js"], is_compressed=True)
    known = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*") if path.suffix in _TYPES}
    return Asset(known[name].read_bytes(), _TYPES[known[name].suffix]) if name in known else None


def _plugin_script() -> str:
    at = folder()
    assert at is not None
    page = (at / "static" / "index.html").read_text(encoding="utf-8")
    script = page[page.index(_SCRIPT_BEGINS) + len("<script>") : page.rindex(_SCRIPT_ENDS)]
    for change in CHANGES:
        assert script.count(change.old) == 1, change.old
        script = script.replace(change.old, change.new)
    return script
