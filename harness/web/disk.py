"""Names on disk as a page may have them, and what of the disk it may see."""

from __future__ import annotations

from pathlib import Path


def printable(name: str) -> str:
    """A file's name as JSON takes it: on disk it may be any bytes, which Python's text holds as what is no letter."""
    return name.encode(errors="backslashreplace").decode()


def is_inside(path: Path, logdir: Path) -> bool:
    """Whether a path, after all links, lies below a logdir or is it."""
    try:
        return path.resolve(strict=True).is_relative_to(logdir)
    except (OSError, RuntimeError, ValueError):
        return False
