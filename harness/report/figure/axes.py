"""A sweep over one number as a picture: time of a step against it, and where the verdict changes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.errors import UsageError
from harness.logdir.find import find
from harness.logdir.scan import Run
from harness.logdir.window import Window
from harness.report.figure.canvas import Canvas, Png, Svg
from harness.report.units import duration
from harness.trace import WindowReport
from harness.trace.figures import step_us

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 175, 25, 45
HOST, DEVICE, STEP = "#c2410c", "#15803d", "#475569"


class Point(NamedTuple):
    """One window of the sweep; microseconds a step, medians over the window."""

    size: float
    """The number that the sweep varies."""
    host_us: float
    """The host's span: the time to enqueue the step."""
    device_us: float
    """The device's busy time for what the step launched; 0 without one."""
    step_us: float
    """Without the profiler where that is known."""
    report: WindowReport


def point(path: Path, size: float, step_ms: float | None = None) -> Point:
    """The newest window that ``path`` stands for.

    Raises:
        UsageError: where there is none, or it has no steps.
    """
    report = newest_window(path).report(step_ms)
    whole = step_us(report.step_time)
    if whole is None:
        raise UsageError(f"{path} has no steps")
    return Point(
        size,
        statistics.median(step.host_us for step in report.steps),
        statistics.median(step.device_busy_us for step in report.steps),
        whole,
        report,
    )


def newest_window(path: Path) -> Window:
    """Of a run, or the window itself."""
    found = find(path)
    if isinstance(found, Run):
        return found.window(-1)
    if isinstance(found, Window):
        return found
    raise UsageError(f"{path} holds several runs; give each of them")


def svg(points: Sequence[Point], title: str, axis: str) -> str:
    """The figure as a file.

    Args:
        points: In ascending order of their sizes, all above zero.
        title: What a screen reader says of it.
        axis: What the sizes are.
    """
    canvas = Svg(WIDTH, HEIGHT, title)
    draw(canvas, points, axis)
    return canvas.document()


def png(points: Sequence[Point], axis: str) -> Png:
    """The figure as an image."""
    canvas = Png(WIDTH, HEIGHT)
    draw(canvas, points, axis)
    return canvas


def draw(canvas: Canvas, points: Sequence[Point], axis: str) -> None:
    """Time against size, both by powers: the lines cross where the device takes over."""
    values = [value for p in points for value in (p.host_us, p.device_us, p.step_us) if value]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log2(points[0].size), math.log2(points[-1].size)

    def x(size: float) -> float:
        return LEFT + (math.log2(size) - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)

    def y(us: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(us) - low) / max(high - low, 1) * (HEIGHT - TOP - BOTTOM)

    for power in range(low, high + 1):
        at = y(10.0**power)
        canvas.line([(LEFT, at), (WIDTH - RIGHT, at)], "#e2e8f0")
        canvas.text(LEFT - 8, at + 4, duration(10.0**power).replace(".00", "").replace(".0", ""), "end")
    for place, p in enumerate(points):
        verdict = p.report.verdict.label
        if not place or verdict != points[place - 1].report.verdict.label:
            canvas.text(x(p.size), TOP - 8, verdict, "middle" if place else "start", "#64748b")
        canvas.text(x(p.size), HEIGHT - BOTTOM + 18, f"{p.size:g}", "middle")
    canvas.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, axis, "middle")
    labels = []
    for name, colour, series in (
        ("step", STEP, [p.step_us for p in points]),
        ("host enqueues it (traced)", HOST, [p.host_us for p in points]),
        *([("device busy", DEVICE, [p.device_us for p in points])] if all(p.device_us for p in points) else []),
    ):
        places = [(x(p.size), y(us)) for p, us in zip(points, series, strict=True)]
        canvas.line(places, colour, 2, dashed=name == "step")
        for place_x, place_y in places:
            canvas.dot(place_x, place_y, colour)
        labels.append((places[-1][1], name, colour))
    floor = 0.0
    for at, name, colour in sorted(labels):
        floor = max(at, floor + 16)
        canvas.text(WIDTH - RIGHT + 12, floor + 4, name, "start", colour)
