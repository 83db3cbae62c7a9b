"""Names of runs, which sort by time and are safe for TensorBoard's plugin, and how ``conf/`` comes by them."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256

from omegaconf import OmegaConf


def new_name() -> str:
    """A name for a run or a sweep: it sorts by time, and no other job has it."""
    return f"{time.strftime('%Y-%m-%d_%H-%M-%S')}_{secrets.token_hex(2)}"


@contextmanager
def resolvers(this_run: str) -> Iterator[None]:
    """While entered, ``${run_dir:...}`` and ``${sweep_subdir:...}`` of ``conf/`` say where the run or sweep lies that
    has this name. OmegaConf keeps one table of resolvers for the whole process, so two commands at once have one."""

    def run_dir(logdir: str, name: str, resume: str | None) -> str:
        """Where a single run lies: in the run that it resumes, or in one of its own."""
        return resume or f"{logdir}/{name}/{this_run}"

    def sweep_subdir(sweep: str | None, number: int, overrides: str) -> str:
        """The directory of one of a sweep's runs, below the experiment."""
        return f"{sweep or this_run}_{number:03d}" + (f"_{safe_name(overrides)}" if overrides else "")

    mine: dict[str, Callable[..., str]] = {"run_dir": run_dir, "sweep_subdir": sweep_subdir}
    for name, resolver in mine.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    try:
        yield
    finally:
        for name in mine:
            OmegaConf.clear_resolver(name)


def safe_name(text: str, longest: int = 120) -> str:
    """``text`` with letters, digits and ``. _ - = ,`` alone; one that had to be cut ends in a hash of the whole."""
    safe = re.sub(r"[^A-Za-z0-9._=,-]+", "-", re.sub(r"[\[\]{}()'\"\s+]", "", text)).strip("-.,")
    if len(safe) <= longest:
        return safe
    return f"{safe[: longest - 9]}-{sha256(text.encode()).hexdigest()[:8]}"
