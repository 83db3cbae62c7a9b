"""What SECURITY.md promises."""

from __future__ import annotations

import re

from tests.launch import ROOT


def test_every_promise_names_a_test_that_is_there() -> None:
    lines = (ROOT / "SECURITY.md").read_text().splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| promised")]
    assert len(rows) >= 10
    for row in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)`", row.rpartition(" | ")[2])
        assert tests, row
        assert all((ROOT / path).is_file() for path in tests), row
