"""Passwords and tokens in addresses: they are taken from where a job is configured, and written nowhere.

A run keeps its configuration in several files, in TensorBoard and in its log, for all who may read the logdir. So an
address that holds a secret is refused; what names one all the same, as a library's error, is written with it masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

MASK = "***"
HOW = (
    "a run's files, TensorBoard and the log would keep it. Give an address without it; a protocol's own environment or "
    "fsspec's configuration has the rest, as FSSPEC_FTP_USERNAME and FSSPEC_FTP_PASSWORD (docs/long_jobs.md); a value "
    "of your own can be ${oc.env:NAME}"
)
"""What to do about an address with a secret in it."""
# ftp://user:password@host, also behind another one as simplecache::ftp://...; `host:21/a@b` holds a port, no password.
_PASSWORD = r"([a-z][a-z0-9+.-]*://[^\s/?#@:'\"]*:)(?!\d+(?:/|$))({any}*)(?=@)"
_TOKEN = (
    r"([?&;](?:[a-z0-9_.-]*(?:sig|signature|token|secret|password|passwd|pwd|credential|credentials|api[_-]?key"
    r"|access[_-]?key)|key|auth)=)([^&;#\s'\"]+)"
)
_IN_TEXT = re.compile(_PASSWORD.format(any=r"\S"), re.IGNORECASE)
_IN_VALUE = re.compile(_PASSWORD.format(any="."), re.IGNORECASE | re.DOTALL)
_QUERY = re.compile(r"(?<=://)\S*", re.IGNORECASE)
_PARAMETER = re.compile(_TOKEN, re.IGNORECASE)
_INTERPOLATED = re.compile(r"\$\{")


def has_secret(value: str) -> bool:
    """Whether an address in a value holds a password, or a token among its parameters."""
    return masked(value, whole=True) != value


def masked(text: str, *, whole: bool = False) -> str:
    """The text with every secret in an address masked. whole: it is one value, so that a password may hold spaces."""
    text = (_IN_VALUE if whole else _IN_TEXT).sub(_mask, text)
    return _QUERY.sub(lambda address: _PARAMETER.sub(_mask, address[0]), text)


def _mask(found: re.Match[str]) -> str:
    # An interpolation is no secret; what it stands for is not written.
    return found[0] if not found[2] or _INTERPOLATED.match(found[2]) else f"{found[1]}{MASK}"


def secrets(node: Any, key: str = "") -> Iterator[str]:
    """The keys of a configuration whose values hold a secret; a list's by their numbers."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for name, value in items:
        here = f"{key}.{name}" if key else str(name)
        if isinstance(value, str) and has_secret(value):
            yield here
        yield from secrets(value, here)


def uninterpolated(node: Any) -> Any:
    """A configuration whose values from the environment stay as they are named, also where it is resolved."""
    if isinstance(node, dict):
        return {key: uninterpolated(value) for key, value in node.items()}
    if isinstance(node, list):
        return [uninterpolated(value) for value in node]
    if isinstance(node, str) and re.search(r"\$\{\s*oc\.(env|decode)\b", node):
        return node.replace("${", "\\${")
    return node
