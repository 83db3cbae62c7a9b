"""Sizes and times: read as people write them, and written as people read them."""

from __future__ import annotations

import pytest

from harness.quantities import duration, parse_bytes, parse_seconds, size


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("20 GiB", 20 * 1024**3), ("500MB", 500_000_000), ("1.5kib", 1536), ("7b", 7)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("90m", 5400), ("12 h", 43200), ("30d", 2592000)])
def test_times(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "GiB", "-1 GiB", "1 GiBs", "0", "1e9", "nan"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="20GiB"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["512 B", "1.66 GiB", "20.0 GiB", "999 MiB", "3.00 TiB"])
def test_a_size_that_was_written_is_read_again(text: str) -> None:
    assert size(parse_bytes(text)) == text


@pytest.mark.parametrize(("us", "text"), [(0, "0 µs"), (23.14, "23.1 µs"), (1280, "1.28 ms"), (2.05e6, "2.05 s")])
def test_a_duration_has_three_digits(us: float, text: str) -> None:
    assert duration(us) == text
