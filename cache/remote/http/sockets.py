"""A socket that no server can hold up: each wait ends by the deadline of its request.

A time-out of a plain socket bounds one system call. A server that sends a header a byte at a time keeps to it for
ever, so the time that is left is set anew before each call, and what passes between two of them is not the server's.
`http.client` takes the class here for a socket.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
from typing import Any

from mlcbuild.cache.remote.acknowledged import AcknowledgedBytes, unacknowledged_bytes
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline

_BUFFER_BYTES = 1 << 18
_LOOK_SECONDS = 0.25


class TimedSocket:
    """`begin` is called before each use."""

    def __init__(self, plain: socket.socket, deadline: ThroughputDeadline) -> None:
        self.plain = plain
        self.begin(deadline)
        self._poll = select.poll()
        self._poll.register(plain.fileno(), select.POLLIN)

    def begin(self, deadline: ThroughputDeadline) -> None:
        """A new request, which ends by `deadline`."""
        self._deadline = deadline
        self._acknowledged = AcknowledgedBytes()

    def arm(self) -> float:
        """Bound the next system call, by the seconds it gives. Raises TimeoutError where none are left."""
        self._deadline.resume()
        left = self._deadline.left
        if left <= 0:
            raise TimeoutError("the time for the call is over")
        self.plain.settimeout(left)
        return left

    def came(self, count: int) -> None:
        """What a system call brought; until the next one, the time is our own."""
        self._deadline.moved(count)
        self._deadline.pause()

    def wait_for_arrival(self) -> None:
        """Until what was sent has arrived or there is something to read. Raises TimeoutError."""
        if isinstance(self.plain, ssl.SSLSocket) and self.plain.pending():
            return
        held = unacknowledged_bytes(self.plain.fileno())
        while held and not self._poll.poll(min(self.arm(), _LOOK_SECONDS) * 1000):
            left = unacknowledged_bytes(self.plain.fileno())
            if left != held:
                self._deadline.moved(self._acknowledged.arrived(given=0, held=left))
            held = left

    def is_readable(self) -> bool:
        """Whether bytes, or the end, wait to be read: in an idle connection, that it is of no use any more."""
        return bool(self._poll.poll(0))

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            self.arm()
            view = view[self._send(view) :]

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
            view = view[self._send(view) :]
        return True

    def _send(self, view: memoryview) -> int:
        count = self.plain.send(view)
        self._deadline.moved(self._acknowledged.arrived(given=count, held=unacknowledged_bytes(self.plain.fileno())))
        self._deadline.pause()
        return count

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
        self._timed.wait_for_arrival()
        self._timed.arm()
        count = self._stream.readinto(buffer)
        self._timed.came(count or 0)
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()
