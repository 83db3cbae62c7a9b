"""To which names a server of ours answers.

Whoever owns a name can point it at this machine, and a page under that name may then read all that a server here
answers, as if it were its own (DNS rebinding). Each request tells the name that the browser was given, as its Host.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from harness.errors import UsageError

VARIABLE = "HARNESS_ALLOWED_HOSTS"
"""Of the environment: what ``--allowed-hosts`` says, for a TensorBoard that others start."""
_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}))(?::\d{0,5})?")
_NAMES = re.compile(r"\*|\.?[A-Za-z0-9_-][A-Za-z0-9._-]{0,252}")
_EVERYWHERE = "0.0.0.0"


def host_of(header: str) -> str | None:
    """The name or address in a Host header: in lower case, without brackets, port and a last dot. None where there is
    not one, or more."""
    found = _HOST.fullmatch(header)
    if found is None:
        return None
    address = _address(found["six"] or found["name"])
    if found["six"] is not None or address is not None:
        return str(address) if address is not None else None
    return str(found["name"]).lower().removesuffix(".")


def allowed_hosts(text: str) -> list[str]:
    """The names of ``--allowed-hosts``, which are separated by commas.

    Raises:
        UsageError: where one is no name, as an address with ``http://`` or a port is none.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    for name in names:
        if not _NAMES.fullmatch(name) and _address(name.strip("[]")) is None:
            raise UsageError(
                f"--allowed-hosts {name}: is no name of a host; give names or addresses as the browser's address bar "
                "has them, without http:// and port: gpu7.lab,.example.com"
            )
    return names


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on this name or address."""
    address = _address(host)
    if address is not None:
        return address.is_loopback
    if not host:
        return False
    try:
        found = {_address(str(place[0])) for *_, place in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return host.lower() == "localhost"
    return all(address is not None and address.is_loopback for address in found)


class Hosts:
    """The names and addresses that a server answers to.

    Those of loopback, the one that it listens on, and those that its user gave. Where others reach it, also this
    machine's own names and every address in digits: it has addresses that it cannot know of, as behind a router or in a
    container, and nobody can point digits elsewhere.

    Args:
        listening: The name or address that the server listens on.
        given: Further ones; ``.example.com`` stands for all names that end so, ``*`` for every name.
    """

    def __init__(self, listening: str, given: Iterable[str] = ()) -> None:
        self.given = frozenset(map(_plain, given))
        self._beyond = not is_loopback(listening)
        self._names = {"localhost", _plain(listening)}
        self._ends = tuple(name for name in self.given if name.startswith("."))
        if self._beyond:
            self._names |= _own_names()

    @classmethod
    def of_tensorboard(cls, flags: Any, given: Iterable[str]) -> Hosts:
        """Of a TensorBoard that somebody has started with these flags. One that was opened to others answers to every
        name: its own pages do so too, and it has no option that could say which."""
        if getattr(flags, "bind_all", False):
            return cls(_EVERYWHERE, ["*"])
        hosts = cls(getattr(flags, "host", None) or "localhost", given)
        return cls(_EVERYWHERE, ["*"]) if hosts._beyond else hosts

    def __contains__(self, host: object) -> bool:
        if not isinstance(host, str):
            return False
        address = _address(host)
        if address is not None and (self._beyond or address.is_loopback):
            return True
        return host in self._names or "*" in self.given or self.are_given(host)

    def are_given(self, host: str) -> bool:
        """Whether the user has named this one, or what it ends in."""
        return host in self.given or host.endswith(self._ends)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that this spells; the IPv4 one of an IPv6 address that stands for one."""
    with suppress(ValueError):
        found = ipaddress.ip_address(text)
        mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
        return mapped or found
    return None


def _plain(name: str) -> str:
    """As `host_of` has it."""
    name = name.lower().strip("[]")
    address = _address(name)
    return str(address) if address is not None else name.removesuffix(".")


def _own_names() -> set[str]:
    name = socket.gethostname().lower()
    return {name, f"{name}.local", socket.getfqdn().lower()}
