"""Where overhead-bound turns into compute-bound: windows of `x @ w + b` as a table and a picture.

    harness train experiment=matmul_sweep -m
    python -m benchmarks.matmul_figure tb_logs/matmul_sweep/*/ --figure docs/matmul.svg

Each PATH is what `harness report` takes; the size is read from the shapes of the product, so windows have to be
recorded with record_shapes. `--step-ms 64=0.076` hands over a step time for traces that lack it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmarks.table import Row, arguments, show
from harness.errors import UsageError
from harness.report.figure.axes import Point, newest_window, point, svg
from harness.report.units import duration, share, torch_time
from harness.trace import WindowReport

TITLE = "Time of a step of x @ w + b against the size of the matrices"
AXIS = "n, of n × n matrices"


def matmul_point(path: Path, step_ms: dict[int, float]) -> Point:
    """The newest window of a run over matrices of one size."""
    size = _size(newest_window(path).report())
    return point(path, size, step_ms.get(size))


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
            f"| {size:g} | {duration(step)} | {duration(host)} | {duration(device)} "
            f"| {share(max(d.busy_fraction for d in report.device))} | {torch_time(totals.cpu_time_us)} "
            f"| {torch_time(totals.device_time_us)} | {report.verdict.label} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--figure", type=Path, metavar="SVG", help="also draw it there")
    parser.add_argument("--step-ms", action="append", default=[], metavar="SIZE=MS")
    given = parser.parse_args()
    try:
        step_ms = {int(size): float(ms) for size, _, ms in (text.partition("=") for text in given.step_ms)}
        points = sorted((matmul_point(path, step_ms) for path in given.paths), key=lambda p: p.size)
    except (UsageError, ValueError) as error:
        parser.error(str(error))
    rows = [
        Row(name=f"{what} {p.size:g}", value=us, unit="us", ratio=us / p.step_us, versus=f"step {p.size:g}")
        for p in points
        for what, us in (("step", p.step_us), ("host", p.host_us), ("device", p.device_us))
    ]
    show("x @ w + b, a step", rows, given.json)
    print(markdown(points))
    if given.figure is not None:
        given.figure.write_text(svg(points, TITLE, AXIS), encoding="utf-8")


if __name__ == "__main__":
    main()
