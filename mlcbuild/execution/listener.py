"""The socket on which a fork server accepts clients, if it outlives them, and when it stops to accept.

The fork server loads this file by path. It imports only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class Listener:
    """Accepts clients. `greeting` is the first message to each of them."""

    def __init__(
        self, bound: socket.socket, *, path: str, lock: str, idle_seconds: float, greeting: Mapping[str, Any]
    ) -> None:
        self.socket = bound
        self.idle_seconds = idle_seconds
        self.greeting = greeting
        self._path = path
        self._lock = lock
        bound.setblocking(False)
        self._inode = os.stat(path).st_ino  # noqa: PTH116
        self._loaded = _states(_loaded_files())

    def accept(self) -> socket.socket | None:
        """The next client; None if there is none, or it is a process of another user."""
        try:
            client, _ = self.socket.accept()
        except OSError:
            return None
        client.setblocking(True)
        _, user, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.geteuid():
            client.close()
            return None
        return client

    def is_stale(self) -> bool:
        """Whether a file of what this process has loaded has changed on disk."""
        return _states(self._loaded) != self._loaded

    def closed_unless_somebody_connects(self) -> bool:
        """Remove the socket's path, unless a client is about to connect. Returns whether it was removed."""
        with open(self._lock, "w") as lock:  # noqa: PTH123
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                return False
            if select.select([self.socket], [], [], 0)[0]:
                return False
            self.close()
            return True

    def close(self) -> None:
        """Remove the socket's path, if it is still ours."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:  # noqa: PTH116
                os.unlink(self._path)  # noqa: PTH108


def _loaded_files() -> set[str]:
    """The files of modules and libraries in this process, and the folders of the import path."""
    found = {str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
    with Path("/proc/self/maps").open() as lines:
        found |= {line.split(maxsplit=5)[5].strip() for line in lines if "/" in line}
    return found | set(sys.path)  # An installation changes such a folder.


def _states(paths: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Path → inode, size and modification time; () for what does not exist."""
    states: dict[str, tuple[int, ...]] = {}
    for path in paths:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            states[path] = ()
        else:
            states[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return states
