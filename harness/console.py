"""The terminal: where progress, log lines and results go."""

from __future__ import annotations

import errno
import io
import logging
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.markup import escape

from harness.credentials import masked
from harness.files import regular_descriptor

UNBOUNDED = 160
"""Columns where there is no terminal to fit into."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """A reader that goes, as `head` does, is no reason for another exit status; Rich ends the process with 1."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.file.fileno())
        os.close(nowhere)


out = _Console(width=None if sys.stdout.isatty() else UNBOUNDED)
"""Results."""
err = _Console(stderr=True, width=None if sys.stderr.isatty() else UNBOUNDED)
"""Progress and log lines."""

REFRESH_S = 0.5
"""How often the bar is drawn; one drawing takes about a millisecond of the loop."""
PLAIN_S = 10.0
"""How often a line is printed where there is no terminal."""


class _Stream(io.FileIO):
    """A descriptor of the terminal, a pipe or a file, whose reader may go and whose disk may fill: what it does not
    take is lost, and raises nothing."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError as error:
            if error.errno in (errno.EIO, errno.EPIPE, errno.ENXIO, errno.ENODEV):
                # Nobody will ever read it again, also of what libraries write there by themselves.
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self.fileno())
                os.close(nowhere)
            return len(data)
        # None is a pipe that is full and does not wait; what it took of the data is told by a number.
        return len(data) if written is None else written


@contextmanager
def lasting() -> Iterator[None]:
    """While entered, a terminal that is closed, or a reader that goes, ends nothing: see :class:`_Stream`."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before


def _lasting(stream: TextIO) -> TextIO:
    """The same stream, so that nothing that is written to it raises; one that is no descriptor stays as it is."""
    try:
        raw = _Stream(stream.fileno(), "w", closefd=False)
        stream.flush()
    except (AttributeError, OSError, ValueError):
        return stream
    encoding = (stream.encoding or "utf-8").lower()
    # A path that is no text in the terminal's encoding is no reason to fail either.
    errors = "surrogateescape" if encoding == "utf-8" else "backslashreplace"
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, errors, line_buffering=raw.isatty() or stream is sys.stderr
    )


class Progress(Protocol):
    """Shows how far a job is."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        """Say that ``step`` steps are done; ``metrics`` by their short names."""


class BarProgress:
    """A bar that redraws itself only when it is told something, so that no thread of its own takes time."""

    def __init__(self, first_step: int, max_steps: int) -> None:
        # Only `train` draws a bar, and every command would wait for this import.
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("[bold]{task.description}"),
            progress.BarColumn(bar_width=None),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[metrics]}"),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
            console=err,
            auto_refresh=False,
        )
        self._task = self._bar.add_task("train", total=max_steps, completed=first_step, metrics="")
        self._next = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.refresh()
        self._bar.stop()

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        self._bar.update(self._task, completed=step)
        if metrics:
            self._bar.update(self._task, metrics=_format(metrics))
        if time.monotonic() >= self._next:
            self._bar.refresh()
            self._next = time.monotonic() + REFRESH_S


class PlainProgress:
    """A line now and then, for log files."""

    def __init__(self, first_step: int, max_steps: int) -> None:
        self._max_steps = max_steps
        self._first = (first_step, time.monotonic())
        self._next = 0.0
        self._last: Mapping[str, float] | None = None
        """Of the last step, which is told twice: by the loop and by its evaluation."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._last is not None:
            self._print(self._max_steps, self._last)

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        if not metrics:
            return
        if step >= self._max_steps:
            self._last = metrics
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_S
            self._print(step, metrics)

    def _print(self, step: int, metrics: Mapping[str, float]) -> None:
        first_step, started = self._first
        left = (time.monotonic() - started) / max(1, step - first_step) * (self._max_steps - step)
        err.print(
            f"step {step}/{self._max_steps}  {_format(metrics)}  {left:.0f} s left",
            highlight=False,
            soft_wrap=True,
        )


class NoProgress:
    """Of a rank that has nothing to say."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, step: int, metrics: Mapping[str, float]) -> None:
        return


def progress(first_step: int, max_steps: int, *, live: bool = True) -> Progress:
    """A bar in a terminal, plain lines elsewhere, or where ``live`` is false as for one of several jobs."""
    return (BarProgress if live and err.is_terminal else PlainProgress)(first_step, max_steps)


def plain(text: object) -> str:
    """``text`` without a meaning to Rich."""
    return escape(str(text))


def path(where: Path) -> str:
    """A path as one would type it from here."""
    absolute = where.absolute()
    return str(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def command(arguments: str) -> str:
    """A command of ours as one would type it here: by where it lies, if no search path leads to it."""
    program = sys.argv[0] if Path(sys.argv[0]).name == "harness" and shutil.which("harness") is None else "harness"
    return f"{shlex.quote(program)} {arguments}"


def error(text: object) -> None:
    """Say what went wrong."""
    err.print(f"[bold red]error:[/] {plain(masked(str(text)))}", highlight=False, soft_wrap=True)


def _format(metrics: Mapping[str, float]) -> str:
    return "  ".join(
        f"{name} {value:,.0f}" if abs(value) >= 1000 else f"{name} {value:.4g}" for name, value in metrics.items()
    )


class _Masked(logging.Filter):
    """No secret of an address reaches a log, whoever's error it stands in."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = masked(record.getMessage()), None
        return True


class _LogFile(logging.FileHandler):
    """A log on a disk that may be full or gone: what cannot be written is lost, which the terminal says once."""

    _complained = False

    def _open(self) -> TextIOWrapper:
        return open(
            regular_descriptor(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "a", encoding="utf-8"
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)
        elif not self._complained:
            self._complained = True
            err.print(
                plain(f"{self.baseFilename} cannot be written, training goes on"), highlight=False, soft_wrap=True
            )

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _Terminal(logging.Handler):
    """Log lines above the bar, each in one piece however long it is, so that a command in it can be pasted."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            style = {logging.INFO: "blue", logging.WARNING: "yellow"}.get(record.levelno, "bold red")
            level = f"[{style}]{record.levelname:<8}[/]"
            err.print(f"{level} {plain(self.format(record))}", highlight=False, soft_wrap=True)
        except Exception:
            self.handleError(record)


@contextmanager
def logging_to(file: Path | None, *, rank: int | None = None) -> Iterator[None]:
    """Log lines of the harness: to the terminal, and with their times to ``file``.

    Args:
        rank: Of a process beside rank 0, whose warnings alone are shown.
    """
    logger = logging.getLogger("harness")
    handlers: list[logging.Handler] = [_Terminal() if err.is_terminal else logging.StreamHandler()]
    if rank is not None:
        handlers[0].setFormatter(logging.Formatter(f"rank {rank}: %(message)s"))
    if file is not None:
        handlers.append(_LogFile(file, delay=True))
        handlers[-1].setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level, propagate = logger.level, logger.propagate
    logger.setLevel(logging.INFO if rank is None else logging.WARNING)
    logger.propagate = False
    for handler in handlers:
        handler.addFilter(_Masked())
        logger.addHandler(handler)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate
