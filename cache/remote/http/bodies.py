"""Sending a request with its body, and reading the body of an answer, in bounded memory."""

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
_DRAINED_BYTES = 1 << 16  # what nobody wants is read up to here, so that its connection can be used again


@dataclass(frozen=True, kw_only=True)
class RequestBody:
    """What a PUT sends: `size_bytes` of a stream, from where it stands. `name` is for people."""

    stream: BinaryIO
    size_bytes: int
    name: str
    on_sent: OnSent = ignore_progress

    def chunks(self) -> Iterator[bytes]:
        """Raises TransportError where the stream cannot be read or ends early."""
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
    """A file of this machine: nothing that the server or a setting could help, and perhaps there again later."""
    return TransportError(f"sending {name}: it cannot be read: {error.strerror or error}", kind=ErrorKind.TRANSIENT)


def send(
    connection: Connection, method: str, target: str, headers: Mapping[str, str], body: RequestBody | None
) -> bool:
    """Whether all was sent: a server may answer, or hang up, before it has read a body that it does not want.

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
    """The body, to its end or to where it is cut. Raises TransportError."""
    while True:
        try:
            chunk = response.read(_CHUNK_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise errors.of_exception(error, doing) from None
        if not chunk:
            return
        yield chunk


def announced(response: http.client.HTTPResponse) -> int | None:
    """The `Content-Length`; None where the body is sent without."""
    text = response.getheader("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else None


def read_to_the_end(response: http.client.HTTPResponse) -> bool:
    """Whether the connection can be used again: nothing, or little, of the body was left, and the server keeps it."""
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
    # A body of a known length is closed by reading its last byte, one in pieces by reading its end.
    return response.isclosed() or (response.length == 0 and not response.read(1))
