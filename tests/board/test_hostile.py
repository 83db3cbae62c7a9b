"""What strangers send to a board, and what comes back: raw requests to real servers.

The servers are ``harness board``, plain ``tensorboard``, of which only the harness's own routes are guarded, and
``harness timeline``.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.board.raw import OFFICIAL, TAB, WAIT_S, Server, begun, request
from tests.board.tab import layout
from tests.browser import served
from tests.launch import Launcher, wait_until

pytestmark = pytest.mark.xdist_group("hostile")

SECRET = "not for everyone"
SPAN = "run=a/b&worker=host_0&span=step%2010"
WINDOW = "run=a/b&window=window_00000010"

OURS = (
    f"{TAB}/runs",
    f"{TAB}/static/index.js",
    f"{TAB}/window?{WINDOW}",
    f"{TAB}/trace?{WINDOW}",
    f"{TAB}/timeline/view.html",
    f"{TAB}/timeline/facts?{WINDOW}",
    f"{OFFICIAL}/index.html",
    f"{OFFICIAL}/runs",
    f"{OFFICIAL}/overview?{SPAN}",
    f"{OFFICIAL}/trace?{SPAN}",
    f"{OFFICIAL}/files/timeline/facts?{SPAN}",
)
THEIRS = ("/", "/data/environment", "/data/logdir", "/data/plugins_listing", "/data/plugin/scalars/tags")
ALONE = ("/timeline/view.html", "/timeline/facts", "/timeline/trace")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A logdir beside a secret."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "secret").mkdir()
    (folder / "secret" / "window.json").write_text(SECRET)
    (folder / "secret" / "host_0.1.pt.trace.json").write_text(SECRET)
    layout.manifest(folder / "logs" / "a" / "b")
    layout.window(folder / "logs" / "a" / "b", 10, "matmul_64")
    return folder / "logs"


@pytest.fixture(scope="module")
def servers(launcher: Launcher, logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Server]]:
    with contextlib.ExitStack() as over:
        board, board_port = begun(launcher, "board", logs, "--host", "127.0.0.1")
        over.callback(board.kill_session)
        timeline, timeline_port = begun(launcher, "timeline", logs, "--no-open")
        over.callback(timeline.kill_session)
        plain = over.enter_context(served(tmp_path_factory.mktemp("plain"), "--logdir", str(logs)))
        found = {
            "harness board": Server("harness board", board_port, (*THEIRS, *OURS), command=board),
            "tensorboard": Server("tensorboard", int(plain.address.rpartition(":")[2]), OURS),
            "harness timeline": Server("harness timeline", timeline_port, ALONE, command=timeline),
        }
        for one in found.values():
            wait_until(lambda one=one: one.get(one.routes[-1]).status == 200, WAIT_S, one.name)  # type: ignore[misc]
        yield found
        for one in (board, timeline):
            assert "Traceback" not in one.text
        assert "Traceback" not in plain.said


@pytest.fixture(params=["harness board", "tensorboard", "harness timeline"])
def server(request: pytest.FixtureRequest, servers: dict[str, Server]) -> Server:
    return servers[request.param]


GET = "GET {path} HTTP/1.1"
LOCAL = "Host: localhost"

FOREIGN: dict[str, tuple[str, ...]] = {
    "another name": (GET, "Host: evil.example"),
    "another name with the port": (GET, "Host: evil.example:{port}"),
    "a name that begins like ours": (GET, "Host: localhost.evil.example:{port}"),
    "an address that goes on": (GET, "Host: 127.0.0.1.evil.example"),
    "a name that ends like ours": (GET, "Host: notlocalhost"),
    "a name below ours": (GET, "Host: evil.localhost"),
    "a user before the name": (GET, "Host: localhost@evil.example"),
    "a port that is a name": (GET, "Host: localhost:evil.example"),
    "two names in one": (GET, "Host: localhost, evil.example"),
    "two names, ours last": (GET, "Host: evil.example,localhost"),
    "a path in the name": (GET, "Host: localhost/evil.example"),
    "letters of the full width": (GET, "Host: \xef\xbd\x8cocalhost"),
    "a space in the name": (GET, "Host: localhost evil.example"),
    "a line that is folded": (GET, "Host: localhost", " .evil.example"),
    "an address elsewhere": (GET, "Host: 192.0.2.7:{port}"),
    "every address": (GET, "Host: 0.0.0.0:{port}"),
    "every address of IPv6": (GET, "Host: [::]:{port}"),
    "brackets that go on": (GET, "Host: [::1].evil.example"),
    "an address in octal": (GET, "Host: 0177.0.0.1"),
    "an address as a number": (GET, "Host: 2130706433"),
    "an address of IPv6 elsewhere": (GET, "Host: [2001:db8::1]"),
    "a star": (GET, "Host: *"),
    "a dot": (GET, "Host: ."),
    "a very long name": (GET, "Host: " + "a" * 60_000),
    "an empty name": (GET, "Host:"),
    "no name": (GET,),
    "no name, in the words of 1996": ("GET {path} HTTP/1.0",),
    "a space before the colon": (GET, "Host : localhost"),
    "two Hosts": (GET, "Host: localhost", "Host: evil.example"),
    "two Hosts, ours last": (GET, "Host: evil.example", "Host: localhost"),
    "a name in the request's line": ("GET http://evil.example{path} HTTP/1.1", "Host: localhost"),
    "the same name twice": ("GET http://evil.example{path} HTTP/1.1", "Host: evil.example"),
    "a proxy's word for it": (GET, "Host: evil.example", "X-Forwarded-Host: localhost"),
    "another proxy's word": (GET, "Host: evil.example", "Forwarded: host=localhost;for=127.0.0.1"),
    "another name, asked for its head": ("HEAD {path} HTTP/1.1", "Host: evil.example"),
    "another name's own page": (
        GET,
        "Host: evil.example",
        "Sec-Fetch-Site: same-origin",
        "Origin: http://evil.example",
    ),
}
"""Under other names than the server's: 400 or 403."""

