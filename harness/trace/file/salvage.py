"""What a damaged trace still holds: repaired as a whole where that is exact, else event by event.

Nothing is made up. An event that lacks its time or its phase, or of which the file holds only a part, is lost
and counted; a value that cannot be read is left out and counted. Whoever reads the findings is told both.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from harness.trace.file import lenient
from harness.trace.file.decode import (
    EVENTS_BEGIN,
    LIST_BEGINS,
    AllocatorArguments,
    Arguments,
    Decoders,
    Document,
    decode,
    decoders,
    header,
)

# Where the key of the list is damaged.
_PHASES_BEGIN = re.compile(rb'\[(?=\s*\{\s*"ph"\s*:)')
_EVENT_BEGINS = re.compile(rb'[\[,}]\s*(?=\{\s*"(?:ph|cat|name|pid|tid|ts|dur|id|s|bp|args)"\s*:)')
# The end of a whole file: of its list of events, and perhaps a few plain fields.
_FILE_ENDS = re.compile(rb"(?<=\})\s*(\]\s*(?:,[^\[\]]*\})?\s*\}?\s*)\Z")
_TIME = re.compile(r'"ts"\s*:')
_LONGEST_END = 4096
_BLOCK = 256
_ENCODINGS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))
_CONTROL = re.compile(rb"[\x01-\x08\x0b\x0c\x0e-\x1f]")
_BACKSLASH = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_WORD_FOR_NO_VALUE = re.compile(
    rb'"[^"\\]{1,64}"\s*:\s*(?:N/A|[-+]?(?:nan|inf|infinity)(?:\(ind\))?|None|undefined)\s*,', re.IGNORECASE
)


_IN_WORDS = {
    "`ts`": "no time (ts)",
    "$.ts": "a time (ts) that is no number",
    "`dur`": "no duration (dur)",
    "$.dur": "a duration (dur) that is no number",
    "`ph`": "no phase (ph)",
    "$.ph": "an unknown phase (ph)",
}


class Salvaged(NamedTuple):
    """A document of the events that could be read."""

    document: Document
    lost_events: int
    warnings: tuple[str, ...]


def salvage(data: bytes, chosen: Decoders | None = None) -> Salvaged | None:
    """The events of bytes that `decode` refused. None where not one can be read."""
    data, repairs = _repaired(data)
    chosen = chosen or decoders(data)
    if repairs:
        try:
            document = decode(data, chosen)
            return Salvaged(document._replace(batches=list(document.batches)), 0, repairs)
        except (msgspec.MsgspecError, RecursionError):
            pass
    return _event_by_event(data, repairs, chosen)


def _repaired(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Repairs that cannot change what is whole, and what they were."""
    done = []
    for mark, encoding in _ENCODINGS:
        if data.startswith(mark):
            data = data.decode(encoding, "replace").encode()
            done.append(f"the file is in {encoding.upper()} with a byte order mark, and was read as such")
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
        done.append("bytes that are not UTF-8 show as � in names")
    for pattern, replace, what in (
        (_CONTROL, lambda found: b"\\u%04x" % found[0][0], "raw control characters"),
        (_BACKSLASH, lambda found: found[0] if found[1] else b"\\\\", "backslashes that escape nothing"),
        (_WORD_FOR_NO_VALUE, lambda _: b"", "words such as N/A or NaN where a number belongs"),
    ):
        changed = pattern.sub(replace, data)
        if changed != data:
            data = changed
            done.append(f"{what} were repaired")
    return data, tuple(done)


def _event_by_event(data: bytes, repairs: tuple[str, ...], chosen: Decoders) -> Salvaged | None:
    begin = EVENTS_BEGIN.search(data) or _PHASES_BEGIN.search(data) or LIST_BEGINS.match(data)
    if begin is None:
        return None
    reader = _Reader(data, begin.end() - 1, chosen)
    batches = list(reader.batches())
    if not any(batches):
        return None
    fields: dict[str, Raw] = {}
    notes = [*repairs]
    before = data[: begin.start()].strip().rstrip(b",")
    if before:
        for fragment in (before + b"}", b'{"":[' + reader.rest) if reader.rest else (before + b"}",):
            found = _fields(fragment)
            if found is None:
                notes.append("a part of the file around its events could not be read: devices and ranks may lack")
            fields |= found or {}
    notes += reader.warnings()
    return Salvaged(Document(batches, header(fields)), reader.lost, tuple(notes))


def _fields(fragment: bytes) -> dict[str, Raw] | None:
    try:
        return msgspec.json.decode(fragment, type=dict[str, Raw])
    except (msgspec.MsgspecError, RecursionError):
        pass
    try:
        parsed, _ = lenient.parse(fragment.decode("utf-8", "replace"))
        return {name: Raw(msgspec.json.encode(value)) for name, value in parsed.items()}
    except ValueError:
        return None


