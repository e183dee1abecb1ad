"""XXH3-128 beside blobs at rest: it finds bit rot and torn writes fast, names nothing, resists no forger.

It is kept as an extended attribute of the file, or, on a file system without them, in a small file of an
index.
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
    """The checksum of an open file from its start; the position is left at byte 0. Raises OSError."""
    import xxhash

    state = xxhash.xxh3_128()
    os.lseek(descriptor, 0, os.SEEK_SET)
    while chunk := os.read(descriptor, _CHUNK_BYTES):
        state.update(chunk)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return state.digest()


def attach(descriptor: int, checksum: bytes) -> bool:
    """Write the checksum as an extended attribute; False where the file system has none.

    Raises OSError otherwise.
    """
    try:
        os.setxattr(descriptor, ATTRIBUTE, checksum)
    except OSError as error:
        # A full attribute block says ENOSPC on a disk with space left; the index takes over there too.
        if error.errno in (*_UNSUPPORTED, errno.ENOSPC, errno.EDQUOT):
            return False
        raise
    return True


def attached(descriptor: int, index: Path | str) -> bytes | None:
    """The recorded checksum of an open file: its attribute, else the content of `index`; None where neither
    is there.
    """
    try:
        recorded = os.getxattr(descriptor, ATTRIBUTE)
    except OSError:
        try:
            recorded = Path(index).read_bytes()
        except OSError:
            return None
    return recorded if len(recorded) == CHECKSUM_BYTES else None
