"""``python -m harness.timeline TRACE FOLDER``: prepare one trace, in a process that can be lost."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.errors import UsageError
from harness.timeline.prepare import prepare

source, folder = map(Path, sys.argv[1:])
try:
    prepare(source, folder)
except UsageError as error:
    sys.exit(str(error))
