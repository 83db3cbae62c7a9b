"""Damaged and odd files, made from a good one. Run as a program it writes them all into a folder, to be looked
at or fed to another reader: `python -m tests.trace.corpus FOLDER`.

Each case says what should come of reading it: the same findings as from the good file, an error, or a report
with a known number of lost events.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

GOOD = Path(__file__).parents[1] / "traces" / "matmul_64.pt.trace.json.gz"
SAME = "same findings"
SAME_WITHOUT_HEADER = "same findings, but for what the header says of the devices"
SOME = "some events lost"
ERROR = "error"

Event = dict[str, Any]


class Case(NamedTuple):
    """One file and what should come of it."""

    name: str
    data: bytes
    outcome: str | int
    """One of the words above, or how many events are lost."""
    says: str
    """Part of the error, or of a warning; empty where there need be none."""


def cases() -> list[Case]:
    """All of them; several minutes of other people's bad luck."""
    text = gzip.decompress(GOOD.read_bytes())
    return [*_bytes(text), *_compressed(text), *_no_trace(), *_values(text), *_events(text)]


def _bytes(text: bytes) -> list[Case]:
    """Text that is no JSON any more."""
    operator = b'"name": "aten::mm"'
    assert operator in text
    starts = [found.start() for found in re.finditer(rb'\{\s*"ph"', text)]
    middle = starts[len(starts) // 2]

    def named(name: bytes) -> bytes:
        return text.replace(operator, b'"name": "' + name + b'"')

    events = text[text.index(b'"traceEvents": [') + len(b'"traceEvents": ') : text.rindex(b"]") + 1]
    return [
        Case("control_character", named(b"aten::mm\x01"), 0, "control"),
        Case("newline_in_a_name", named(b"aten::\nmm"), 0, "badly escaped"),
        Case("tab_in_a_name", named(b"aten::\tmm"), 0, "badly escaped"),
        Case("backslashes_of_a_path", named(rb"C:\dir\mm.py"), 0, "backslashes"),
        Case("backslash_before_the_closing_quote", named(b"C:\\dir\\"), 0, ""),
        Case("quotes_in_a_name", named(b'f<"a", 3>("b": 1)'), 0, "badly escaped"),
        Case("half_a_surrogate_pair", named(rb"\ud800"), 0, "badly escaped"),
        Case("not_utf8", named(b"aten::\xff\xfemm"), 0, "UTF-8"),
        Case("utf8_byte_order_mark", b"\xef\xbb\xbf" + text, SAME, "byte order mark"),
        Case("utf16", text.decode().encode("utf-16"), SAME, "byte order mark"),
        Case(
            "nan_in_an_argument", text.replace(b'"blocks per SM": ', b'"other": NaN, "blocks per SM": ', 1), SAME, "NaN"
        ),
        Case("infinity_in_an_argument", text.replace(b'"args": {', b'"args": {"x": -Infinity, ', 5), SAME, "NaN"),
        Case("bare_n_a", text.replace(b'"args": {', b'"args": {"x": N/A, ', 5), SAME, "N/A"),
        Case("bare_n_a_last", text.replace(b'"traceName"', b'"x": N/A,\n  "traceName"', 1), SAME, "N/A"),
        Case("nan_in_a_list", text.replace(b'"args": {', b'"args": {"x": [1, NaN], ', 1), SAME, "repaired"),
        Case("trailing_comma_in_arguments", re.sub(rb"\n    \}\n  \}", rb",\n    }\n  }", text), SAME, "repaired"),
        Case("trailing_comma_after_the_events", re.sub(rb"\}\s*\],", b"},\n],", text), SAME, ""),
        Case("missing_comma_between_events", text[:middle].rstrip(b", \n") + text[middle:], SAME, ""),
        Case("no_commas_in_an_event", text[:middle] + text[middle:].replace(b",", b" ", 3), SAME, "repaired"),
        Case("garbage_between_events", text[:middle] + b"\x00\x00##garbage##," + text[middle:], SAME, "belong to none"),
        Case("bytes_after_the_end", text + b"\n\0\0\0 and more", SAME, ""),
        Case("windows_line_ends", text.replace(b"\n", b"\r\n"), SAME, ""),
        Case("bare_list", events, SAME_WITHOUT_HEADER, ""),
        Case("bare_list_without_an_end", events.rstrip(b"]\n ") + b",", SAME_WITHOUT_HEADER, "ends before"),
        Case("key_of_the_events_damaged", text.replace(b'"traceEvents"', b'"trac\x00Events"'), 0, ""),
        Case("event_overwritten", text[:middle] + b"\xff" * 40 + text[middle + 40 :], 1, "could not be read"),
        Case("cut_within_an_event", text[: middle + 60], 1, "ends before"),
        Case("cut_between_events", text[:middle], 0, "ends before"),
        Case("cut_after_the_last_event", text[: text.rindex(b"]")], SAME, "ends before"),
        Case("cut_within_the_first_event", text[: starts[0] + 20], ERROR, "no event that can be read"),
        Case("cut_within_the_header", text[:100], ERROR, "no event that can be read"),
        Case("an_event_of_nested_brackets", _inserted(text, middle, b'{"ph": "X", "x": ' + b"[" * 10**6), 1, ""),
        Case("event_without_phase", _inserted(text, middle, b'{"name": "a", "ts": 1}'), 1, "no phase"),
        Case("event_of_an_unknown_phase", _inserted(text, middle, b'{"ph": "?", "ts": 1}'), 1, "unknown phase"),
    ]


def _inserted(text: bytes, place: int, event: bytes) -> bytes:
    return text[:place] + event + b",\n  " + text[place:]


def _compressed(text: bytes) -> list[Case]:
    """Text that is whole in a gzip file that is not."""
    whole = gzip.compress(text, mtime=0)
    half = len(text) // 2
    first, second = gzip.compress(text[:half], mtime=0), gzip.compress(text[half:], mtime=0)
    wrong = bytearray(whole)
    wrong[-8] ^= 0xFF
    broken = bytearray(whole)
    broken[len(whole) // 2 :] = random.Random(0).randbytes(len(whole) - len(whole) // 2)
    return [
        Case("gzip_cut.gz", whole[: len(whole) // 2], 1, "cut off"),
        Case("gzip_without_its_last_byte.gz", whole[:-1], SAME, "cut off"),
        Case("gzip_header_alone.gz", whole[:12], ERROR, ""),
        Case("gzip_wrong_checksum.gz", bytes(wrong), SAME, "checksum"),
        Case("gzip_broken_in_the_middle.gz", bytes(broken), SOME, "damaged"),
        Case("gzip_two_members.gz", first + second, SAME, ""),
        Case("gzip_second_member_cut.gz", first + second[: len(second) // 2], 1, "cut off"),
        Case("gzip_padded_with_zeros.gz", whole + bytes(1000), SAME, ""),
        Case("gzip_under_another_name.json", whole, SAME, ""),
        Case("gzip_twice.gz", gzip.compress(whole, mtime=0), ERROR, "compressed twice"),
        Case("gzip_of_nothing.gz", gzip.compress(b"", mtime=0), ERROR, "white space"),
        Case("bomb_of_zeros.gz", bomb(b"\0", 2**30), ERROR, "limit"),
        Case("bomb_of_spaces_in_a_list.gz", bomb(b" ", 2**30, start=b'{"traceEvents": ['), ERROR, "limit"),
        Case("bomb_that_lies_about_its_size.gz", bomb(b" ", 2**30)[:-4] + b"\0\1\0\0", ERROR, "limit"),
        Case("bomb_of_two_members.gz", bomb(b" ", 2**29) + bomb(b" ", 2**29), ERROR, "limit"),
    ]


def bomb(filling: bytes, size: int, start: bytes = b"") -> bytes:
    """A gzip file of a thousandth of `size`: one compressed mebibyte, over and over. Its checksum is wrong,
    which nobody who stops in time will know."""
    compressor = zlib.compressobj(9, wbits=-15)
    first = compressor.compress(start) + compressor.flush(zlib.Z_FULL_FLUSH)
    again = compressor.compress(filling * 2**20) + compressor.flush(zlib.Z_FULL_FLUSH)
    header, trailer = gzip.compress(b"", mtime=0)[:10], bytes(4) + (len(start) + size).to_bytes(4, "little")
    return header + first + again * (size // 2**20) + compressor.flush() + trailer


def _no_trace() -> list[Case]:
    return [
        Case("empty", b"", ERROR, "is empty"),
        Case("white_space", b" \n\t\n", ERROR, "white space"),
        Case("text", b"no trace here\n", ERROR, "text"),
        Case("html", b"<!doctype html><html></html>", ERROR, "HTML"),
        Case("binary", bytes(range(256)), ERROR, "binary"),
        Case("zip_archive", b"PK\x03\x04" + bytes(100), ERROR, "zip"),
        Case("pickle", b"\x80\x05\x95" + bytes(100), ERROR, "pickle"),
        Case("json_of_something_else", b'{"a": 1, "b": [2]}', ERROR, "without traceEvents (it has a, b)"),
        Case("json_number", b"42", ERROR, "no JSON"),
        Case("json_list_of_something_else", b'[{"a": 1}, {"b": 2}]', ERROR, "something else"),
        Case("trace_events_that_are_none", b'{"traceEvents": 3}', ERROR, "no event that can be read"),
        Case("trace_events_null", b'{"traceEvents": null}', ERROR, "no event that can be read"),
        Case("ten_million_brackets", b"[" * 10**7, ERROR, "no event that can be read"),
        Case("ten_million_brackets_as_events", b'{"traceEvents": ' + b"[" * 10**7, ERROR, "no event"),
        Case("a_million_objects", b'{"a":' * 10**6, ERROR, "no event that can be read"),
    ]


def _values(text: bytes) -> list[Case]:
    """Valid JSON with values that are not what they should be."""

    def each(change: Callable[[Event], Any], *, of: str = "") -> bytes:
        document = json.loads(text)
        for event in document["traceEvents"]:
            if event["ph"] == "X" and (not of or event.get("cat") == of):
                change(event)
        return json.dumps(document).encode()

    def first(change: Callable[[Event], Any], of: str = "kernel") -> bytes:
        document = json.loads(text)
        change(next(event for event in document["traceEvents"] if event.get("cat") == of))
        return json.dumps(document).encode()

    kernels = text.count(b'"cat": "kernel"')
    return [
        Case("compact_json", json.dumps(json.loads(text), separators=(",", ":")).encode(), SAME, ""),
        Case("indented_json", json.dumps(json.loads(text), indent=4).encode(), SAME, ""),
        Case("keys_in_another_order", each(lambda e: e.update(ph=e.pop("ph"))), SAME, ""),
        Case("strings_as_times", each(lambda e: e.update(ts=str(e["ts"]), dur=str(e["dur"]))), SAME, ""),
        Case("strings_as_ids", each(lambda e: e["args"].update(_as_strings(e["args"]))), SAME, ""),
        Case("words_as_times", first(lambda e: e.update(ts="yesterday")), 1, "no number"),
        Case("null_as_time", first(lambda e: e.update(ts=None)), 1, "no number"),
        Case("no_time", first(lambda e: e.pop("ts")), 1, "no time"),
        Case("no_duration", first(lambda e: e.pop("dur")), 1, "no duration"),
        Case("enormous_time", first(lambda e: e.update(ts=1e300)), 1, "no time in the window"),
        Case("time_of_another_century", first(lambda e: e.update(ts=-4e15)), 1, "no time in the window"),
        Case("enormous_duration", first(lambda e: e.update(dur=1e18)), 1, "no time in the window"),
        Case("kernels_at_zero", each(lambda e: e.update(ts=0), of="kernel"), kernels, "no time in the window"),
        Case("negative_duration", first(lambda e: e.update(dur=-5.0)), 0, "negative duration"),
        Case("correlation_over_64_bits", first(lambda e: e["args"].update(correlation=10**30)), 0, ""),
        Case("correlation_of_all_ones", first(lambda e: e["args"].update(correlation=2**64 - 1)), 0, ""),
        Case("correlation_that_is_text", first(lambda e: e["args"].update(correlation="none")), 0, "correlation (1)"),
        Case("bytes_over_64_bits", first(lambda e: e["args"].update(bytes=10**30)), SAME, ""),
        Case("stream_of_thirty_digits", first(lambda e: e["args"].update(stream="9" * 30)), 0, ""),
        Case("shapes_that_are_none", each(lambda e: e["args"].update({"Input Dims": None}), of="cpu_op"), 0, ""),
        Case("shapes_of_text", each(lambda e: e["args"].update({"Input Dims": ["a", {}]}), of="cpu_op"), 0, ""),
        Case("shapes_beyond_all", each(lambda e: e["args"].update({"Input Dims": [[10**30]]}), of="cpu_op"), 0, ""),
        Case("arguments_that_are_a_list", first(lambda e: e.update(args=[1])), 0, ""),
        Case("name_that_is_a_number", first(lambda e: e.update(name=7)), 0, "name (1)"),
        Case(
            "header_of_numbers",
            text.replace(b'"schemaVersion": 1', b'"harness": 3, "distributedInfo": 4'),
            SAME,
            "harness",
        ),
    ]


def _as_strings(arguments: Event) -> Event:
    return {key: str(arguments[key]) for key in ("correlation", "External id") if key in arguments}


def _events(text: bytes) -> list[Case]:
    """Valid events that do not fit together."""

    def with_events(change: Callable[[list[Event]], list[Event]]) -> bytes:
        document = json.loads(text)
        document["traceEvents"] = change(document["traceEvents"])
        return json.dumps(document).encode()

    def without(key: str, *categories: str) -> bytes:
        def drop(events: list[Event]) -> list[Event]:
            for event in events:
                if event.get("cat") in categories:
                    event["args"].pop(key, None)
            return events

        return with_events(drop)

    def of(events: list[Event], category: str) -> list[Event]:
        return [event for event in events if event.get("cat") == category]

    def shuffled(events: list[Event]) -> list[Event]:
        random.Random(0).shuffle(events)
        return events

    def spread(events: list[Event]) -> list[Event]:
        for i in range(500):
            events += [
                e | {"args": e["args"] | {"stream": 100 + i, "correlation": -1}} for e in of(events, "kernel")[:1]
            ]
        return events

    def on_devices(events: list[Event]) -> list[Event]:
        for i, event in enumerate(of(events, "kernel")):
            event["args"]["device"] = event["pid"] = i % 4
        return events

    def crossing(events: list[Event]) -> list[Event]:
        for operator in of(events, "cpu_op"):
            half = operator | {"ts": operator["ts"] + operator["dur"] / 2, "name": "crossing", "args": {}}
            events.append(half)
        return events

    def doubled(events: list[Event]) -> list[Event]:
        launch = next(e for e in of(events, "cuda_runtime") if "Launch" in e["name"])
        return [*events, launch | {"ts": launch["ts"] + 0.5}]

    def uncategorised(events: list[Event]) -> list[Event]:
        return [*events, {k: v for k, v in of(events, "cpu_op")[0].items() if k != "cat"}]

    def kept(*categories: str) -> bytes:
        return with_events(lambda events: [e for e in events if e.get("cat") not in categories])

    return [
        Case("shuffled", with_events(shuffled), SAME, ""),
        Case("reversed", with_events(lambda events: events[::-1]), SAME, ""),
        Case("no_events", with_events(lambda events: []), 0, "no complete event"),
        Case("no_kernels", kept("kernel", "gpu_memcpy", "gpu_memset"), 0, ""),
        Case("no_launches", kept("cuda_runtime", "cuda_driver"), 0, ""),
        Case("no_operators", kept("cpu_op"), 0, ""),
        Case("kernels_alone", kept("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver"), 0, ""),
        Case("no_correlation", without("correlation", "kernel", "gpu_memcpy", "cuda_runtime"), 0, ""),
        Case("no_external_ids", without("External id", "cpu_op", "cuda_runtime", "kernel"), 0, ""),
        Case("launch_twice", with_events(doubled), 0, "correlation"),
        Case("hundreds_of_streams", with_events(spread), 0, ""),
        Case("several_devices", with_events(on_devices), 0, ""),
        Case("crossing_slices", with_events(crossing), 0, ""),
        Case("span_without_category", with_events(uncategorised), 0, "no category"),
    ]


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for case in cases():
        (folder / case.name).write_bytes(case.data)


if __name__ == "__main__":
    main()
