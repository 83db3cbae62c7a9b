"""Where overhead-bound turns into compute-bound: windows of `x @ w + b` as a table and a picture.

    harness train experiment=matmul_sweep -m
    python -m benchmarks.matmul_figure tb_logs/matmul_sweep/* --figure docs/matmul.svg

Each PATH is what `harness report` takes; the size is read from the shapes of the product, so windows have to be
recorded with record_shapes. `--step-ms 64=0.076` hands over a step time for traces that lack it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from benchmarks.table import Row, arguments, show
from harness.errors import UsageError
from harness.report.find import Run, Window, find
from harness.report.units import duration, share, torch_time
from harness.trace import WindowReport

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 175, 25, 45
HOST, DEVICE, STEP = "#c2410c", "#15803d", "#475569"


class Point(NamedTuple):
    """One size; microseconds a step, medians over the window."""

    size: int
    host_us: float
    """The host's span: the time to enqueue the step."""
    device_us: float
    """The device's busy time for what the step launched."""
    step_us: float
    """Without the profiler where that is known."""
    report: WindowReport


def point(path: Path, step_ms: dict[int, float]) -> Point:
    """The newest window that ``path`` stands for."""
    report = _window(path).report()
    size = _size(report)
    if size in step_ms:
        report = _window(path).report(step_ms[size])
    times = report.step_time
    step_us = times.unprofiled_median_us or times.profiled_median_us
    if not step_us:
        raise UsageError(f"{path} has no steps")
    return Point(
        size,
        statistics.median(step.host_us for step in report.steps),
        statistics.median(step.device_busy_us for step in report.steps),
        step_us,
        report,
    )


def _window(path: Path) -> Window:
    found = find(path)
    if isinstance(found, Run):
        return found.window(-1)
    if isinstance(found, Window):
        return found
    raise UsageError(f"{path} holds several runs; give each of them")


def _size(report: WindowReport) -> int:
    for row in report.operators_by_shape:
        if row.name in ("aten::mm", "aten::addmm") and row.input_shapes:
            return next(shape for shape in row.input_shapes if len(shape) == 2)[0]
    raise UsageError(f"{report.source} has no shapes of a matrix product; record with record_shapes")


def markdown(points: Iterable[Point]) -> str:
    """The table of `docs/report.md`."""
    lines = [
        "| n | step | host to enqueue it | device busy | busy fraction | Self CPU time total | Self CUDA time total "
        "| verdict |",
        "|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for size, host, device, step, report in points:
        totals = report.totals
        lines.append(
            f"| {size} | {duration(step)} | {duration(host)} | {duration(device)} "
            f"| {share(max(d.busy_fraction for d in report.device))} | {torch_time(totals.cpu_time_us)} "
            f"| {torch_time(totals.device_time_us)} | {report.verdict.label} |"
        )
    return "\n".join(lines)


def svg(points: Sequence[Point]) -> str:
    """Time against size, both by powers: the lines cross where the device takes over."""
    values = [value for p in points for value in (p.host_us, p.device_us, p.step_us)]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    first, last = math.log2(points[0].size), math.log2(points[-1].size)

    def x(size: float) -> float:
        return LEFT + (math.log2(size) - first) / max(last - first, 1) * (WIDTH - LEFT - RIGHT)

    def y(us: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(us) - low) / max(high - low, 1) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12" role="img">',
        "<title>Time of a step of x @ w + b against the size of the matrices</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#e2e8f0"/>')
        parts.append(_text(LEFT - 8, at + 4, duration(10.0**power).replace(".00", "").replace(".0", ""), "end"))
    for place, p in enumerate(points):
        verdict = p.report.verdict.label
        if not place or verdict != points[place - 1].report.verdict.label:
            parts.append(_text(x(p.size), TOP - 8, verdict, "middle" if place else "start", "#64748b"))
        parts.append(_text(x(p.size), HEIGHT - BOTTOM + 18, str(p.size), "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "n, of n × n matrices", "middle"))
    labels = []
    for name, colour, series in (
        ("step", STEP, [p.step_us for p in points]),
        ("host enqueues it (traced)", HOST, [p.host_us for p in points]),
        ("device busy", DEVICE, [p.device_us for p in points]),
    ):
        places = [(x(p.size), y(us)) for p, us in zip(points, series, strict=True)]
        dash = ' stroke-dasharray="5 4"' if name == "step" else ""
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"/>' for a, b in places]
        labels.append((places[-1][1], name, colour))
    floor = 0.0
    for at, name, colour in sorted(labels):
        floor = max(at, floor + 16)
        parts.append(_text(WIDTH - RIGHT + 12, floor + 4, name, "start", colour))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, anchor: str, colour: str = "#0f172a") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="also draw it there")
    parser.add_argument("--step-ms", action="append", default=[], metavar="SIZE=MS")
    given = parser.parse_args()
    try:
        step_ms = {int(size): float(ms) for size, _, ms in (text.partition("=") for text in given.step_ms)}
        points = sorted((point(path, step_ms) for path in given.paths), key=lambda p: p.size)
    except (UsageError, ValueError) as error:
        parser.error(str(error))
    rows = [
        Row(name=f"{what} {p.size}", value=us, unit="us", ratio=us / p.step_us, versus=f"step {p.size}")
        for p in points
        for what, us in (("step", p.step_us), ("host", p.host_us), ("device", p.device_us))
    ]
    show("x @ w + b, a step", rows, given.json)
    print(markdown(points))
    if given.figure is not None:
        given.figure.write_text(svg(points), encoding="utf-8")


if __name__ == "__main__":
    main()
