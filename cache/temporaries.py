"""Names of temporary files in a store. They show whether the process that writes the file is still alive.

A name contains host, process namespace and process. The age of a file cannot tell a slow writer from a dead one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def temporary_prefix() -> str:
    """The beginning of all names of this process."""
    return f"{_namespace()}{os.getpid()}."


def remove_abandoned(folder: Path) -> None:
    """Delete the files of dead processes of this machine. Raises OSError."""
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
