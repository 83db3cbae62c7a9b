"""Files that are whole or not there, locks that end with their process, and reading what is a regular file only."""

from harness.files.whole import (
    TEMPORARY,
    atomic_write,
    is_inside,
    persistently,
    printable,
    reason,
    remove_folder,
    remove_leftovers,
    sync_folder,
    why_refused,
)
from harness.trace.file.opening import SMALL, NotRegularError, open_regular, read_regular, regular_descriptor

__all__ = [
    "SMALL",
    "TEMPORARY",
    "NotRegularError",
    "atomic_write",
    "is_inside",
    "open_regular",
    "persistently",
    "printable",
    "read_regular",
    "reason",
    "regular_descriptor",
    "remove_folder",
    "remove_leftovers",
    "sync_folder",
    "why_refused",
]
