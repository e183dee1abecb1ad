"""A directory for the actions of one executor. Directories that killed executors left are removed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PREFIX = "run-"
_LOCK = "lock"


class Scratch:
    """`directory` belongs to this process alone. A lock marks it as used, and is released when the process dies."""

    def __init__(self, parent: Path) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        self.directory = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)).resolve()
        self._lock = os.open(self.directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._numbers = itertools.count(1)

    def new(self) -> Path:
        """An empty directory. Raises OSError."""
        path = self.directory / str(next(self._numbers))
        path.mkdir()
        return path

    def close(self) -> None:
        """Remove everything."""
        remove(self.directory)
        os.close(self._lock)


def remove(directory: Path) -> None:
    """Remove a tree, whatever modes its directories have. What cannot be removed stays for the next time."""
    with contextlib.suppress(OSError):
        _remove_plainly(str(directory))
        return
    with contextlib.suppress(OSError):
        shutil.rmtree(directory, onerror=_make_writable_and_retry)


def _remove_plainly(directory: str) -> None:
    """Takes a third of the time of rmtree, which guards against links that others create meanwhile. Raises OSError."""
    with os.scandir(directory) as entries:
        inside = list(entries)
    for entry in inside:
        if entry.is_dir(follow_symlinks=False):
            _remove_plainly(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108
    os.rmdir(directory)  # noqa: PTH106


def _make_writable_and_retry(function: Callable[..., Any], path: str, reason: Any) -> None:
    error = reason[1]
    if isinstance(error, FileNotFoundError):
        return
    if not isinstance(error, PermissionError):
        raise error
    for changed in (Path(path).parent, Path(path)):
        if changed.is_dir() and not changed.is_symlink():
            changed.chmod(stat.S_IRWXU)
    if function is os.unlink or function is os.rmdir:
        function(path)
    else:
        shutil.rmtree(path)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        try:
            lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # It is just being created, or is not one of ours.
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(directory)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
        finally:
            os.close(lock)
