"""File systems that fail: a library that is preloaded into a program, built here from ``shim.c``.

::

    python("-m", "harness", "runs", str(logdir), cwd=..., **failing("flock=ENOLCK;open:run.json=EIO@2+"))
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("shim.c")
RULES = "HARNESS_SHIM"
CLOCK = "HARNESS_SHIM_CLOCK"


@cache
def library() -> Path:
    """The built library; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    built = Path(tempfile.mkdtemp(prefix="harness-shim-")) / "shim.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True)
    return built


def failing(rules: str = "", clock: str = "") -> dict[str, str]:
    """The environment of a program whose files fail so, and whose clock jumps so; children that it starts inherit it.

    A process that was started with no rules obeys those that it finds in its environment later.
    """
    before = os.environ.get("LD_PRELOAD")
    jumping = {CLOCK: clock} if clock else {}
    return {"LD_PRELOAD": f"{library()}{os.pathsep + before if before else ''}", RULES: rules, **jumping}
