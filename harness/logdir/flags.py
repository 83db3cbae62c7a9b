"""What TensorBoard was started on: its ``--logdir`` and ``--logdir_spec``, as TensorBoard itself takes them.

::

    --logdir DIR                    one directory, whatever stands in its name
    --logdir_spec a:DIR,b:DIR,DIR   several, with names or without

A ``--logdir`` that is no directory, while what it lists are some, is taken for such a list too, which it could be once;
TensorBoard's own dashboards are empty then.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from harness.logdir.scan import Logdir

_ADDRESS = re.compile(r"[a-zA-Z][0-9a-zA-Z.]*://.*", re.DOTALL)
"""Of another file system than this machine's, which nobody looks through here."""


def logdirs_of(context: Any) -> list[Logdir]:
    """Those of a TensorBoard, by the context that it gives to its plugins."""
    flags = context.flags
    if flags is None:
        return logdirs(getattr(context, "logdir", None) or "")
    return logdirs(getattr(flags, "logdir", None) or "", getattr(flags, "logdir_spec", None) or "")


def logdirs(logdir: str, spec: str = "") -> list[Logdir]:
    """The directories, be they there or not, after links. Of one that is named twice the last name counts."""
    if not logdir:
        return _listed(spec)
    if _ADDRESS.match(logdir):
        return []
    whole = _real(logdir)
    if not whole.is_dir():
        several = _listed(logdir)
        if any(one.path.is_dir() for one in several):
            return several
    return [Logdir("", whole)]


def _listed(text: str) -> list[Logdir]:
    found: dict[Path, str] = {}
    parts = [part for part in text.split(",") if part]
    for part in parts:
        name, colon, path = part.partition(":")
        # A path that begins with a slash may hold colons.
        if not colon or part.startswith("/") or _ADDRESS.match(part):
            name, path = "", part
        if _ADDRESS.match(path):
            continue
        place = _real(path)
        found[place] = name or (place.name if len(parts) > 1 else "")
    return [Logdir(name, place) for place, name in found.items()]


def _real(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))
