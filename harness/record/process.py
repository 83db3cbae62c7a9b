"""What the process as a whole has to do with a recording.

Of recordings there is one at a time: Kineto, which torch's profilers share, drops a session without a word where
another one is prepared, and ends the process where the dropped one is exported. So ours gives way. It also ends before
the interpreter does, which would crash on it, and a forked child has none.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

from torch._C._autograd import _disable_profiler, _profiler_enabled, _toggle_collection_dynamic
from torch.profiler import ProfilerActivity

from harness.record import others, spans
from harness.record.others import Occupied

PATIENCE_S = 5.0
"""How long another thread waits until the loop has come by and ended its window."""


class Recorder(Protocol):
    """A :class:`harness.record.Profiler`, as the process sees it."""

    @property
    def steps_done(self) -> int:
        """How far its loop is."""

    def cut_short(self, reason: str) -> None:
        """End the recording now; called on its thread."""

    def end_window(self) -> None:
        """End it as the loop itself does."""

    def forget(self) -> None:
        """Do nothing any more: this process is a forked child."""


class Tenancy:
    """A recording while it is under way.

    Attributes:
        due: Why it has to end as soon as its thread comes by; None where it has not to.
    """

    def __init__(self, recorder: Recorder, *, cuda: bool) -> None:
        self.recorder = recorder
        self.cuda = cuda
        self.due: str | None = None
        self._thread = threading.current_thread()
        self._over = threading.Event()
        self._before = others.step_counted()
        self._gave_way = False

    @property
    def is_left_behind(self) -> bool:
        """Whether the thread that records is gone."""
        return not self._thread.is_alive()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread is the one that records: torch keeps a recording with its thread."""
        return threading.current_thread() is self._thread

    def watch(self) -> None:
        """From here on, give way to other profilers of torch; ours has gone the same way in by now."""
        others.watch(self._give_way)

    def end_soon(self, reason: str) -> None:
        """Have its thread end it: the main thread between two instructions, any other at its next call of ours."""
        self.due = reason
        if self._thread is threading.main_thread():
            _ADD_PENDING_CALL(_END_WHAT_IS_DUE, None)

    def end(self, reason: str) -> bool:
        """End the recording, from whatever thread; whether it is over."""
        if self.is_mine:
            self.recorder.cut_short(reason)
            return self._over.is_set()
        self.end_soon(reason)
        return self._over.wait(PATIENCE_S)

    def leave(self) -> None:
        """The recording has ended, or never began."""
        if self._over.is_set():
            return
        self._over.set()
        _state.tenancy = None
        others.unwatch()
        if not self._before and not self._gave_way:
            others.forget_steps()

    def end_with_the_process(self) -> None:
        if self.is_mine:
            self.recorder.cut_short("the process has ended")
            return
        if self.is_left_behind:
            self.recorder.end_window()
        # Only the thread that records could end it in order, and what torch takes apart is in use, or was.
        _leave_without_destructors()

    def _give_way(self) -> None:
        self._gave_way = True
        if not self.end("another profiler of torch has begun"):
            # It begins in vain, and the window goes on.
            self.due = None
            raise RuntimeError(
                f"harness.record is recording in thread {self._thread.name}, which has not ended it within "
                f"{PATIENCE_S:g} s; begin this profiler in that thread, or between windows"
            )


class _Seen(NamedTuple):
    """How far a recorder was on its entry, and how far the others were then."""

    steps: int
    others: weakref.WeakKeyDictionary[Any, int]


class _State:
    """What there is one of in a process."""

    def __init__(self) -> None:
        self.tenancy: Tenancy | None = None
        self.owed: weakref.ref[Recorder] | None = None
        """Who was refused last for another's recording: its turn is next, lest one of two equal schedules has none."""
        self.recorders: weakref.WeakKeyDictionary[Any, _Seen] = weakref.WeakKeyDictionary()
        self.has_recorded = False
        self.is_set_up = False


_state = _State()


def enter(recorder: Recorder) -> None:
    """Count among those whose recordings end with the process, and are forgotten in a forked child."""
    if not _state.is_set_up:
        _state.is_set_up = True
        atexit.register(_at_exit)
        os.register_at_fork(after_in_child=_in_a_child)
    others_then = {other: other.steps_done for other in _state.recorders}
    _state.recorders[recorder] = _Seen(recorder.steps_done, weakref.WeakKeyDictionary(others_then))


