"""When a result was last used: the modification time of its file, set anew at most once an hour.

The time of access would cost nothing, but many file systems are mounted without it, most with one a day, and a backup
sets it too. A blob has no such time: its file may be a hard link among somebody's outputs, whose stat means that nobody
touched them, so a blob was used when the latest result that names it was.
"""

# ruff: noqa: PTH116
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import contextlib
import os
import time

STAMP_NANOSECONDS = 3600 * 1_000_000_000


def is_there(path: str) -> bool:
    """Whether there is a result's file, which then counts as used."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    # A time in the future, of a clock that was wrong, is set right too: it would keep the result for ever.
    if abs(time.time_ns() - status.st_mtime_ns) > STAMP_NANOSECONDS:
        with contextlib.suppress(OSError):
            os.utime(path)
    return True
