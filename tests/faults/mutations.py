"""What may become of a file: cut, changed in a bit, rewritten by another program, or replaced by what is no
file. All of it drawn, so that a seed says which."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 100_000
"""How deep brackets nest; no parser may descend so far on the C stack."""
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 7.5, 2**31, 2**63, 2**64, -(2**70), 10**30, 1e308, -1e-300, "", "0", "-1", "\0"),
    *("x" * 10_000, "9" * 5000, "NaN", "../../etc/passwd", "/", "\udcff", "\u202e", "<script>", [], {}, [[]], {"": 0}),
    *([None] * 1000, {"a": {"a": {"a": 1}}}, ["a", 1, None], [1.5, 2.5]),
)
TOKENS = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b"9" * 400,
    b"-",
    b"null",
    b"[",
    b"{",
    b'"',
    b"\\",
    b"\xff",
    b"\0",
    b",",
    b":",
)

Draw = random.Random


def cut(data: bytes, draw: Draw) -> bytes:
    return data[: draw.randrange(len(data) or 1)]


def emptied(data: bytes, draw: Draw) -> bytes:
    return draw.choice((b"", b"\n", b"\0" * 4096, b"\0" * len(data)))


def flipped(data: bytes, draw: Draw) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def inserted(data: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(data) + 1)
    return data[:place] + draw.choice((draw.randbytes(draw.choice((1, 3, 100))), *TOKENS)) + data[place:]


def left_out(data: bytes, draw: Draw) -> bytes:
    place = draw.randrange(len(data) or 1)
    return data[:place] + data[place + draw.choice((1, 7, 100, 5000)) :]


def repeated(data: bytes, draw: Draw) -> bytes:
    place, length = draw.randrange(len(data) or 1), draw.choice((1, 10, 1000))
    return data[:place] + data[place : place + length] * draw.choice((2, 3, 50)) + data[place + length :]


def overwritten(data: bytes, draw: Draw) -> bytes:
    place, length = draw.randrange(len(data) or 1), draw.choice((1, 16, 4096))
    return data[:place] + draw.randbytes(length) + data[place + length :]


def of_another_kind(data: bytes, draw: Draw) -> bytes:
    starts = (
        b"PK\x03\x04",
        b"\x80\x04",
        b"\x1f\x8b\x08",
        b"<html>",
        b"SQLite format 3\0",
        b"%YAML 1.1\n---\n",
        b"42",
        b"[]",
    )
    return draw.choice(starts) + data[: draw.choice((0, 100, len(data)))]


BYTES: tuple[Callable[[bytes, Draw], bytes], ...] = (
    *(cut, emptied, flipped, inserted, left_out, repeated, overwritten, of_another_kind),
)


def another_encoding(data: bytes, draw: Draw) -> bytes:
    text = data.decode(errors="replace")
    return draw.choice(
        (
            text.encode("utf-16"),
            b"\xef\xbb\xbf" + data,
            text.encode("utf-32"),
            text.encode("utf-8", "replace") + b"\xff",
        )
    )


def another_number(data: bytes, draw: Draw) -> bytes:
    found = list(re.finditer(rb"(?<![\w.])-?\d[\d.]*", data))
    if not found:
        return cut(data, draw)
    number = draw.choice(found)
    huge = (
        b"9" * 20,
        b"9" * 5000,
        b"1e999",
        b"-1",
        b"0",
        b"1e308",
        b"NaN",
        b"0x10",
        b"1_000",
        b"00",
        b"-0.0",
        b"1e-320",
    )
    return data[: number.start()] + draw.choice(huge) + data[number.end() :]


def nested(data: bytes, draw: Draw) -> bytes:
    found = list(re.finditer(rb":\s*", data))
    place = draw.choice(found).end() if found else 0
    opening, closing = draw.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"[", b"")))
    depth = draw.choice((500, 5000, DEEP))
    return data[:place] + opening * depth + b"1" + closing * depth + b"," + data[place:]


def key_twice(data: bytes, draw: Draw) -> bytes:
    found = list(re.finditer(rb'"(\w+)"\s*:', data))
    if not found:
        return repeated(data, draw)
    key = draw.choice(found)
    value = json.dumps(draw.choice(ODD)).encode()
    return data[: key.start()] + b'"' + key[1] + b'": ' + value + b", " + data[key.start() :]


def another_value(data: bytes, draw: Draw) -> bytes:
    document = json.loads(data)
    for _ in range(draw.choice((1, 1, 2, 5))):
        document = changed_value(document, draw, [*ODD, {}])
    return json.dumps(document).encode()


def changed_value(document: Any, draw: Draw, odd: list[Any]) -> Any:
    """A document with one value in another's place, without one, or with one more."""
    holder, key = _somewhere(document, draw)
    if holder is None:
        return draw.choice(odd)
    what = draw.random()
    if what < 0.7:
        holder[key] = draw.choice(odd)
    elif what < 0.85:
        del holder[key]
    elif isinstance(holder, dict):
        holder[draw.choice(("", "extra", "version", "__class__", "_target_"))] = draw.choice(odd)
    else:
        holder.insert(key, draw.choice(odd))
    return document


def _somewhere(document: Any, draw: Draw) -> tuple[Any, Any]:
    """A container and one of its keys, each depth as likely as the next; None where the document holds nothing."""
    found: list[list[tuple[Any, Any]]] = []

    def walk(value: Any, depth: int) -> None:
        keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
        if keys and len(found) <= depth:
            found.append([])
        for key in keys:
            found[depth].append((value, key))
            walk(value[key], depth + 1)

    walk(document, 0)
    return draw.choice(draw.choice(found)) if found else (None, None)


JSON = (*BYTES, another_encoding, another_number, nested, key_twice, *[another_value] * 6)


def of_text(data: bytes, draw: Draw) -> bytes:
    """Of a JSON file."""
    return draw.choice(JSON)(data, draw)


def of_bytes(data: bytes, draw: Draw) -> bytes:
    """Of any file."""
    return draw.choice(BYTES)(data, draw)


def of_gzip(data: bytes, draw: Draw) -> bytes:
    """Of a compressed JSON file: what is in it, or what is around it."""
    if draw.random() < 0.5:
        return of_bytes(data, draw)
    return gzip.compress(of_text(gzip.decompress(data), draw), 1)


def of_lines(data: bytes, draw: Draw) -> bytes:
    """Of a YAML file."""
    tags = (
        *(
            b"- !!python/object/apply:os.mkdir [%s]\n",
            b"- !!python/name:os.system\n",
            b"- *a\n",
            b"&a [*a]\n",
            b"? [\n",
        ),
        *(
            b"a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n",
            b"- ${oc.env:HOME}\n",
            b"- {a: 1}\n",
            b"- 1\n",
            b"a: 1\n",
            b"text\n",
        ),
        *(b"- resume=elsewhere\n", b"- -m\n", b"- --config-dir=/\n", b"- \n", b"- ''\n", b"- " + b"[" * DEEP + b"\n"),
    )
    if draw.random() < 0.5:
        return of_bytes(data, draw)
    tag = draw.choice(tags)
    return tag if draw.random() < 0.5 else data + tag


def misplaced(path: Path, draw: Draw) -> str:
    """Put what is no file in a file's place."""
    what = draw.choice(("folder", "pipe", "loop of links", "link to nothing", "device", "folder of itself"))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "loop of links":
        path.symlink_to(path.name)
    elif what == "link to nothing":
        path.symlink_to("nothing")
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "folder of itself":
        path.symlink_to(".")
    return what
