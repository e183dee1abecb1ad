"""Opens files that should be regular ones, without waiting: opening a pipe in such a place waits for its writer.

A pipe, socket, device or folder is an OSError, like a file that cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat

_CHUNK_BYTES = 1 << 20


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """The descriptor of a regular file, by default for reading. Raises OSError; its `strerror` says what is wrong."""
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise IsADirectoryError(errno.EISDIR, "it is not a regular file", os.fspath(path))
    return descriptor


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file. Raises OSError."""
    with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
        return stream.readall()
