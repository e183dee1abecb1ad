"""Small files that are either the old ones or the new ones, whole, whenever the machine stops."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace `path` by a file of these bytes; makes its folder. Raises OSError, leaving nothing half-written.

    The content is not forced to the disk: meant for files that can be computed again and carry their own
    checksum.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
