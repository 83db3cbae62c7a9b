"""The names that a server answers to, by where it listens and what its user gave."""

from __future__ import annotations

import socket
from argparse import Namespace
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.web.hosts import VARIABLE, Hosts, allowed_hosts, host_of, is_loopback
from tests.board.raw import TAB, Server, begun
from tests.browser import served
from tests.launch import Launcher, expect_usage_error

pytestmark = pytest.mark.xdist_group("board")

NAME = socket.gethostname().lower()
EVERYWHERE = ["0.0.0.0", "::", ""]


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("localhost", "localhost"),
        ("LocalHost.:6006", "localhost"),
        ("a-b_c.example:", "a-b_c.example"),
        ("127.0.0.1:6006", "127.0.0.1"),
        ("[::1]:6006", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[::1]x", None),
        ("::1", None),
        ("[localhost]", None),
        ("localhost:x", None),
        ("localhost:123456", None),
        ("a,b", None),
        ("a b", None),
        ("http://a", None),
        ("", None),
    ],
)
def test_a_header_names_one_host_or_none(header: str, host: str | None) -> None:
    assert host_of(header) == host


@pytest.mark.parametrize("listening", ["localhost", "127.0.0.1", "::1", "127.0.0.5"])
def test_on_loopback_only_its_names_are_answered_to(listening: str) -> None:
    hosts = Hosts(listening)
    assert is_loopback(listening)
    assert all(name in hosts for name in ("localhost", "127.0.0.1", "127.0.0.5", "::1"))
    assert not [name for name in (NAME, "192.0.2.7", "evil.example", "0.0.0.0", "", None) if name in hosts]


@pytest.mark.parametrize("listening", EVERYWHERE)
def test_where_others_reach_it_also_this_machines_names_and_addresses(listening: str) -> None:
    hosts = Hosts(listening)
    assert not is_loopback(listening)
    assert all(name in hosts for name in ("localhost", "::1", NAME, f"{NAME}.local", "192.0.2.7", "2001:db8::7"))
    assert "evil.example" not in hosts
    assert f"{NAME}.evil.example" not in hosts


def test_what_it_listens_on_and_what_was_given_is_answered_to() -> None:
    hosts = Hosts("GPU7.lab.", allowed_hosts("Hub.Example.com, .lab.example ,[::2],,"))
    assert all(name in hosts for name in ("gpu7.lab", "hub.example.com", "a.lab.example", "a.b.lab.example", "::2"))
    assert not [
        name for name in ("example.com", "xhub.example.com", "lab.example", "lab.example.evil") if name in hosts
    ]
    assert "anything" in Hosts("localhost", allowed_hosts("*"))


@pytest.mark.parametrize("text", ["http://a", "a:6006", "a b", "a/b", "ä.example", "*.example.com", "[a]", "..", "'"])
def test_what_is_no_name_is_said(text: str) -> None:
    with pytest.raises(UsageError, match="is no name of a host"):
        allowed_hosts(text)


@pytest.mark.parametrize(
    ("flags", "others"),
    [
        (Namespace(), False),
        (Namespace(host=None, bind_all=False), False),
        (Namespace(host="localhost"), False),
        (Namespace(host="127.0.0.1"), False),
        (Namespace(host=None, bind_all=True), True),
        (Namespace(host="0.0.0.0"), True),
        (None, False),
    ],
    ids=str,
)
def test_a_plain_tensorboard_that_was_opened_to_others_answers_to_every_name(flags: Namespace, others: bool) -> None:
    hosts = Hosts.of_tensorboard(flags, ["hub.example.com"] if not others else [])
    assert ("evil.example" in hosts) == others
    assert ("hub.example.com" in hosts) or others


def test_names_that_are_given_are_answered_to_on_every_route(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    _, port = begun(harness, "board", tmp_path / "logs", "--allowed-hosts", "hub.example.com,.lab.example")
    board = Server("board", port, ())
    for host in ("hub.example.com", "a.lab.example:8000", "localhost"):
        for path in ("/", "/data/environment", f"{TAB}/runs", f"{TAB}/timeline/view.html"):
            assert board.get(path, f"Host: {host}").status == 200, (host, path)
    assert board.get("/", "Host: evil.example").status == 403
    proxied = board.get("/", "Host: localhost", "Origin: https://hub.example.com")
    assert proxied.status == 200, "a proxy that asks under a name of its own"
    assert "https://hub.example.com:*" in proxied.headers["content-security-policy"]
    assert "harness board --allowed-hosts evil.example" in board.get("/", "Host: evil.example").body.decode()


def test_a_board_on_every_address_answers_to_its_own_names(harness: Launcher, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    command, port = begun(harness, "board", tmp_path / "logs", "--host", "0.0.0.0")
    board = Server("board", port, ())
    assert "--allowed-hosts" in command.text, "how a name of its own is given"
    for host in ("localhost", NAME, "192.0.2.7"):
        assert board.get(f"{TAB}/runs", f"Host: {host}:{port}").status == 200, host
    for path in ("/", f"{TAB}/runs"):
        assert board.get(path, "Host: evil.example").status == 403


def test_names_that_are_none_are_told_with_status_2(harness: Launcher, tmp_path: Path) -> None:
    for command in ("board", "timeline"):
        expect_usage_error(
            harness.run(command, str(tmp_path), "--allowed-hosts", "http://hub"), "http://hub", "browser"
        )


def test_a_plain_tensorboard_takes_names_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "hub.example.com")
    with served(tmp_path, "--logdir", str(tmp_path)) as plain:
        server = Server("tensorboard", int(plain.address.rpartition(":")[2]), ())
        assert server.get(f"{TAB}/runs", "Host: hub.example.com").status == 200
        assert server.get(f"{TAB}/runs", "Host: evil.example").status == 403
        assert plain.said.count("to the name evil.example") == 1
        assert server.get(f"{TAB}/runs", "Host: evil.example").status == 403
        assert plain.said.count("to the name evil.example") == 1, "once is enough"
