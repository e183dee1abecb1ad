"""A socket that no server can hold up: each wait ends at the longest silence or at the call's deadline.

A time-out of a plain socket bounds one system call. A server that sends a header a byte at a time keeps to it for
ever, so the time that is left is set anew before each call. `http.client` takes the class here for a socket.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import time
from typing import Any

_BUFFER_BYTES = 1 << 18


class TimedSocket:
    """`idle`: seconds of silence that are too many. `deadline`: of the monotonic clock, set before each use."""

    def __init__(self, plain: socket.socket, *, idle: float, deadline: float) -> None:
        self.plain = plain
        self.deadline = deadline
        self._idle = idle
        self._poll = select.poll()
        self._poll.register(plain.fileno(), select.POLLIN)

    def arm(self) -> float:
        """Bound the next system call, by the seconds it gives. Raises TimeoutError where the deadline has passed."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline of the call passed")
        self.plain.settimeout(min(left, self._idle))
        return min(left, self._idle)

    def is_readable(self) -> bool:
        """Whether bytes, or the end, wait to be read: in an idle connection, that it is of no use any more."""
        return bool(self._poll.poll(0))

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            self.arm()
            view = view[self.plain.send(view) :]

    def send_unless_answered(self, data: bytes) -> bool:
        """Send all of `data`, or stop once there is something to read: a server that wants no more reads no more.

        An encrypted connection may have things to read that are no answer, so there all is sent.
        """
        if isinstance(self.plain, ssl.SSLSocket):
            self.sendall(data)
            return True
        view = memoryview(data)
        both = select.poll()
        both.register(self.plain.fileno(), select.POLLIN | select.POLLOUT)
        while view:
            events = both.poll(self.arm() * 1000)
            if not events:
                raise TimeoutError("nothing was taken for too long")
            if events[0][1] & ~select.POLLOUT:
                return False
            view = view[self.plain.send(view) :]
        return True

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Incoming(self), _BUFFER_BYTES)

    def close(self) -> None:
        """The system's socket stays open until what `makefile` gave is closed too."""
        self.plain.close()


class _Incoming(io.RawIOBase):
    def __init__(self, timed: TimedSocket) -> None:
        self._timed = timed
        self._stream = timed.plain.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._timed.arm()
        return self._stream.readinto(buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()
