"""What the profiler plugin costs on a run with many windows: as it is, and repaired.

TensorBoard is started on windows of a small transformer of about 10,000 events each, once with the plugin that is
installed and once with its repair. Looked at until the newest window's overview has been answered, and then until the
processes are quiet: processes besides TensorBoard's own and its data server, the memory (RSS) of all of them together,
and the time from TensorBoard's start to the overview.

The plugin as it is starts a process for every window at once. It gets fewer windows (``--stock-windows``) and is ended
where it takes more than ``--most-gib``; what is printed then is a lower bound, and says so.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.read_trace import recorded
from benchmarks.table import Row, arguments, show

ROOT = Path(__file__).parent.parent
EVENTS = 10_000
EVERY = 100
POLL_S = 0.1
QUIET_S = 5.0
LONGEST_S = 90.0
GIB = 2**30
PLUGIN = "data/plugin/pytorch_profiler"
ENTRY_POINT = "[tensorboard_plugins]\nwindows = harness.board.tab.plugin:WindowsPlugin\n"


class Measured:
    """A TensorBoard on ``logdir`` and what it took."""

    def __init__(self, logdir: Path, *, repaired: bool, most_gib: float) -> None:
        self.processes: set[int] = set()
        self.together = 0
        self.peak_bytes = 0
        self.overview_s: float | None = None
        self.stopped = False
        self._most = most_gib * GIB
        with tempfile.TemporaryDirectory() as folder, self._started(Path(folder), logdir, repaired) as url:
            begin = time.monotonic()
            quiet = begin
            known = 0
            while time.monotonic() - begin < LONGEST_S and not self.stopped:
                self._look()
                if self.overview_s is None and self._overview(url, logdir, repaired):
                    quiet = time.monotonic()
                    self.overview_s = quiet - begin
                if len(self.processes) != known:
                    known, quiet = len(self.processes), time.monotonic()
                if self.overview_s is not None and time.monotonic() - quiet > QUIET_S:
                    break
                time.sleep(POLL_S)

    @contextlib.contextmanager
    def _started(self, folder: Path, logdir: Path, repaired: bool) -> Iterator[str]:
        # The first distribution of a name on the path is the one whose entry points count.
        metadata = folder / "harness-0.0.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: harness\nVersion: 0.0.0\n")
        (metadata / "entry_points.txt").write_text(ENTRY_POINT if repaired else "")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        with (folder / "said").open("w") as said:
            self._process = subprocess.Popen(
                [*(sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", str(port))],
                # Not in the checkout, which would be on the path before the metadata.
                cwd=folder,
                env={**os.environ, "PYTHONPATH": f"{folder}:{ROOT}"},
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            try:
                yield f"http://127.0.0.1:{port}/{PLUGIN}"
            finally:
                for pid in [self._process.pid, *self._session()]:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
                self._process.wait()

    def _session(self) -> list[int]:
        """Living processes that TensorBoard has started, its data server left out."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                name, _, fields = stat.read_text().rpartition(")")
                state, _, _, session = fields.split()[:4]
                pid = int(stat.parent.name)
                if int(session) == self._process.pid != pid and state != "Z" and "(server" not in name:
                    found.append(pid)
        return found

    def _look(self) -> None:
        now = self._session()
        self.processes |= set(now)
        self.together = max(self.together, len(now))
        total = 0
        for pid in [self._process.pid, *now]:
            with contextlib.suppress(OSError, IndexError):
                total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.peak_bytes = max(self.peak_bytes, total)
        self.stopped = total > self._most

    def _overview(self, url: str, logdir: Path, repaired: bool) -> bool:
        """Whether the newest window's overview is answered."""
        newest = max((logdir / "run" / "profile").iterdir())
        run = "run" if repaired else newest.relative_to(logdir).as_posix()
        try:
            if run not in _get(f"{url}/runs")["runs"]:
                return False
            worker = _get(f"{url}/workers", run=run, view="Overview")[0]
            span = _get(f"{url}/spans", run=run, worker=worker)[-1]
            return bool(_get(f"{url}/overview", run=run, worker=worker, span=span)["steps"]["rows"])
        except (OSError, urllib.error.HTTPError, json.JSONDecodeError):
            return False

    def rows(self, name: str) -> Iterator[Row]:
        least = ", at least: it was ended" if self.stopped else ""
        yield Row(name=f"{name}: processes started{least}", value=len(self.processes), unit="")
        yield Row(name=f"{name}: processes at a time{least}", value=self.together, unit="")
        yield Row(name=f"{name}: memory, peak{least}", value=self.peak_bytes / GIB, unit="GiB")
        if self.overview_s is not None:
            yield Row(name=f"{name}: newest window's overview", value=self.overview_s, unit="s")


def _get(url: str, **query: str) -> Any:
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=30) as answer:
        return json.loads(answer.read())


def logs(folder: Path, trace: Path, windows: int) -> Path:
    """A logdir with one run of so many windows, all of them this trace."""
    logdir = folder / f"logs_{windows}"
    for number in range(1, windows + 1):
        window = logdir / "run" / "profile" / f"window_{number * EVERY:08d}"
        window.mkdir(parents=True)
        os.link(trace, window / f"host_0.{number}.pt.trace.json.gz")
    return logdir


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--windows", type=int, default=200, help="for the repaired plugin (default: %(default)s)")
    parser.add_argument("--stock-windows", type=int, default=40, help="for the plugin as it is (default: %(default)s)")
    parser.add_argument("--most-gib", type=float, default=8.0, help="end what takes more (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = recorded(folder, EVENTS)
        stock = f"as it is, {options.stock_windows} windows"
        repaired = f"repaired, {options.windows} windows"
        rows = []
        for name, windows, is_repaired in (
            (repaired, options.windows, True),
            (stock, options.stock_windows, False),
        ):
            found = Measured(logs(folder, trace, windows), repaired=is_repaired, most_gib=options.most_gib)
            show(name, list(found.rows(name)), None)
            rows += found.rows(name)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2))


if __name__ == "__main__":
    main()
