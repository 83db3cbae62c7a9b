"""`harness report` as a user runs it, over recorded traces."""

import io
import shutil
from functools import cache
from pathlib import Path

from rich.console import Console

from harness.report import terminal
from harness.report.document import Section
from harness.report.sections.findings import Options, sections
from harness.report.sections.picture import picture
from harness.trace import Trace, WindowReport, analyze_rank, read
from tests.in_process import in_process
from tests.trace.conftest import recorded

run = in_process("report")


@cache
def analyzed(path: Path) -> tuple[Trace, WindowReport]:
    trace = read(path)
    return trace, analyze_rank(trace)


def document(path: Path, options: Options | None = None) -> list[Section]:
    trace, report = analyzed(path)
    return sections(report, picture(trace, report), options or Options())


def drawn(path: Path, width: int, options: Options | None = None) -> str:
    """What a terminal of this width shows, without colours."""
    out = io.StringIO()
    terminal.show(document(path, options), Console(file=out, width=width, color_system=None))
    return out.getvalue()


def section(text: str, title: str) -> list[str]:
    """The lines below a heading, up to the empty one after it."""
    lines = text.splitlines()
    begin = next(place for place, line in enumerate(lines) if line.lstrip("# ").startswith(title)) + 1
    end = next((place for place in range(begin, len(lines)) if not lines[place]), len(lines))
    return lines[begin:end]


def window(run_directory: Path, step: int, *traces: str) -> Path:
    """A window of a run, with one recorded trace for each rank."""
    folder = run_directory / "profile" / f"window_{step:08d}"
    folder.mkdir(parents=True)
    for rank, name in enumerate(traces):
        shutil.copy(recorded(name), folder / f"host-1_{rank}.17000000{step}.pt.trace.json.gz")
    return folder
