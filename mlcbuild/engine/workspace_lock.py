"""The lock that lets one build at a time work in a workspace."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from mlcbuild.errors import InfrastructureError, LocalEnvironmentError
from mlcbuild.regular_files import open_regular

LOCK_FILE = "lock"


class WorkspaceLockedError(InfrastructureError):
    """Another build works in this workspace, and the user does not want to wait."""


class WorkspaceLock:
    """A context manager that locks `.mlcbuild/lock`.

    Where another process holds the lock, entering calls `waits` with a message that names it, and waits. Without
    `block` it raises WorkspaceLockedError instead. The kernel frees the lock when the process ends, in whatever way.
    """

    def __init__(
        self, state_directory: Path, *, block: bool = True, waits: Callable[[str], object] = lambda _: None
    ) -> None:
        self._path = state_directory / LOCK_FILE
        self._block = block
        self._waits = waits
        self._descriptor = -1

    def __enter__(self) -> WorkspaceLock:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise LocalEnvironmentError(
                f"the workspace's lock {self._path} cannot be opened: {error.strerror or error}",
                advice=("check the owner and mode of that path",),
            ) from error
        try:
            self._take()
        except BaseException:
            os.close(self._descriptor)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _take(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise LocalEnvironmentError(
                    f"the workspace cannot be locked: {error.strerror or error}",
                    advice=("is .mlcbuild/ on a file system without locks?",),
                ) from error
            holder = os.pread(self._descriptor, 64, 0).decode(errors="replace").strip()
            who = f"process {holder}" if holder.isdigit() else "another process"
            if not self._block:
                raise WorkspaceLockedError(
                    f"{who} is building in this workspace", advice=("wait for it, or end it",)
                ) from None
            self._waits(f"waiting for {who}, which is building in this workspace")
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.ftruncate(self._descriptor, 0)
        # For whoever waits. On a full disk nobody is told, and `mlcbuild clean` can still make room.
        with contextlib.suppress(OSError):
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
