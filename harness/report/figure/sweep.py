"""A sweep over one number as a picture: in TensorBoard, and by ``harness runs --sweep --figure FILE``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.logdir.rows import Row
from harness.report.figure.axes import Point, png, point, svg


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write an SVG of the step's time, the host's and the device's, of every run with a window.

    Raises:
        UsageError: where the sweep does not vary one number, has no windows, or the file cannot be written.
    """
    key, points = _points(rows)
    try:
        path.write_text(svg(points, f"Time of a step against {key}", key), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--figure {path}: cannot be written: {error.strerror or error}") from error


def to_tensorboard(rows: Sequence[Row], folder: Path) -> bool:
    """The same on TensorBoard's tab Images, in an event file of its own; False where there is nothing to draw.

    Args:
        folder: Becomes a run of TensorBoard's, which is the sweep's.
    """
    try:
        key, points = _points(rows)
    except UsageError:
        return False
    # Only the end of a sweep writes events without torch.
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    drawn = png(points, key)
    width, height = drawn.size
    image = Summary.Image(width=width, height=height, colorspace=3, encoded_image_string=drawn.document())
    summary = Summary(value=[Summary.Value(tag=f"sweep/step time against {key}", image=image)])
    writer = EventFileWriter(str(folder))
    writer.add_event(Event(wall_time=time.time(), step=0, summary=summary))
    writer.close()
    return True


def _points(rows: Sequence[Row]) -> tuple[str, list[Point]]:
    """What varies, and the newest window of every run that has one, in the order of its value.

    Raises:
        UsageError: where that is no number, or fewer than two runs have windows.
    """
    key, values = _number_that_varies(rows)
    with_windows = [row for row in rows if row.windows]
    points = sorted((point(Path(row.path), values[row.id]) for row in with_windows), key=lambda one: one.size)
    if len(points) < 2:
        raise UsageError(f"--figure: {len(points)} runs of the sweep have windows; a picture needs two")
    return key, points


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
