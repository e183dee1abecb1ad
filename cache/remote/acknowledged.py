"""How many bytes a server has acknowledged. A socket accepts megabytes at once, which a slow line
takes long to send.
"""

from __future__ import annotations

import fcntl
import struct
import termios

_INTEGER = struct.Struct("i")


def unacknowledged_bytes(descriptor: int) -> int:
    """The bytes in a TCP socket that are not yet acknowledged. 0 if the system does not tell."""
    try:
        (count,) = _INTEGER.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INTEGER.size)))
    except OSError:
        return 0
    return int(count)


class AcknowledgedBytes:
    """The acknowledged bytes of one request. Not thread-safe."""

    def __init__(self) -> None:
        self._sent = 0
        self._acknowledged = 0

    def update(self, *, sent: int, unacknowledged: int) -> int:
        """How many bytes were acknowledged since the last call. `sent` more were written,
        `unacknowledged` are pending.
        """
        self._sent += sent
        before, self._acknowledged = self._acknowledged, max(self._acknowledged, self._sent - unacknowledged)
        return self._acknowledged - before
