"""An XXH3-128 checksum for each stored blob. It finds bit rot and torn writes fast, but is no defence against forgery.

It is an extended attribute of the file, or, on a file system without them, a small file of its own (the index).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

ATTRIBUTE = "user.mlcbuild.xxh3-128"
_CHUNK_BYTES = 256 << 10
_UNSUPPORTED = (errno.ENOTSUP, errno.EPERM, errno.ENOSYS, errno.EINVAL, errno.ERANGE)
CHECKSUM_BYTES = 16


def checksum_of_bytes(data: bytes) -> bytes:
    """16 bytes, big-endian."""
    import xxhash

    return xxhash.xxh3_128_digest(data)


def checksum_of_file(descriptor: int) -> bytes:
    """The checksum of a whole open file. Leaves the position at byte 0. Raises OSError."""
    import xxhash

    state = xxhash.xxh3_128()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        state.update(chunk)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return state.digest()


def write_attribute(descriptor: int, checksum: bytes) -> bool:
    """Write the checksum as an extended attribute. False where the file system has none. Raises other OSErrors."""
    try:
        os.setxattr(descriptor, ATTRIBUTE, checksum)
    except OSError as error:
        # A full attribute block gives ENOSPC although the disk has space. The index is used then too.
        if error.errno in (*_UNSUPPORTED, errno.ENOSPC, errno.EDQUOT):
            return False
        raise
    return True


def read_recorded(descriptor: int, index: Path | str) -> bytes | None:
    """The recorded checksum of an open file: its attribute, else the content of the file `index`, else None."""
    try:
        recorded = os.getxattr(descriptor, ATTRIBUTE)
    except OSError:
        try:
            opened = os.open(index, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # never waits for a pipe's writer
            with os.fdopen(opened, "rb", buffering=0) as stream:
                recorded = stream.read(CHECKSUM_BYTES + 1) or b""
        except OSError:
            return None
    return recorded if len(recorded) == CHECKSUM_BYTES else None
