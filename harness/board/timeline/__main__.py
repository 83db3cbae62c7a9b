"""``python -m harness.board.timeline TRACE FOLDER``: prepare one trace, in a process that can be lost."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.board.timeline.prepare import prepare
from harness.errors import UsageError

source, folder = map(Path, sys.argv[1:])
try:
    prepare(source, folder)
except UsageError as error:
    sys.exit(str(error))
