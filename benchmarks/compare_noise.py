"""How often `harness compare` calls noise a change: windows of one run, dealt at random into two sets.

    python -m benchmarks.compare_noise RUN [RUN...]

Nothing differs between the sets, so whatever is called a change is chance, or the machine.
"""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.table import Row, arguments, show
from harness.report.find import Run, find
from harness.trace.compare import GROUPS, compare, regressions

LIMIT = 0.05


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN", help="with at least six windows, better more")
    parser.add_argument("--deals", type=int, default=200, help="of each run's windows (default: %(default)s)")
    given = parser.parse_args()
    deal = random.Random(0)
    changed = dict.fromkeys(GROUPS, 0)
    failed = trials = 0
    for path in given.runs:
        found = find(path)
        if not isinstance(found, Run) or len(found.windows) < 7:
            parser.error(f"{path} is no run with at least seven windows, of which the first is left out")
        windows = [window.report() for window in found.windows[1:]]
        for _ in range(given.deals):
            deal.shuffle(windows)
            half = len(windows) // 2
            comparison = compare(windows[:half], windows[half:])
            trials += 1
            failed += bool(regressions(comparison, LIMIT))
            for group in GROUPS:
                rows = (row for row in comparison.rows if row.group == group)
                changed[group] += any(row.outcome not in ("same", "unknown") for row in rows)
    rows = [Row(name=f"any {group} figure changed", value=count / trials, unit="") for group, count in changed.items()]
    rows.append(Row(name=f"fails --fail-over {100 * LIMIT:g}%", value=failed / trials, unit=""))
    show(f"{trials} deals of {len(given.runs)} runs' windows into two halves, share in which", rows, given.json)


if __name__ == "__main__":
    main()
