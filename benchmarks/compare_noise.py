"""How often `harness compare` calls noise a change, and how often it finds a real one.

    python -m benchmarks.compare_noise RUN [RUN...]

Two sets of windows that follow each other are drawn from runs of one job. Nothing differs between them, so whatever is
called a change is chance, or the machine. Then all times of the second set are multiplied, or those of its largest
operator, and what is not called a change is one that was not found.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from benchmarks.table import Row, arguments, show
from harness.logdir.find import find
from harness.logdir.scan import Run
from harness.trace import WindowReport
from harness.trace.compare.comparison import Comparison, compare, regressions
from harness.trace.figures import operator_times

LIMIT = 0.05
SLOWER = (1.2, 1.5, 2.0)
Windows = Sequence[WindowReport]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="of one job, with many windows")
    parser.add_argument("--windows", default="1,2,4,8", help="of each set (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=200, help="of each number of windows (default: %(default)s)")
    given = parser.parse_args()
    runs = []
    for path in given.runs:
        found = find(path)
        if not isinstance(found, Run):
            parser.error(f"{path} is no run with windows")
        runs.append([window.report() for window in found.windows[1:]])
    counts = [int(text) for text in given.windows.split(",")]
    counts = [count for count in counts if any(len(run) >= 2 * count for run in runs)]
    rows: list[Row] = []
    for count in counts:
        draw = random.Random(0)
        rows += rates(count, [_draw(draw, runs, count) for _ in range(given.draws)])
    show(f"{given.draws} draws for each number of windows, share in which", rows, given.json)


def rates(count: int, drawn: Sequence[tuple[Windows, Windows]]) -> list[Row]:
    """Shares of the draws in which something is called a change, without one and with one."""
    name = f"{count} a side"
    same = [compare(before, after) for before, after in drawn]
    rows = [
        _row(f"{name}, nothing differs: the step changed", [_changed(one, "step") for one in same]),
        _row(f"{name}, nothing differs: any operator changed", [_changed(one, "operator") for one in same]),
        _row(f"{name}, nothing differs: fails at {LIMIT:.0%}", [bool(regressions(one, LIMIT)) for one in same]),
    ]
    for by in SLOWER:
        slow = [compare(before, [_slower(one, by) for one in after]) for before, after in drawn]
        rows.append(_row(f"{name}, step × {by:g}: fails at {LIMIT:.0%}", [bool(regressions(s, LIMIT)) for s in slow]))
    for by in SLOWER:
        largest = [_largest(before[0]) for before, _ in drawn]
        pairs = zip(drawn, largest, strict=True)
        grown = [compare(before, [_slower(one, by, only) for one in after]) for (before, after), only in pairs]
        found = [_changed(one, "operator", only) for one, only in zip(grown, largest, strict=True)]
        rows.append(_row(f"{name}, largest operator × {by:g}: found", found))
    return rows


def _row(name: str, hits: Sequence[bool]) -> Row:
    return Row(name=name, value=sum(hits) / len(hits), unit="")


def _draw(draw: random.Random, runs: Sequence[Windows], count: int) -> tuple[Windows, Windows]:
    """Windows in a row of one run, and as many of it or of another one that are not among them."""
    long = [run for run in runs if len(run) >= count]
    while True:
        one, other = draw.choice(long), draw.choice(long)
        first, second = draw.randrange(len(one) - count + 1), draw.randrange(len(other) - count + 1)
        if one is not other or abs(first - second) >= count:
            return one[first : first + count], other[second : second + count]


def _changed(found: Comparison, group: str, name: str | None = None) -> bool:
    rows = [row for row in found.rows if row.group == group and name in (None, row.name)]
    return any(row.outcome not in ("same", "unknown") for row in rows)


def _largest(report: WindowReport) -> str:
    times = operator_times(report)
    return max(times, key=lambda name: times[name])


def _slower(report: WindowReport, by: float, operator: str | None = None) -> WindowReport:
    """Every time of the steps multiplied, or one operator's own."""
    operators = [
        replace(row, self_device_time_us=row.self_device_time_us * by, self_cpu_time_us=row.self_cpu_time_us * by)
        if operator in (None, row.name)
        else row
        for row in report.operators
    ]
    if operator is not None:
        return replace(report, operators=operators)
    times = report.step_time
    return replace(
        report,
        operators=operators,
        steps=[
            replace(
                step,
                duration_us=step.duration_us * by,
                device_busy_us=step.device_busy_us * by,
                host_us=step.host_us * by,
            )
            for step in report.steps
        ],
        step_time=replace(
            times,
            profiled_median_us=(times.profiled_median_us or 0.0) * by,
            unprofiled_median_us=times.unprofiled_median_us and times.unprofiled_median_us * by,
        ),
    )


if __name__ == "__main__":
    main()