def leave(recorder: Recorder) -> None:
    """No longer."""
    _state.recorders.pop(recorder, None)


def entered() -> list[Any]:
    """Those that have entered and not left."""
    return list(_state.recorders)


def in_the_way(recorder: Recorder) -> str | None:
    """What keeps a recording from beginning now, in words; None where nothing does."""
    if _state.tenancy is not None and _is_abandoned(_state.tenancy.recorder, recorder):
        _state.tenancy.end("its loop has gone no further since another Profiler was entered")
    if _state.tenancy is not None:
        if _state.tenancy.recorder is not recorder:
            _state.owed = weakref.ref(recorder)
        return "another Profiler of this process is recording"
    owed, _state.owed = (_state.owed() if _state.owed is not None else None), None
    if owed is not None and owed is not recorder and owed in _state.recorders:
        return "it is the turn of another Profiler of this process, which had no window for one of this one's"
    return "another profiler of torch is running" if others.is_one_there() else None


def _is_abandoned(tenant: Recorder, recorder: Recorder) -> bool:
    """Whether the one that records has stood still while the other made steps, as one that an interrupted cell of a
    notebook has left behind. Two that are in one loop are a step apart at most."""
    seen = _state.recorders.get(recorder)
    if seen is None or tenant is recorder or recorder.steps_done - seen.steps < 2:
        return False
    return seen.others.get(tenant) == tenant.steps_done


def occupy(recorder: Recorder, *, cuda: bool) -> Tenancy:
    """Become the one that records.

    Args:
        cuda: Whether a device's work is recorded too.

    Raises:
        Occupied: where another profiler is in the way.
    """
    if _state.tenancy is not None or others.is_one_there():
        raise Occupied("another profiler is running; end it before the window begins")
    _state.tenancy, _state.has_recorded = Tenancy(recorder, cuda=cuda), True
    return _state.tenancy


def _at_exit() -> None:
    if _state.tenancy is not None:
        _state.tenancy.end_with_the_process()


def _in_a_child() -> None:
    """A forked child has none of its parent's profilers, and ends as it would without them."""
    tenancy, _state.tenancy = _state.tenancy, None
    recorders, _state.recorders = list(_state.recorders), weakref.WeakKeyDictionary()
    for recorder in recorders:
        # What it holds of the device's, as events, is not the child's to give back, which would end it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(recorder))
        recorder.forget()
    spans.set_recording(False)
    others.unwatch()
    if not _state.has_recorded:
        return
    # Kineto waits at exit for a thread that a child does not have.
    _leave_without_destructors()
    if tenancy is not None and _profiler_enabled():
        # What the child does would pile up in its memory, unread.
        sys.setprofile(None)
        with suppress(Exception):
            if tenancy.cuda:
                # To stop, the driver would be asked, of whose threads the child has none.
                _toggle_collection_dynamic(False, {ProfilerActivity.CPU})
            else:
                _disable_profiler()


def _leave_without_destructors() -> None:
    """Let the process end, once Python has ended in order and with its exit status, without C++ taking apart what is
    still in use."""
    on_exit = getattr(_LIBC, "on_exit", None)
    if on_exit is not None:  # the GNU C library's
        # In reverse order.
        on_exit(ctypes.cast(_LIBC._exit, ctypes.c_void_p), None)
        on_exit(ctypes.cast(_LIBC.fcloseall, ctypes.c_void_p), None)


def _end_what_is_due(_: object) -> int:
    tenancy = _state.tenancy
    if tenancy is not None and tenancy.due is not None:
        try:
            tenancy.recorder.cut_short(tenancy.due)
        except BaseException as error:
            # As of a signal that has come meanwhile: it goes on from here, which C would not let it do.
            _RAISE_IN_THREAD(ctypes.c_ulong(threading.get_ident()), ctypes.py_object(type(error)))
    return 0


_LIBC = ctypes.CDLL(None)
_CALLBACK = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_END_WHAT_IS_DUE = _CALLBACK(_end_what_is_due)
_ADD_PENDING_CALL = ctypes.pythonapi.Py_AddPendingCall
_ADD_PENDING_CALL.argtypes = [_CALLBACK, ctypes.c_void_p]
_RAISE_IN_THREAD = ctypes.pythonapi.PyThreadState_SetAsyncExc
