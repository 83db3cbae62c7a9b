"""SIGTERM, SIGINT and SIGHUP as a wish to stop, granted between two steps."""

from __future__ import annotations

import math
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def wished() -> list[signal.Signals]:
    """The signals that stop a job here: a SIGHUP that is ignored, as under ``nohup``, is meant to be."""
    return [one for one in STOPPING if one != signal.SIGHUP or signal.getsignal(one) != signal.SIG_IGN]


class StopSignals:
    """While entered, the first signal of :data:`STOPPING` is only noted; a second one stops the process at once.

    Not a SIGHUP: when a terminal closes, it comes from the kernel and from the shell, and beside a SIGTERM.

    Outside the main thread, where Python lets nobody handle signals, it notes nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.attention: float = math.inf
        """The step from which :meth:`agreed` has to be asked."""
        self._noted = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in wished()}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            # A terminal that is gone has said so, and the job's last words still have to be written.
            heard = number == signal.SIGHUP and self.received == signal.SIGHUP
            signal.signal(number, signal.SIG_IGN if heard else handler)

    def agreed(self, step: int) -> bool:
        """Whether the job ends now that so many steps are done."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._only_once(number)
        self.received = self.received or signal.Signals(number)
        self.attention = -math.inf

    def _only_once(self, number: int) -> None:
        if number == signal.SIGHUP:
            return
        if self._noted:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._noted = True
