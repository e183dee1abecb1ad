"""Records the paths that Python code of a stage tried to read (PEP 578), even if it ignored the error.

The fork server loads this file by path. It imports only the standard library.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from typing import Any

_LOCAL_FAMILIES = (socket.AF_UNIX, socket.AF_NETLINK)
_DEVICES, _SHARED_MEMORY = "/dev/", "/dev/shm/"


class ReadAudit:
    """An audit hook that denies reads outside a policy, and records their paths in `undeclared`, in order."""

    def __init__(self, policy: dict[str, Any]) -> None:
        self.undeclared: list[str] = []
        self.tried_network = False
        self._network = bool(policy["network"])
        readable = (*policy["read"], *policy["write"], policy["directory"])
        self._exact = frozenset(readable)
        self._below = tuple(path.rstrip("/") + "/" for path in readable)

    def watch(self) -> None:
        """From now on, for good: Python cannot remove such a hook."""
        sys.addaudithook(self._hook)

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if not flags & (os.O_WRONLY | os.O_RDWR):  # Landlock denies writes elsewhere.
                self._check(path)
        elif event in ("os.listdir", "os.scandir"):
            self._check(arguments[0])
        elif event == "socket.__new__" and arguments[1] not in _LOCAL_FAMILIES:
            self.tried_network = not self._network

    def _check(self, given: object) -> None:
        if not isinstance(given, str | bytes | os.PathLike):
            return
        path = os.fsdecode(given)
        if not path or (path[0] != "/" and ".." not in path):
            return  # It is in the action's directory, where links lead to inputs.
        if self._is_declared(os.path.abspath(path)) or self._is_declared(os.path.realpath(path)):  # noqa: PTH100
            return
        if not os.path.lexists(path):
            return
        if path not in self.undeclared:
            self.undeclared.append(path)
        raise PermissionError(errno.EACCES, "not an input of this action", path)

    def _is_declared(self, path: str) -> bool:
        if path in self._exact or path.startswith(self._below):
            return True  # also in shared memory, where a workspace, a cache or a directory of actions may lie
        return f"{path}/".startswith(_DEVICES) and not f"{path}/".startswith(_SHARED_MEMORY)
