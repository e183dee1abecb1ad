"""Opens files that should be regular ones, without waiting: opening a pipe in such a place waits for its writer. And
walks over all files below a folder, whatever links lead there.

A pipe, socket, device or folder in place of a file is an OSError, like a file that cannot be read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

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


def walk_through_links(
    folder: str | os.PathLike[str], *, refuse_loops: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Like `os.walk`, but also below links to folders, and without silence about what cannot be listed.

    A link to a folder that holds it is not followed, or refused with `refuse_loops` (ELOOP). Raises OSError for
    a folder that cannot be listed.
    """

    def fail(error: OSError) -> None:
        raise error

    above: dict[str, frozenset[tuple[int, int]]] = {os.fspath(folder): frozenset({_identity(folder)})}
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=fail):
        holders = above.pop(parent)
        yield parent, folders, files
        for name in tuple(folders):
            path = os.path.join(parent, name)  # noqa: PTH118
            identity = _identity(path)
            if identity not in holders:
                above[path] = holders | {identity}
            elif refuse_loops:
                raise OSError(errno.ELOOP, "it is a link to a folder that holds it", path)
            else:
                folders.remove(name)


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int]:
    status = os.stat(folder)  # noqa: PTH116
    return status.st_dev, status.st_ino
