"""Names of files on their way into a store, by which those of processes that were killed are known.

A name tells host, process namespace and process, because a clock cannot tell a slow writer from a dead one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def temporary_prefix() -> str:
    """What the names of this process begin with."""
    return f"{_namespace()}{os.getpid()}."


def remove_abandoned(folder: Path) -> None:
    """Remove what processes of this machine left there when they were killed. Raises OSError."""
    namespace = _namespace()
    for path in folder.iterdir():
        if not path.name.startswith(namespace):
            continue
        process = path.name.removeprefix(namespace).partition(".")[0]
        if process.isdigit() and not _is_alive(int(process)):
            with contextlib.suppress(OSError):
                path.unlink()


def _namespace() -> str:
    try:
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        namespace = 0
    return f"{os.uname().nodename.replace('/', '_')}.{namespace}."


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
