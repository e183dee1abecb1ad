"""One measurement at a time on a machine, whoever tunes there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlcbuild.cache.disk import default_root
from mlcbuild.errors import LocalEnvironmentError
from mlcbuild.regular_files import open_regular


@contextmanager
def measuring_here(*, waits: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of this machine's devices, which lies in the user's cache folder for every disk cache.
    The kernel frees it when the process ends. Raises LocalEnvironmentError where it cannot be opened or taken."""
    with measuring_in(default_root() / "tuning", waits=waits):
        yield


@contextmanager
def measuring_in(folder: Path, *, waits: Callable[[str], object]) -> Iterator[None]:
    """Hold the lock of a folder of measurements, which machines may share. Raises as `measuring_here` does."""
    path = folder / "measuring.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise LocalEnvironmentError(
            f"the lock {path} cannot be opened: {error.strerror or error}",
            advice=("check the owner and mode of that path",),
        ) from error
    try:
        _take(descriptor, path, waits)
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path, waits: Callable[[str], object]) -> None:
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            waits("waiting for another process that measures on this machine")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        raise LocalEnvironmentError(
            f"the lock {path} cannot be taken: {error.strerror or error}",
            advice=("is that folder on a file system without locks?",),
        ) from error
