"""What a server of ours answers at all: its user's browser and its own pages, and no page of somebody else's.

A browser tells with each request under which name it asks (Host) and for which site (Sec-Fetch-Site; Origin in older
ones), and no page can change these.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from harness.errors import UsageError
from harness.web.hosts import VARIABLE, Hosts, allowed_hosts, host_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

log = logging.getLogger(__name__)

READING = ("GET", "HEAD")
TENSORBOARD = (*READING, "POST")
"""TensorBoard's own pages post questions that are too long for an address."""
MOST_BODY_BYTES = 4 * 2**20
_GUARDED = "harness.guarded"
_LENGTH = re.compile(r"\d{1,18}")
_TOLD_AT_MOST = 20
_HEADERS = (("X-Content-Type-Options", "nosniff"), ("Cross-Origin-Resource-Policy", "same-origin"))


class Refusal(NamedTuple):
    """Why a request is not answered."""

    status: str
    reason: str


class Guard:
    """A WSGI application that answers for another one, where it is asked by whom it is for.

    Several may stand one inside of the other; who asks is looked at by the outermost, which knows most.

    Args:
        app: The application.
        hosts: The names that it answers to.
        methods: What may be asked.
        frames: Whether pages that lie under a name of ``hosts`` are told to browsers as those that may hold a page of
            the application in a frame, and no others. TensorBoard itself warns of such policies.
    """

    def __init__(
        self, app: WSGIApplication, hosts: Hosts, *, methods: Collection[str] = READING, frames: bool = False
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._methods = methods
        self._frames = frames
        self._told: set[str] = set()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        outermost = _GUARDED not in environ
        environ[_GUARDED] = True
        refusal = self._misused(environ) or (self._foreign(environ) if outermost else None)
        if refusal is None:
            return self._app(environ, self._guarded(environ, start_response) if outermost else start_response)
        body = f"{refusal.reason}\n".encode()
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body))), *_HEADERS]
        if refusal.status.startswith("405"):
            headers.append(("Allow", ", ".join(self._methods)))
        start_response(refusal.status, headers)
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    def _misused(self, environ: WSGIEnvironment) -> Refusal | None:
        """What asks for more than reading."""
        if environ["REQUEST_METHOD"] not in self._methods:
            return Refusal("405 Method Not Allowed", f"only {', '.join(self._methods)}")
        if "HTTP_TRANSFER_ENCODING" in environ:
            return Refusal("411 Length Required", "the length of what is sent must be told")
        length = environ.get("CONTENT_LENGTH") or "0"
        if not _LENGTH.fullmatch(length):
            return Refusal("400 Bad Request", "Content-Length is no number")
        if int(length) > MOST_BODY_BYTES:
            return Refusal("413 Content Too Large", f"at most {MOST_BODY_BYTES} bytes")
        return None

    def _foreign(self, environ: WSGIEnvironment) -> Refusal | None:
        """What a page of another site asks, or under another name than those that the server answers to."""
        host = host_of(environ.get("HTTP_HOST", ""))
        if host is None:
            return Refusal("400 Bad Request", "a request must name one host")
        if host not in self._hosts:
            reason = (
                f"this server does not answer to the name {host}. If it is one of its own: harness board "
                f"--allowed-hosts {host}; or {VARIABLE}={host} in the environment of a TensorBoard started otherwise"
            )
            self._tell(host, reason)
            return Refusal("403 Forbidden", reason)
        if self._is_cross_site(environ):
            return Refusal(
                "403 Forbidden",
                "this server answers to its own pages alone, and a page of another site asks; open its address itself",
            )
        return None

    def _is_cross_site(self, environ: WSGIEnvironment) -> bool:
        """A link elsewhere may lead here, and a notebook of the same site may frame the page. Nothing else."""
        site = environ.get("HTTP_SEC_FETCH_SITE")
        if site in ("same-origin", "none"):
            return False
        if site is None:
            origin = environ.get("HTTP_ORIGIN")
            return origin is not None and not self._is_own(origin, environ["HTTP_HOST"])
        if environ["REQUEST_METHOD"] not in READING or environ.get("HTTP_SEC_FETCH_MODE") != "navigate":
            return True
        into = environ.get("HTTP_SEC_FETCH_DEST")
        return not (into == "document" or (site == "same-site" and into in ("iframe", "frame")))

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            return False
        # Behind a proxy that asks under a name of its own, the browser's is one of those that were given.
        return place.lower() == host.lower() or self._hosts.are_given(host_of(place) or "")

    def _guarded(self, environ: WSGIEnvironment, start_response: StartResponse) -> StartResponse:
        """No browser may take an answer for something else than it is, or show it in a stranger's page."""

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            told = {name.lower(): value for name, value in headers}
            headers = [*headers, *(header for header in _HEADERS if header[0].lower() not in told)]
            if self._frames and told.get("content-type", "").startswith("text/html"):
                headers.append(("Content-Security-Policy", f"frame-ancestors {self._ancestors(environ['HTTP_HOST'])}"))
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        return start

    def _ancestors(self, header: str) -> str:
        """A notebook's server has the same name and another port."""
        names = [name for name in (host_of(header), *sorted(self._hosts.given)) if name and ":" not in name]
        names = [f"*{name}" if name.startswith(".") else name for name in names if name != "*"]
        places = [f"{scheme}://{name}:*" for name in dict.fromkeys(names) for scheme in ("http", "https")]
        return " ".join(["'self'", *places])

    def _tell(self, host: str, reason: str) -> None:
        """In the terminal too, since the page that cannot be loaded cannot say it: once of each name."""
        if host not in self._told and len(self._told) < _TOLD_AT_MOST:
            self._told.add(host)
            log.warning("%s", reason)


def guarded(apps: Mapping[str, Callable[..., Any]], flags: Any) -> dict[str, Callable[..., Any]]:
    """A plugin's routes, for a TensorBoard that somebody has started with these flags."""
    try:
        given = allowed_hosts(os.environ.get(VARIABLE, ""))
    except UsageError as error:
        log.warning("%s", str(error).replace("--allowed-hosts ", f"{VARIABLE}=", 1))
        given = []
    hosts = Hosts.of_tensorboard(flags, given)
    return {route: Guard(app, hosts) for route, app in apps.items()}
