"""``trainer.devices=N``: the job's processes on this machine, started and watched by torch's own elastic launcher."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import tempfile
from collections.abc import Mapping, Sequence
from types import FrameType

from harness import console, search_path
from harness.distributed.stop import wished
from harness.errors import UsageError

SHUTDOWN_S = "120"
"""How long processes that were told to stop may take, with their step, their checkpoint and their last window."""


class ProcessesEnded(Exception):
    """The processes ended with an error that they have reported themselves; ``status`` is theirs."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the job's processes ended with status {status}")
        self.status = status


def count(devices: int | str) -> int:
    """The processes that ``trainer.devices`` asks for on this machine.

    Raises:
        UsageError: for a value that is neither ``auto`` nor a number of at least 1.
    """
    if devices == "auto":
        import torch

        return max(1, torch.cuda.device_count())
    if isinstance(devices, bool) or not isinstance(devices, int) or devices < 1:
        raise UsageError(f"trainer.devices={devices}: must be at least 1, or auto for every GPU of this machine")
    return devices


def run(arguments: Sequence[str], *, processes: int, max_restarts: int, threads: int | None) -> None:
    """Train as ``python -m harness.train ARGUMENTS`` does in so many processes, to their end.

    Args:
        max_restarts: How often all are started again after one has failed.
        threads: CPU threads of torch in each; None shares the machine's cores.

    Raises:
        ProcessesEnded: where they failed or a signal ended them.
    """
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    def closed(number: int, frame: FrameType | None) -> None:
        # It comes from the kernel and from the shell, and the second must not end the wait for the processes' end.
        signal.signal(number, signal.SIG_IGN)
        raise SignalException("the terminal was closed", signal.Signals(number))

    if signal.SIGHUP in wished():
        signal.signal(signal.SIGHUP, closed)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or max(1, (os.cpu_count() or 1) // processes)))
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", SHUTDOWN_S)
    # The processes say themselves what is wrong.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="harness-launch-") as logs:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=processes,
            run_id=secrets.token_hex(8),
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=max_restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
            # Without SIGHUP, which may have to stay ignored.
            signals_to_handle="SIGTERM,SIGINT,SIGQUIT",
        )
        try:
            interpreter, *rest = search_path.command("harness.train.__main__:main", *arguments)
            elastic_launch(config, interpreter)(*rest)
        except SignalException as stop:
            raise ProcessesEnded(128 + int(stop.sigval)) from None
        except ChildFailedError as error:
            codes = {rank: failure.exitcode for rank, failure in error.failures.items()}
            raise ProcessesEnded(_status(codes)) from None


def _status(codes: Mapping[int, int]) -> int:
    """Of the exit statuses of ranks that failed, the one that says most; who was killed could not say so."""
    for status in (2, 128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP):
        if status in codes.values():
            return status
    for rank, code in sorted(codes.items()):
        if code < 0 and -code != signal.SIGTERM:
            console.error(f"rank {rank} was ended by {signal.Signals(-code).name}")
    return 1
