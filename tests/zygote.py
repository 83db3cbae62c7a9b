"""Starts ``harness`` commands in a moment: a process that has imported all that is not ours, and forks.

Every command is a process of its own that imports the harness afresh; only torch and its like, seconds of
start-up, are shared. Scripts that a test has written start from it too, and end as any Python does. Requests are
JSON lines on stdin, answered with the child's pid; its exit status goes to the file that the request names.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from faults import kill_at

PRELOADED = (
    "hydra",
    "msgspec",
    "omegaconf",
    "rich.progress",
    "sklearn.datasets",
    "torch",
    "torch._dynamo",
    "torch._inductor.config",
    "torch.distributed.checkpoint.state_dict",
    "torch.profiler",
    "torch.utils.tensorboard",
    "torchvision.models",
    "torchvision.transforms.v2",
    "typer",
)


def become(request: dict[str, Any]) -> None:
    """Make this process look as if a shell had started it."""
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Which whoever runs the tests may ignore, under nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number, where in ((0, os.devnull), (1, request["stdout"]), (2, request["stderr"])):
        # Whoever leads a session and opens a terminal to read too has it as its own, whose end it is told.
        mode = os.O_RDWR if where.startswith("/dev/pts/") else os.O_WRONLY
        opened = os.open(where, os.O_RDONLY if number == 0 else mode | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # The folder of this script is no part of the path of a command.
    del sys.path[0]
    sys.path[:0] = [path for path in os.environ["PYTHONPATH"].split(os.pathsep) if path not in sys.path]
    sys.argv = request["argv"]


def end(main: Callable[[], None]) -> None:
    """Run ``main`` and end as a Python does, but for what no command can notice: taking its modules apart.

    A process that shares them with its parent would copy nearly every page of them to do so, for half a second.
    """
    try:
        main()
    except SystemExit as over:
        if over.code is not None and not isinstance(over.code, int):
            raise
        status = over.code or 0
    else:
        status = 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def report_ended(waiting: dict[int, Path]) -> None:
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        path = waiting.pop(pid)
        aside = path.with_suffix(".tmp")
        aside.write_text(str(os.waitstatus_to_exitcode(status)))
        aside.replace(path)


def serve() -> dict[str, Any]:
    """Fork a child for each request, and return its request in it; never return in the parent."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    waiting: dict[int, Path] = {}
    unread = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            report_ended(waiting)
        if 0 not in ready:
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            os._exit(0)
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                os.close(woken)
                os.close(wake)
                become(request)
                return dict(request)
            waiting[pid] = Path(request["status"])
            os.write(1, f"{pid}\n".encode())


if __name__ == "__main__":
    for name in PRELOADED:
        import_module(name)
    # What is in memory by now is not walked by any child's collector, which would copy every page.
    gc.freeze()
    request = serve()
    # The launcher of several ranks hands it on to them, and is no victim itself.
    if kill_at.AT in os.environ and "trainer.devices=2" not in sys.argv:
        kill_at.arm()
    if (script := request.get("script")) is not None:
        # As `python SCRIPT` does, whose end is looked at.
        runpy.run_path(script, run_name="__main__")
    else:
        module, _, function = request["main"].partition(":")
        end(getattr(import_module(module), function))
