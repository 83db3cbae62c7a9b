"""The findings of a window, ``window.json``, read in one way by everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from harness.errors import UsageError
from harness.files import read_regular
from harness.logdir.layout import FINDINGS
from harness.trace.schema import SCHEMA_VERSION


class Unreadable(UsageError):
    """Findings that this version cannot use; the message says why."""

    status = 422


class Versioned(Protocol):
    """:class:`harness.trace.WindowReport`, or as much of it as somebody asks for."""

    @property
    def schema_version(self) -> int: ...


Findings = TypeVar("Findings", bound=Versioned)


def read_findings(path: Path, kind: type[Findings]) -> Findings:
    """The findings in a file as far as ``kind`` has them; other fields are skipped unread.

    Raises:
        Unreadable: where the file is none, is too large, is damaged or of another version.
    """
    try:
        found = msgspec.json.decode(read_regular(path), type=kind)
    except OSError as error:
        raise Unreadable(f"{FINDINGS} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # msgspec's own are of the first kind
        raise Unreadable(f"{FINDINGS} is damaged: {error}") from error
    if found.schema_version != SCHEMA_VERSION:
        raise Unreadable(
            f"{FINDINGS} is of schema version {found.schema_version}, and this harness reads {SCHEMA_VERSION}"
        )
    return found


def findings_in(window: Path, kind: type[Findings]) -> Findings | None:
    """The same of a window's directory, for those who go on without: None where they cannot be used."""
    try:
        return read_findings(window / FINDINGS, kind)
    except Unreadable:
        return None