class _Reader:
    """Reads the events of a list, each by itself where a block of them cannot be read at once."""

    def __init__(self, data: bytes, first: int, chosen: Decoders) -> None:
        self.lost = 0
        end = _FILE_ENDS.search(data, max(len(data) - _LONGEST_END, first))
        self.rest = end[1] if end is not None else b""
        """What follows the last event: `]` and the end of the header. Empty where the file is cut off."""
        self._data = data
        self._decoders = chosen
        self._begins = [found.end() for found in _EVENT_BEGINS.finditer(data, first)]
        self._reasons: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._repaired = 0
        self._stray = 0
        self._first_lost = -1

    def batches(self) -> Iterator[list[Any]]:
        edges = [*self._begins, len(self._data)]
        for low in range(0, len(self._begins), _BLOCK):
            high = min(low + _BLOCK, len(self._begins))
            block = self._block(edges[low], edges[high]) if high < len(self._begins) else None
            if block is None or len(block) != high - low:
                each = itertools.pairwise(edges[low : high + 1])
                block = [event for begin, end in each if (event := self._one(begin, end)) is not None]
            yield block

    def warnings(self) -> list[str]:
        found = []
        if self.lost:
            reasons = ", ".join(f"{reason} ({count})" for reason, count in self._reasons.most_common(3))
            found.append(
                f"{self.lost} of {len(self._begins)} events could not be read and are in no number: {reasons}; "
                f"the first at byte {self._first_lost}"
            )
        if not self.rest:
            found.append(
                "the file ends before its last event: how much is missing cannot be told, and sums are too low"
            )
        if self._repaired:
            found.append(f"{self._repaired} events were badly escaped and have been repaired")
        if self._dropped:
            which = ", ".join(f"{name} ({count})" for name, count in self._dropped.most_common(3))
            found.append(f"values that are not what they should be count as missing: {which}")
        if self._stray:
            found.append(f"{self._stray} bytes between events belong to none and were passed over")
        return found

    def _block(self, begin: int, end: int) -> list[Any] | None:
        block = b"[" + self._data[begin:end].rstrip(b", \t\r\n[") + b"]"
        for decoder in (self._decoders.events, self._decoders.loose_events):
            try:
                return decoder.decode(block)
            except (msgspec.MsgspecError, RecursionError):
                pass
        return None

    def _one(self, begin: int, end: int) -> Any:
        last = end == len(self._data)
        piece = self._data[begin:end].rstrip(b", \t\r\n")
        if not last:
            for decoder in (self._decoders.event, self._decoders.loose_event):
                try:
                    return decoder.decode(piece)
                except (msgspec.MsgspecError, RecursionError):
                    pass
        try:
            text = piece.decode("utf-8", "replace")
            parsed, length = lenient.parse(text)
            rest = text[length:].strip(", \t\r\n\0")
            if last:
                self.rest = rest.encode() if rest.startswith("]") else self.rest
            else:
                for _ in _TIME.finditer(rest):
                    self._lose(begin + length, "its start is damaged")
                self._stray += len(rest)
                self._repaired += 1
            return self._typed(parsed)
        except (ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            self._lose(begin, str(error))
            return None

    def _lose(self, begin: int, reason: str) -> None:
        if not self.lost:
            self._first_lost = begin
        self.lost += 1
        self._reasons[next((words for sign, words in _IN_WORDS.items() if sign in reason), reason[:60])] += 1

    def _typed(self, parsed: dict[str, Any]) -> Any:
        """The event, without what is not of its type. Raises msgspec.ValidationError where that is its phase
        or its time."""
        try:
            return self._decoders.loose_event.decode(msgspec.json.encode(parsed))
        except msgspec.ValidationError:
            pass
        kind = AllocatorArguments if parsed.get("ph") == "i" else Arguments
        arguments = parsed.pop("args", None)
        if isinstance(arguments, dict):
            fields = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
            parsed["args"] = {key: value for key, value in arguments.items() if self._fits(key, value, fields.get(key))}
        for name, expected in (("name", str), ("cat", str), ("pid", int | str), ("tid", int | str)):
            if name in parsed and not self._fits(name, parsed[name], expected):
                del parsed[name]
        return self._decoders.loose_event.decode(msgspec.json.encode(parsed))

    def _fits(self, name: str, value: Any, expected: Any) -> bool:
        if expected is None or expected is Raw:
            return expected is not None
        try:
            msgspec.json.decode(msgspec.json.encode(value), type=expected, strict=False)
        except msgspec.ValidationError:
            self._dropped[name] += 1
            return False
        return True
