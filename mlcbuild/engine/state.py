"""What a workspace remembers of its last build: each action's key, and how long each kind of action takes.

It lies in `.mlcbuild/`, and nothing depends on it but what is told as up to date and which action runs first.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from mlcbuild.engine.memory import JsonMemory
from mlcbuild.errors import InfrastructureError, LocalEnvironmentError

STATE_FILE = "last-build.json"
LOCK_FILE = "lock"
_KIND = "last build 1"
_MOST_KEYS = 200_000
_WEIGHT_OF_NEW = 0.5


class LastBuild:
    """Keys by action identifier and seconds by mnemonic. `path = None` remembers nothing beyond this object."""

    def __init__(self, path: Path | None) -> None:
        self._memory = JsonMemory(path, kind=_KIND)
        self._keys = _texts(self._memory.get("keys"))
        self._seconds = _numbers(self._memory.get("seconds"))
        self._changed = False

    @property
    def seconds_by_mnemonic(self) -> Mapping[str, float]:
        return self._seconds

    def key_of(self, identifier: str) -> str:
        """The hash of the action's last key; "" where it is not known."""
        return self._keys.get(identifier, "")

    def remember_key(self, identifier: str, key: str) -> None:
        if self._keys.get(identifier) != key:
            # The newest stand last, so that those of targets long gone are the first to be dropped.
            self._keys.pop(identifier, None)
            self._keys[identifier] = key
            self._changed = True

    def remember_seconds(self, mnemonic: str, seconds: float) -> None:
        """Take a new measurement in: half of it and half of what was known."""
        known = self._seconds.get(mnemonic, seconds)
        self._seconds[mnemonic] = known + _WEIGHT_OF_NEW * (seconds - known)
        self._changed = True

    def save(self) -> None:
        """Write the file where something changed. A disk that cannot take it costs time later, nothing else."""
        if not self._changed:
            return
        for identifier in list(self._keys)[: max(0, len(self._keys) - _MOST_KEYS)]:
            del self._keys[identifier]
        self._memory.set("keys", self._keys)
        self._memory.set("seconds", self._seconds)
        self._memory.save()
        self._changed = False


def _texts(value: object) -> dict[str, str]:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return value
    return {}


def _numbers(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {name: float(item) for name, item in value.items() if isinstance(item, (int, float)) and item >= 0}


class WorkspaceLockedError(InfrastructureError):
    """Another build works in this workspace, and the user did not want to wait."""


class WorkspaceLock:
    """One build at a time in a workspace: a context manager around a lock on `.mlcbuild/lock`.

    Where another holds it, `waits` is told who, and entering waits; without `block` it raises
    WorkspaceLockedError. The lock goes with the process, however that ends.
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
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