CROSS_SITE: dict[str, tuple[str, ...]] = {
    "a script of another site": (GET, LOCAL, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors"),
    "a picture": (GET, LOCAL, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"),
    "another port of this machine": (GET, LOCAL, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: cors"),
    "a frame": (GET, LOCAL, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
    "an object": (GET, LOCAL, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: object"),
    "a site of no known kind": (GET, LOCAL, "Sec-Fetch-Site: friend"),
    "a page elsewhere": (GET, LOCAL, "Origin: http://evil.example"),
    "a page of another port": (GET, "Host: localhost:{port}", "Origin: http://localhost:1"),
    "a page of nowhere": (GET, LOCAL, "Origin: null"),
    "a page with a strange origin": (GET, LOCAL, "Origin: http://[evil"),
}
"""For pages of other sites: 403."""

OWN: dict[str, tuple[str, ...]] = {
    "localhost": (GET, "Host: localhost"),
    "with the port": (GET, "Host: localhost:{port}"),
    "through a tunnel from another port": (GET, "Host: localhost:17000"),
    "in capitals": (GET, "Host: LOCALHOST:{port}"),
    "with a dot at its end": (GET, "Host: localhost.:{port}"),
    "loopback": (GET, "Host: 127.0.0.1:{port}"),
    "more loopback": (GET, "Host: 127.8.9.10"),
    "loopback of IPv6": (GET, "Host: [::1]:{port}"),
    "IPv4 in IPv6": (GET, "Host: [::ffff:127.0.0.1]"),
    "in the request's line": ("GET http://localhost{path} HTTP/1.1", "Host: localhost"),
    "typed by hand": (GET, LOCAL, "Sec-Fetch-Site: none", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
    "its own page": (GET, "Host: localhost:{port}", "Sec-Fetch-Site: same-origin", "Origin: http://localhost:{port}"),
    "its own page, in an old browser": (GET, "Host: localhost:{port}", "Origin: http://localhost:{port}"),
    "behind a proxy": (GET, LOCAL, "Sec-Fetch-Site: same-origin", "Origin: https://hub.example"),
    "a link": (GET, LOCAL, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"),
    "a notebook": (GET, LOCAL, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"),
    "a range of all there is": (GET, LOCAL, "Range: bytes=" + ",".join(f"{i}-" for i in range(9000))),
    "a tag of quotes": (GET, LOCAL, "If-None-Match: " + '"' * 60_000),
    "a query that is no text": ("GET {path}{more}x=%ff%fe\xff\x80 HTTP/1.1", LOCAL),
    "a query of many": ("GET {path}{more}" + "&a=1" * 10_000 + " HTTP/1.1", LOCAL),
    "the head alone": ("HEAD {path} HTTP/1.1", LOCAL),
}
"""What must be answered: 200."""

BAD: dict[str, tuple[set[int], bytes]] = {
    "a parameter of ten million letters": ({414}, b"GET {path}{more}x=" + b"a" * 10_000_000 + b" HTTP/1.1\r\n\r\n"),
    "a header of ten million letters": ({431}, b"GET {path} HTTP/1.1\r\nX: " + b"a" * 10_000_000 + b"\r\n\r\n"),
    "a thousand headers": ({431}, b"GET {path} HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n"),
    "changes": ({405}, b"PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
    "an end": ({405}, b"DELETE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a question before another": ({405}, b"OPTIONS {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n\r\n"),
    "an echo": ({405}, b"TRACE {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a method of its own": ({405}, b"SECRET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    "a form of another site": (
        {403, 405},
        b"POST {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil.example\r\nContent-Length: 3\r\n\r\na=b",
    ),
    "a form that says it may": (
        {403, 405},
        b"POST {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n"
        b"Sec-Fetch-Dest: document\r\nContent-Length: 3\r\n\r\na=b",
    ),
    "a body without an end": (
        {405, 411},
        b"POST {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
    ),
    "a body of a terabyte": (
        {405, 413},
        b"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000000\r\n\r\n",
    ),
    "a length below zero": ({400, 405}, b"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"),
    "no version": ({400}, b"GET {path} HTTP/one\r\nHost: localhost\r\n\r\n"),
    "words": ({400}, b"what do you know\r\n\r\n"),
    "a handshake": ({0, 400}, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
}
"""What is no question."""

OUTSIDE = (
    "..",
    "../secret",
    "../../secret",
    "/etc/passwd",
    "%2e%2e/secret",
    "..%2fsecret",
    "%252e%252e%252fsecret",
    "..\\secret",
    "..%5csecret",
    "a/b/../../../secret",
    "a/b/%00",
    "a/b%00.json",
    "%00",
    "%ff%fe",
    "%ed%b3%bf",
    "~",
    "file:///etc/passwd",
    "x" * 20_000,
)


def formatted(lines: tuple[str, ...], server: Server, path: str) -> bytes:
    more = "&" if "?" in path else "?"
    return request(
        *(line.replace("{path}", path).replace("{port}", str(server.port)).replace("{more}", more) for line in lines)
    )


@pytest.mark.parametrize("row", FOREIGN)
def test_under_another_name_nothing_is_answered(row: str, server: Server) -> None:
    for path in server.routes:
        answer = server.send(formatted(FOREIGN[row], server, path))
        assert answer.status in (400, 403), f"{path}: {answer.status} {answer.body[:200]!r}"
        assert len(answer.body) < 1000
        assert "html" not in answer.headers["content-type"]


@pytest.mark.parametrize("row", CROSS_SITE)
def test_for_pages_of_other_sites_nothing_is_answered(row: str, server: Server) -> None:
    for path in server.routes:
        answer = server.send(formatted(CROSS_SITE[row], server, path))
        assert answer.status == 403, f"{path}: {answer.status} {answer.body[:200]!r}"


@pytest.mark.parametrize("row", OWN)
def test_who_may_ask_is_answered(row: str, server: Server) -> None:
    for path in server.routes:
        answer = server.send(formatted(OWN[row], server, path))
        assert answer.status == 200, f"{path}: {answer.status} {answer.body[:200]!r}"
        assert answer.headers["x-content-type-options"] == "nosniff", path
        assert answer.headers["cross-origin-resource-policy"] == "same-origin", path


@pytest.mark.parametrize("row", BAD)
def test_what_is_no_question_is_refused(row: str, server: Server) -> None:
    expected, template = BAD[row]
    for path in server.routes[:1] if len(template) > 10_000 else server.routes:
        more = b"&" if "?" in path else b"?"
        answer = server.send(template.replace(b"{path}", path.encode()).replace(b"{more}", more))
        # A plain TensorBoard closes before all is sent, and its answer may be lost.
        allowed = {*expected, 0} if server.name == "tensorboard" else expected
        assert answer.status in allowed, f"{path}: {answer.status} {answer.body[:200]!r}"
        assert b"Traceback" not in answer.body


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: name[:24])
def test_no_parameter_leads_out_of_the_logdir(name: str, server: Server) -> None:
    asked = [path for path in server.routes if "=" in path] or ["/timeline/facts?file=x", "/timeline/trace?file=x"]
    for path in asked:
        route, _, query = path.partition("?")
        for key in dict(urllib.parse.parse_qsl(query)):
            other = [part for part in query.split("&") if not part.startswith(f"{key}=")]
            answer = server.get(f"{route}?{'&'.join([*other, f'{key}={name}'])}")
            assert answer.status in (400, 404), f"{route} {key}: {answer.status} {answer.body[:200]!r}"
            assert SECRET.encode() not in answer.body
            assert len(answer.body) < 2000
            assert "html" not in answer.headers["content-type"]


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: name[:24])
def test_no_path_leads_out_of_the_files_of_a_page(name: str, server: Server) -> None:
    bases = [f"{TAB}/static/", f"{TAB}/timeline/", f"{TAB}/timeline/perfetto/", f"{OFFICIAL}/static/"]
    for base in bases if server.routes != ALONE else ["/timeline/", "/timeline/perfetto/", "/"]:
        answer = server.get(f"{base}{name}")
        assert answer.status in (301, 302, 400, 404), f"{base}: {answer.status} {answer.body[:200]!r}"
        assert SECRET.encode() not in answer.body
        assert b"root:" not in answer.body


def test_pages_may_be_framed_by_a_notebook_of_this_machine_alone(servers: dict[str, Server]) -> None:
    for server, path in (
        ("harness board", "/"),
        ("harness board", f"{TAB}/timeline/view.html"),
        ("harness timeline", ALONE[0]),
    ):
        policy = servers[server].get(path, "Host: 127.0.0.1").headers["content-security-policy"]
        assert policy.endswith("frame-ancestors 'self' http://127.0.0.1:* https://127.0.0.1:*")


@pytest.mark.parametrize("name", ["harness board", "harness timeline"])
def test_clients_that_say_nothing_or_never_read_keep_nobody_out(name: str, servers: dict[str, Server]) -> None:
    server = servers[name]
    page = server.routes[0]
    with contextlib.ExitStack() as over:
        for number in range(300):
            client = over.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with contextlib.suppress(ConnectionError):
                client.sendall(
                    (b"", b"G", b"GET / HTTP/1.1\r\nHost: ", request(f"GET {page} HTTP/1.1", LOCAL))[number % 4]
                )
            if number % 50 == 49:
                assert server.get(page).status == 200
        assert server.command is not None
        threads = Path(f"/proc/{server.command.pid}/status").read_text()
    (count,) = (int(line.split()[1]) for line in threads.splitlines() if line.startswith("Threads:"))
    assert count < 200, "a thread for each of them"
    assert server.get(page).status == 200


def test_many_ask_at_once_and_all_are_answered(servers: dict[str, Server]) -> None:
    server = servers["harness board"]
    answers: list[int] = []

    def ask() -> None:
        answers.extend(server.get(f"{TAB}/runs").status for _ in range(5))

    asking = [threading.Thread(target=ask) for _ in range(40)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert answers == [200] * 200
