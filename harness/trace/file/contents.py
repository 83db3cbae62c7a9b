"""A trace file's JSON, decompressed within bounds; and, for what is no trace, what it is instead."""

from __future__ import annotations

import errno
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from isal import isal_zlib

from harness.trace.errors import TraceError
from harness.trace.file.opening import NotRegularError, read_regular

MAX_JSON_BYTES = 4 * 2**30
"""Ten million events; a file that decompresses to more is refused before it takes the memory."""

_GZIP = 31  # zlib: a gzip header and the largest window
_GZIP_MAGIC = b"\x1f\x8b"
_DEFLATE_MOST = 1032  # to 1: no deflate stream expands further
_PIECE = 1 << 16
_WHAT_TO_GIVE = "give the .json or .json.gz that torch.profiler exported"
_WHY_NOT = {
    "a pipe": ", which can be read only once: write it to a file first",
    "a socket": ", which cannot be read",
}
_KNOWN_STARTS = {
    b"PK\x03\x04": "a zip archive: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd: decompress it first",
    b"BZh": "compressed with bzip2: decompress it first",
    b"\xfd7zXZ": "compressed with xz: decompress it first",
    _GZIP_MAGIC: "compressed twice: decompress it once",
    b"\x80": "a pickle, perhaps a memory snapshot",
    b"SQLite format 3": "an SQLite database, perhaps an export of Nsight Systems",
    b"<": "HTML or XML",
}


class Contents(NamedTuple):
    """What a file holds."""

    json: bytes
    file_bytes: int
    damage: tuple[str, ...] = ()
    """What was wrong with the compression, for the report's warnings."""


def contents(path: Path, max_json_bytes: int = MAX_JSON_BYTES) -> Contents:
    """The JSON of a trace file, plain or gzip-compressed, whole or as far as damaged compression lets it be
    read.

    Raises TraceError when the path is no regular file, cannot be opened, is empty, or holds more than
    `max_json_bytes` of JSON; the last before taking more memory than that.
    """
    raw = _file_bytes(path, max_json_bytes)
    if not raw:
        raise TraceError(path, "is empty: its export was cut off, or the disk was full")
    if raw[:2] != _GZIP_MAGIC:
        return Contents(raw, len(raw))
    try:
        return Contents(_decompressed(raw, path, max_json_bytes), len(raw))
    except (EOFError, isal_zlib.error):  # type: ignore[misc]  # a class, whatever isal's stub says
        data, damage = _what_decompresses(raw, path, max_json_bytes)
        return Contents(data, len(raw), (damage,))


def _file_bytes(path: Path, limit: int) -> bytes:
    try:
        return read_regular(path, limit)
    except NotRegularError as error:
        raise TraceError(path, f"is {error.what}{_WHY_NOT.get(error.what, '')}; {_WHAT_TO_GIVE}") from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise _too_large(path, limit) from error
        raise TraceError(path, f"cannot be read: {error.strerror or error}") from error


def _too_large(path: Path, limit: int) -> TraceError:
    return TraceError(
        path,
        f"holds more than {limit:,} bytes of JSON, the limit (max_json_bytes): record fewer steps in a window, "
        "or raise the limit if the file is to be trusted",
    )


def _decompressed(raw: bytes, path: Path, limit: int) -> bytes:
    """All members of a gzip file. Raises EOFError or isal's error where it is damaged.

    One call a member, which is half as fast again as piece by piece, for as many bytes as the file's own last
    word says it holds; where it holds more, or may hold more than the limit, it is counted first.
    """
    promised = int.from_bytes(raw[-4:], "little")
    if len(raw) * _DEFLATE_MOST > limit:
        if promised > limit:
            raise _too_large(path, limit)
        member = isal_zlib.decompressobj(wbits=_GZIP)
        data: bytes = member.decompress(raw, promised + 1)
        if member.eof and not member.unused_data:
            return data
        del data
        _count(raw, path, limit)
    members = []
    while raw[:2] == _GZIP_MAGIC:
        member = isal_zlib.decompressobj(wbits=_GZIP)
        members.append(member.decompress(raw))
        if not member.eof:
            raise EOFError
        raw = member.unused_data
    return members[0] if len(members) == 1 else b"".join(members)


def _count(raw: bytes, path: Path, limit: int) -> None:
    """Decompresses into nothing, to know that it fits."""
    total = 0
    while raw[:2] == _GZIP_MAGIC:
        member = zlib.decompressobj(_GZIP)
        while not member.eof:
            piece = member.decompress(raw, _PIECE)
            raw = member.unconsumed_tail or member.unused_data
            total += len(piece)
            if total > limit:
                raise _too_large(path, limit)
            if not piece and not member.eof:
                raise EOFError


def _what_decompresses(raw: bytes, path: Path, limit: int) -> tuple[bytes, str]:
    """What a damaged gzip file still gives, to the last byte, and what is wrong with it."""
    pieces, total, damage = [], 0, ""
    while raw[:2] == _GZIP_MAGIC and not damage:
        member = zlib.decompressobj(_GZIP)
        place = 0
        while not member.eof and not damage:
            if place >= len(raw):
                damage = "the gzip data ends early: the file was cut off"
                break
            step = raw[place : place + _PIECE]
            before = member.copy()
            try:
                found = member.decompress(step)
            except zlib.error as error:
                found, damage = _until_it_breaks(before, step), _damage(error)
            place += len(step)
            pieces.append(found)
            total += len(found)
            if total > limit:
                raise _too_large(path, limit)
        raw = member.unused_data
    return b"".join(pieces), damage


def _until_it_breaks(member: zlib._Decompress, step: bytes) -> bytes:
    found = bytearray()
    with suppress(zlib.error):
        for place in range(len(step)):
            found += member.decompress(step[place : place + 1])
    return bytes(found)


def _damage(error: zlib.error) -> str:
    if "data check" in str(error) or "length check" in str(error):
        return "the gzip checksum does not fit: some bytes of the file are wrong, so any number may be"
    return "the gzip data is damaged: what follows the damage is lost"


def what_it_is(data: bytes) -> str:
    """In words, what holds no event of a trace, and what to do."""
    start = data[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if not data.strip():
        return f"holds nothing but white space; {_WHAT_TO_GIVE}"
    for magic, name in _KNOWN_STARTS.items():
        if start.startswith(magic):
            return f"is no trace but {name}; {_WHAT_TO_GIVE}"
    if start[:1] not in (b"{", b"["):
        kind = "text" if _is_text(data[:4096]) else "binary"
        return f"is no trace but {kind} that is no JSON; {_WHAT_TO_GIVE}"
    try:
        keys = list(msgspec.json.decode(data, type=dict[str, msgspec.Raw]))
    except (msgspec.MsgspecError, RecursionError):
        keys = []
    if keys and "traceEvents" not in keys:
        named = ", ".join(key[:40] for key in keys[:4]) + (", ..." if len(keys) > 4 else "")
        return f"is JSON without traceEvents (it has {named}), so no trace; {_WHAT_TO_GIVE}"
    return f"holds no event that can be read: it is JSON of something else, or damaged from its start; {_WHAT_TO_GIVE}"


def _is_text(data: bytes) -> bool:
    return not any(byte < 9 or 13 < byte < 32 for byte in data)
