"""Request and response bodies, sent and read in bounded memory."""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mlcbuild.cache.remote.http import errors
from mlcbuild.cache.remote.http.connections import Connection
from mlcbuild.cache.remote.transport import ErrorKind, OnSent, TransportError, ignore_progress

_CHUNK_BYTES = 1 << 18
_DRAINED_BYTES = 1 << 16  # An unwanted body of at most this size is read, so that the connection can be reused.


@dataclass(frozen=True, kw_only=True)
class RequestBody:
    """The body of a PUT: `size_bytes` of a stream, from its current position. `name` is for messages."""

    stream: BinaryIO
    size_bytes: int
    name: str
    on_sent: OnSent = ignore_progress

    def chunks(self) -> Iterator[bytes]:
        """The body in pieces. Raises TransportError if the stream cannot be read or ends early."""
        left = self.size_bytes
        while left:
            try:
                chunk = self.stream.read(min(left, _CHUNK_BYTES))
            except OSError as error:
                raise unreadable(self.name, error) from None
            if not chunk:
                raise TransportError(
                    f"sending {self.name}: it ends {left} bytes before its size of {self.size_bytes}",
                    kind=ErrorKind.TRANSIENT,
                )
            left -= len(chunk)
            yield chunk
            self.on_sent(len(chunk))


def unreadable(name: Path | str, error: OSError) -> TransportError:
    """The error for an unreadable local file. It is transient, because the file may be readable later."""
    return TransportError(f"sending {name}: it cannot be read: {error.strerror or error}", kind=ErrorKind.TRANSIENT)


def send(
    connection: Connection, method: str, target: str, headers: Mapping[str, str], body: RequestBody | None
) -> bool:
    """Send a request. Answer whether all was sent: a server may answer or close before it has read the body.

    Raises what sockets and `http.client` raise, and TransportError for the body.
    """
    client = connection.client
    client.putrequest(method, connection.prefix + (target or "/"), skip_accept_encoding=True)
    sent = {"Accept-Encoding": "identity", "User-Agent": "mlcbuild", **headers}
    if connection.proxy_authorization:
        sent["Proxy-Authorization"] = connection.proxy_authorization
    if body is not None:
        sent |= {"Content-Length": str(body.size_bytes), "Content-Type": "application/octet-stream"}
    for name, value in sent.items():
        client.putheader(name, value)
    client.endheaders()
    for chunk in () if body is None else body.chunks():
        try:
            if not connection.timed.send_unless_answered(chunk):
                return False
        except (BrokenPipeError, ConnectionResetError):
            return False
    return True


def chunks(response: http.client.HTTPResponse, doing: str) -> Iterator[bytes]:
    """The body in pieces, to its end or to where the connection breaks. Raises TransportError."""
    while True:
        try:
            chunk = response.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise errors.of_exception(error, doing) from None
        if not chunk:
            return
        yield chunk


def announced(response: http.client.HTTPResponse) -> int | None:
    """The `Content-Length`, or None."""
    text = response.getheader("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def read_to_the_end(response: http.client.HTTPResponse) -> bool:
    """Whether the connection can be reused: little of the body was left, and the server keeps the connection."""
    if response.will_close:
        return False
    if response.isclosed():
        return True
    if response.length is not None and response.length > _DRAINED_BYTES:
        return False
    try:
        response.read(_DRAINED_BYTES)
    except (OSError, http.client.HTTPException):
        return False
    # A body of known length ends with its last byte, a chunked body only with its end marker.
    return response.isclosed() or (response.length == 0 and not response.read(1))
