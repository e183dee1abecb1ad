"""A socket that no server can hold up: each wait ends by the deadline of its request.

The timeout of a plain socket limits one system call, so a server that sends one byte at a time can go on for ever. Here
the remaining time is set before each call. Time between calls does not count. `http.client` uses this class like a
socket.
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
    """A socket with a deadline. `begin` is called before each request."""

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
        """Limit the next system call to the remaining time, which is returned. Raises TimeoutError if there is none."""
        self._deadline.resume()
        left = self._deadline.left
        if left <= 0:
            raise TimeoutError("the time limit of the call has passed")
        self.plain.settimeout(left)
        return left

    def came(self, count: int) -> None:
        """`count` bytes were received. The clock stops until the next system call."""
        self._deadline.moved(count)
        self._deadline.pause()

    def wait_for_arrival(self) -> None:
        """Wait until everything sent is acknowledged or there is something to read. Raises TimeoutError."""
        if isinstance(self.plain, ssl.SSLSocket) and self.plain.pending():
            return
        held = unacknowledged_bytes(self.plain.fileno())
        while held and not self._poll.poll(min(self.arm(), _LOOK_SECONDS) * 1000):
            left = unacknowledged_bytes(self.plain.fileno())
            if left != held:
                self._deadline.moved(self._acknowledged.update(sent=0, unacknowledged=left))
            held = left

    def is_readable(self) -> bool:
        """Whether there is something to read. An idle connection with something to read is unusable."""
        return bool(self._poll.poll(0))

    def sendall(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            self.arm()
            view = view[self._send(view) :]

    def send_unless_answered(self, data: bytes) -> bool:
        """Send `data`, but stop if there is something to read: the server then reads no more. Answer whether all was
        sent.

        On a TLS connection all is sent, because there may be something to read that is not an answer.
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
                raise TimeoutError("the server accepted no bytes for too long")
            if events[0][1] & ~select.POLLOUT:
                return False
            view = view[self._send(view) :]
        return True

    def _send(self, view: memoryview) -> int:
        count = self.plain.send(view)
        self._deadline.moved(
            self._acknowledged.update(sent=count, unacknowledged=unacknowledged_bytes(self.plain.fileno()))
        )
        self._deadline.pause()
        return count

    def makefile(self, mode: str = "rb") -> io.BufferedReader:
        assert mode == "rb"
        return io.BufferedReader(_Incoming(self), _BUFFER_BYTES)

    def close(self) -> None:
        """The system's socket stays open until the file of `makefile` is closed too."""
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
