"""Copies of files. They share blocks where the file system can do that (reflinks: btrfs, XFS)."""

from __future__ import annotations

import errno
import fcntl
import os

# `FICLONE` of linux/fs.h, _IOW(0x94, 9, int).
_FICLONE = 0x40049409
_CANNOT_CLONE = (
    errno.EOPNOTSUPP,
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOTTY,
    errno.ENOSYS,
    errno.EPERM,
    errno.ETXTBSY,
)
_CHUNK_BYTES = 1 << 20
_AT_ONCE_BYTES = 1 << 30


def clone_or_copy(source: int, destination: str, *, mode: int = 0o600) -> bool:
    """Copy an open file to `destination`, which must not exist. True if the copy shares the file's blocks.

    Raises OSError; the caller removes an incomplete `destination`.
    """
    descriptor = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        cloned = _clone(source, descriptor)
        if not cloned:
            _copy(source, descriptor)
        if mode != 0o600:
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
    return cloned


def _clone(source: int, destination: int) -> bool:
    try:
        fcntl.ioctl(destination, _FICLONE, source)
    except OSError as error:
        if error.errno in _CANNOT_CLONE:
            return False
        raise
    return True


def _copy(source: int, destination: int) -> None:
    os.lseek(source, 0, os.SEEK_SET)
    copied = 0
    try:
        while count := os.copy_file_range(source, destination, _AT_ONCE_BYTES):
            copied += count
        if copied:
            return
    except OSError as error:
        if copied or error.errno not in (*_CANNOT_CLONE, errno.EBADF, errno.EIO):
            raise
    while chunk := os.read(source, _CHUNK_BYTES):
        view = memoryview(chunk)
        while view:
            view = view[os.write(destination, view) :]
