"""What has arrived of the bytes that a socket was given: the system takes megabytes at once, a slow line does not."""

from __future__ import annotations

import fcntl
import struct
import termios

_INTEGER = struct.Struct("i")


def unacknowledged_bytes(descriptor: int) -> int:
    """Bytes that a TCP socket was given and whose receipt nobody has confirmed; 0 where the system does not tell."""
    try:
        (count,) = _INTEGER.unpack(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(_INTEGER.size)))
    except OSError:
        return 0
    return int(count)


class AcknowledgedBytes:
    """Of one request. Not thread-safe."""

    def __init__(self) -> None:
        self._given = 0
        self._arrived = 0

    def arrived(self, *, given: int, held: int) -> int:
        """How many bytes have arrived since the last call, once `given` more were given and `held` are on their way."""
        self._given += given
        before, self._arrived = self._arrived, max(self._arrived, self._given - held)
        return self._arrived - before
