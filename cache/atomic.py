"""Atomic replacement of small files: the old or the new content is there, whatever happens."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file at `path`; create its folder. Raises OSError, and then leaves no incomplete file.

    The content is not flushed to the disk. Use this for files that have a checksum and can be computed again.
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
