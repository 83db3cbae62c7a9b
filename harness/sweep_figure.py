"""A sweep over one number as a picture: ``harness runs --sweep --figure FILE``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.report.figure import point, svg
from harness.runs import Row


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write an SVG of the step's time, the host's and the device's, of every run with a window.

    Raises:
        UsageError: where the sweep does not vary one number, has no windows, or the file cannot be written.
    """
    key, values = _number_that_varies(rows)
    with_windows = [row for row in rows if row.windows]
    points = sorted((point(Path(row.path), values[row.id]) for row in with_windows), key=lambda one: one.size)
    if len(points) < 2:
        raise UsageError(f"--figure: {len(points)} runs of the sweep have windows; a picture needs two")
    title = f"Time of a step against {key}"
    try:
        path.write_text(svg(points, title, key), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--figure {path}: cannot be written: {error.strerror or error}") from error


def _number_that_varies(rows: Sequence[Row]) -> tuple[str, dict[str, float]]:
    """The key whose values differ from run to run, and its value in each run by the run's id."""
    overrides = {row.id: dict(_split(text) for text in row.overrides) for row in rows}
    keys = dict.fromkeys(key for found in overrides.values() for key in found)
    varying = [key for key in keys if len({found.get(key) for found in overrides.values()}) > 1]
    if len(varying) != 1:
        named = ", ".join(varying) or "nothing"
        raise UsageError(f"--figure: draws a sweep over one number, and this one varies {named}")
    try:
        values = {run: float(found[varying[0]]) for run, found in overrides.items()}
    except (KeyError, ValueError):
        raise UsageError(f"--figure: draws a sweep over one number, and {varying[0]} is none") from None
    if min(values.values()) <= 0:
        raise UsageError(f"--figure: {varying[0]} goes down to {min(values.values()):g}; its axis needs powers of two")
    return varying[0], values


def _split(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+~"), value
