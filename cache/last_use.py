"""When a result was last used: the modification time of its file, updated at most once an hour.

The access time is not used. Many file systems are mounted without it, most update it once a day, and backups change it.
A blob's file has no such time: it may be a hard link among the outputs of a workspace, and changing its times would
make those outputs look modified. So a blob counts as used when the latest result that names it was used.
"""

# ruff: noqa: PTH116
# Paths are strings here: making a Path costs more than the system call that it is for.

from __future__ import annotations

import contextlib
import os
import stat
import time

STAMP_NANOSECONDS = 3600 * 1_000_000_000


def mark_used(path: str) -> bool:
    """Mark a result's file as used now. False where there is no such file."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    if not stat.S_ISREG(status.st_mode):
        return False
    # A time in the future, from a wrong clock, is corrected too. It would keep the result for ever.
    if abs(time.time_ns() - status.st_mtime_ns) > STAMP_NANOSECONDS:
        with contextlib.suppress(OSError):
            os.utime(path)
    return True
