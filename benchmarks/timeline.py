"""How soon a trace can be seen: `harness timeline` beside `vizviewer`, which serves the same Perfetto UI.

python -m benchmarks.timeline [--rounds 5] [--json PATH]

Traces of several sizes, recorded as in `benchmarks.read_trace`. Each time a fresh Chromium without a cache and without
a network opens the address as soon as the command answers. *From the command* counts from the start of the command,
*from the address* from the moment at which the browser is sent there; both end when the first track is in the page.
*Again* is a second page of the same browser on the same server. Perfetto drops slices that cross others of their
thread: the share of the file's slices that can be seen is asked from its own tables.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from benchmarks.read_trace import recorded
from benchmarks.table import Row, against, arguments, interleaved, show

SIZES = (4_000, 30_000, 100_000)
TRACK = ".pf-track"
READY_MS = 180_000
CLOSED = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"
OURS, THEIRS = "harness timeline", "vizviewer"
FROM_COMMAND, FROM_ADDRESS, AGAIN = "from the command", "from the address", "again"
COUNT = "async () => Number((await app.trace.engine.query('select count(*) as n from slice')).firstRow({n: 0}).n)"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextlib.contextmanager
def serving(command: list[str], address: str) -> Iterator[str]:
    """The command, once it answers."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while True:
            assert process.poll() is None, command
            with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
                break
            time.sleep(0.01)
        yield address
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def harness(path: Path) -> contextlib.AbstractContextManager[str]:
    port = free_port()
    command = [sys.executable, "-c", "from harness.cli import main; main()", "timeline", str(path)]
    return serving([*command, "--no-open", "--port", str(port)], f"http://127.0.0.1:{port}/timeline/view.html")


def vizviewer(path: Path) -> contextlib.AbstractContextManager[str]:
    port = free_port()
    command = [sys.executable, "-m", "viztracer.viewer", "--server_only", "--port", str(port), str(path)]
    return serving(command, f"http://127.0.0.1:{port}")


def seen(context: BrowserContext, address: str) -> tuple[float, Any]:
    """Seconds until the first track, and the frame in which it is."""
    page = context.new_page()
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    while True:
        for frame in page.frames:
            with contextlib.suppress(Exception):
                if frame.locator(TRACK).count():
                    return time.perf_counter() - started, frame
        assert time.perf_counter() - started < READY_MS / 1000
        time.sleep(0.01)


def opened(
    browser: Browser, serve: Callable[[Path], contextlib.AbstractContextManager[str]], path: Path
) -> dict[str, float]:
    """Seconds until the first track, by where they count from, and the slices that are there."""
    started = time.perf_counter()
    with (
        serve(path) as address,
        contextlib.closing(browser.new_context(viewport={"width": 1440, "height": 900})) as context,
    ):
        from_address, frame = seen(context, address)
        from_command = time.perf_counter() - started
        slices = frame.evaluate(COUNT)
        again, _ = seen(context, address)
    return {FROM_COMMAND: from_command, FROM_ADDRESS: from_address, AGAIN: again, "slices": slices}


def measured(browser: Browser, path: Path, rounds: int) -> list[Row]:
    found: dict[str, dict[str, list[float]]] = {
        kind: {OURS: [], THEIRS: []} for kind in (FROM_COMMAND, FROM_ADDRESS, AGAIN)
    }
    slices: dict[str, float] = {}

    def once(name: str, serve: Callable[[Path], contextlib.AbstractContextManager[str]]) -> float:
        values = opened(browser, serve, path)
        slices[name] = values.pop("slices")
        for kind, value in values.items():
            found[kind][name].append(value)
        return values[FROM_COMMAND]

    interleaved({OURS: lambda: once(OURS, harness), THEIRS: lambda: once(THEIRS, vizviewer)}, rounds)
    rows = [
        msgspec.structs.replace(row, name=f"{row.name}, {kind}", versus=row.versus)
        for kind, values in found.items()
        for row in against(values, THEIRS, "s")
    ]
    return [*rows, *against({name: [count] for name, count in slices.items()}, THEIRS, "slices")]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each (default: %(default)s)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="events (default: %(default)s)")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium is not None, "this needs a Chromium"
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[CLOSED, "--no-sandbox", "--disable-gpu"])
        for events in options.sizes:
            path = recorded(Path(folder), events)
            found = measured(browser, path, options.rounds)
            title = f"{events:,} events, {path.stat().st_size / 2**20:.1f} MiB"
            show(title, found, None)
            rows += [
                msgspec.structs.replace(row, name=f"{row.name} ({title})", versus=f"{row.versus} ({title})")
                for row in found
            ]
        browser.close()
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2))


if __name__ == "__main__":
    main()
