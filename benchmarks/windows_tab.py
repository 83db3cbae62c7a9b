"""First paint of the Windows tab: from the load of its frame to the list of windows, and to the curves of a run.

    python -m benchmarks.windows_tab [--windows 500] [--rounds 5]

A real TensorBoard is asked by a real headless Chromium, which notes the first frame that it paints with the list, and
with all curves. The first round meets a server that has read nothing yet and is reported apart; TensorBoard's own page,
in which the frame lies, is not counted.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from pathlib import Path

from benchmarks.table import Row, arguments, show
from tests.board.tab import layout
from tests.browser import CLOSED, QUIET, opened, served

RUN = "job/long"
NOTED = """
    window.noted = {};
    const note = (name, is) => { if (is && !noted[name]) noted[name] = performance.now(); };
    (function look() {
        note("list", document.querySelector(".windows-table tbody tr"));
        note("curves", document.querySelectorAll(".chart[data-drawn]").length >= 4);
        requestAnimationFrame(look);
    })();
"""
"""What the frame's page is given beside its own scripts. Its clock begins when its load does."""
WHEN = "async () => { while (!noted.curves) await new Promise(requestAnimationFrame); return noted; }"


def measure(windows: int, rounds: int) -> list[Row]:
    """Seconds by what is there to be read: medians of `rounds` page loads, and the very first one."""
    from playwright.sync_api import sync_playwright

    times: dict[str, list[float]] = {"list": [], "curves": []}
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        layout.long_run(folder / "logs" / RUN, windows)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=[CLOSED, *QUIET])
        with served(folder, "--logdir", str(folder / "logs")) as board:
            for _ in range(rounds + 1):
                with opened(browser, "about:blank") as watched:
                    watched.page.add_init_script(NOTED)
                    watched.page.goto(f"{board.address}/#windows&p.windows.run={RUN.replace('/', '%2F')}")
                    frame = watched.page.frame_locator('iframe[src*="name=windows"]')
                    frame.locator(".chart[data-drawn]").nth(3).wait_for()
                    for what, seen in frame.locator("body").evaluate(WHEN).items():
                        times[what].append(seen / 1000)
                    watched.assert_well()
        browser.close()
    rows = [Row(name=f"{what}, first of all", value=measured[0], unit="s") for what, measured in times.items()]
    return rows + [Row(name=what, value=statistics.median(measured[1:]), unit="s") for what, measured in times.items()]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--windows", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    show(f"The Windows tab on a run of {given.windows} windows", measure(given.windows, given.rounds), given.json)


if __name__ == "__main__":
    main()
