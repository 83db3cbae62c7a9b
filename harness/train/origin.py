"""Where a run comes from: its command, and the versions that its result depends on."""

from __future__ import annotations

import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import harness
from harness.credentials import masked


def command_line() -> str:
    """The command of this process, as one would type it: without what ``train`` adds for a sweep."""
    added = ("sweep=", "hydra.job.config.override_dirname.exclude_keys=", "hydra.run.dir=")
    kept = [masked(text, whole=True) for text in sys.argv[1:] if not text.startswith(added)]
    return f"{Path(sys.argv[0]).name} {shlex.join(kept)}"


def versions() -> dict[str, str | None]:
    """Versions of what a result depends on; None for what is not installed."""
    from importlib import metadata

    found: dict[str, str | None] = {"harness": harness.__version__, "python": platform.python_version()}
    for package in ("torch", "torchvision", "numpy", "tensorboard", "torch-tb-profiler", "hydra-core"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = None
    return found


def git_revision() -> dict[str, Any] | None:
    """Revision and state of the checkout that the command was given in, None where there is none."""
    try:
        revision = _git("rev-parse", "HEAD")
        return {"revision": revision, "dirty": bool(_git("status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, timeout=5).stdout.strip()
