"""Where the clients of a fork server that outlives them come in, and when it is closed.

The fork server loads this file by path; it imports the standard library only.
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
    """Where clients come in. `greeting` is what they are told first."""

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
        self._loaded = _state_of_what_is_loaded()

    def accept(self) -> socket.socket | None:
        """The next client, if it is a process of the same user."""
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
        return _state_of_what_is_loaded(self._loaded) != self._loaded

    def closed_unless_somebody_connects(self) -> bool:
        """Take the path away, unless a client is about to connect."""
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
        """Take the path away, where it is still ours."""
        with contextlib.suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:  # noqa: PTH116
                os.unlink(self._path)  # noqa: PTH108


def _state_of_what_is_loaded(paths: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """The files of modules and libraries in this process, or those given, and what they look like."""
    found = set(paths)
    if not found:
        found |= {str(module.__file__) for module in list(sys.modules.values()) if getattr(module, "__file__", None)}
        found |= {line.split(maxsplit=5)[5].strip() for line in Path("/proc/self/maps").open() if "/" in line}  # noqa: SIM115
        found |= set(sys.path)  # an installation changes the folder
    states: dict[str, tuple[int, ...]] = {}
    for path in found:
        try:
            status = os.stat(path)  # noqa: PTH116
        except OSError:
            states[path] = ()
        else:
            states[path] = (status.st_ino, status.st_size, status.st_mtime_ns)
    return states
