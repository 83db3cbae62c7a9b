"""JSON as tools write it when they forget to escape: for single events of a damaged trace.

Accepts, beside JSON, what kineto and its kin have been seen to write: raw control characters, backslashes of
paths, quotes inside of names, bare words where a value was unknown (`N/A`, `NaN`, `-inf`), trailing and
missing commas. A bare word that JSON does not know counts as no value at all.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

DEEPEST = 64

_SPACE = re.compile(r"[\s\x00]*")
_SEPARATOR = re.compile(r"[\s\x00,]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,}\]]|$)")
_WORD = re.compile(r"[^\s,}\]\[{\"]+(?: [^\s,}\]\[{\"]+)*")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
# A quote ends a string when what follows could not stand inside of one.
_KEY_ENDS = re.compile(r'"(?=\s*:)')
_MEMBER_ENDS = re.compile(r'"(?=\s*(?:,?\s*\}|,?\s*"[^"\\]{1,64}"\s*:))')
_ITEM_ENDS = re.compile(r'"(?=\s*(?:,?\s*\]|,\s*(?:["\[{\d-]|true|false|null)))')
_BACKSLASH = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Nothing:
    """A bare word in place of a value."""


def parse(text: str) -> tuple[dict[str, Any], int]:
    """The object at the start of `text`, and where it ends. Numbers that are not whole stay as they are
    written (`msgspec.Raw`). Raises ValueError where even leniency finds no object."""
    place = _after(_SPACE, text, 0)
    value, end = _value(text, place, _MEMBER_ENDS, 0)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value, end


def escaped(text: str) -> str:
    """The text with a second backslash for each that begins no escape."""
    return _BACKSLASH.sub(lambda found: found[0] if found[1] else "\\\\", text)


def _after(pattern: re.Pattern[str], text: str, place: int) -> int:
    found = pattern.match(text, place)
    return found.end() if found else place


def _value(text: str, place: int, ends: re.Pattern[str], depth: int) -> tuple[Any, int]:
    if depth > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST}")
    first = text[place : place + 1]
    if first == '"':
        return _string(text, place, ends)
    if first == "{":
        return _object(text, place + 1, depth + 1)
    if first == "[":
        return _list(text, place + 1, depth + 1)
    number = _NUMBER.match(text, place)
    if number:
        digits = number[0]
        whole = digits.lstrip("-").isdigit() and len(digits) < 40
        return int(digits) if whole else msgspec.Raw(digits.encode()), number.end()
    word = _WORD.match(text, place)
    if not word:
        raise ValueError("no value" if first else "the file ends within it")
    return _CONSTANTS.get(word[0], _Nothing), word.end()


def _object(text: str, place: int, depth: int) -> tuple[dict[str, Any], int]:
    result: dict[str, Any] = {}
    while True:
        place = _after(_SEPARATOR, text, place)
        if text[place : place + 1] == "}":
            return result, place + 1
        if text[place : place + 1] != '"':
            raise ValueError("no key" if text[place:] else "the file ends within it")
        key, place = _string(text, place, _KEY_ENDS)
        place = _after(_SPACE, text, place)
        if text[place : place + 1] != ":":
            raise ValueError("no colon")
        value, place = _value(text, _after(_SPACE, text, place + 1), _MEMBER_ENDS, depth)
        if value is not _Nothing:
            result[key] = value


def _list(text: str, place: int, depth: int) -> tuple[list[Any], int]:
    result: list[Any] = []
    while True:
        place = _after(_SEPARATOR, text, place)
        if text[place : place + 1] == "]":
            return result, place + 1
        value, place = _value(text, place, _ITEM_ENDS, depth)
        result.append(None if value is _Nothing else value)


def _string(text: str, place: int, ends: re.Pattern[str]) -> tuple[str, int]:
    strict = _STRING.match(text, place)
    if strict and ends.match(text, strict.end() - 1):
        return _unescaped(strict[1]), strict.end()
    end = ends.search(text, place + 1)
    if not end:
        raise ValueError("a string without an end")
    return _unescaped(text[place + 1 : end.start()]), end.end()


def _unescaped(body: str) -> str:
    if "\\" not in body:
        return body
    quoted = re.sub(r'(?<!\\)((?:\\\\)*)"', r"\1\\" + '"', escaped(body))
    value: str = json.loads(f'"{quoted}"', strict=False)
    return value.encode("utf-8", "replace").decode()  # half a surrogate pair is no text
