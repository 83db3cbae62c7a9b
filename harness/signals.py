"""SIGTERM and SIGINT as a wish to stop, granted between two steps."""

from __future__ import annotations

import math
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

STOPPING = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """While entered, the first SIGTERM or SIGINT is only noted; a second one stops the process at once.

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
            self._before = {number: signal.signal(number, self._note) for number in STOPPING}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def agreed(self, step: int) -> bool:
        """Whether the job ends now that so many steps are done."""
        return self.received is not None

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._only_once(number)
        self.received = signal.Signals(number)
        self.attention = -math.inf

    def _only_once(self, number: int) -> None:
        if self._noted:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._noted = True
