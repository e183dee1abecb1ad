"""A server of Bazel's HTTP cache protocol on loopback, which can be told to go wrong.

It keeps what is PUT in memory, and a log of all that was asked. A fault is a function that is given the request before
it is answered; it answers in its own way, or breaks the connection, and says whether that was all.
"""

from __future__ import annotations

import contextlib
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET


class Handler(BaseHTTPRequestHandler):
    """`GET`, `HEAD` and `PUT`; below `cache` for clients with the right `Authorization` only, where one is set."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: CacheServer

    def do_GET(self) -> None:
        self._handle()

    def do_HEAD(self) -> None:
        self._handle()

    def do_PUT(self) -> None:
        self._handle()

    def do_CONNECT(self) -> None:
        self._handle()

    def _handle(self) -> None:
        cache = self.server.cache
        authorization = self.headers.get("Authorization")
        cache.log.append(Asked(self.command, self.path, dict(self.headers.items()), id(self.connection)))
        for fault in list(cache.faults):
            if fault(self):
                return
        if cache.authorization and authorization != cache.authorization:
            self.refuse(401)
        elif self.command == "PUT":
            length = int(self.headers["Content-Length"])
            body = self.rfile.read(length)
            if len(body) != length:
                self.close_connection = True
            elif self.headers.get("If-None-Match") == "*" and self.path in cache.blobs:
                self.answer(412)
            else:
                cache.blobs[self.path] = body
                self.answer(200)
        else:
            body_or_none = cache.blobs.get(self.path)
            if body_or_none is None:
                self.answer(404, b"nothing here")
            else:
                self.answer(200, body_or_none)

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int) -> None:
        """Answer without reading the body, and hang up."""
        self.answer(status, headers={"Connection": "close"})
        self.close_connection = True

    def reset(self) -> None:
        """Close so that the client is told of a reset."""
        self.connection.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


Fault = Callable[[Handler], bool]


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    connection: int


@dataclass
class Cache:
    """What one server holds and has seen."""

    address: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    authorization: str = ""

    def methods(self) -> list[str]:
        return [asked.method for asked in self.log]


class CacheServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no error of the server's."""


@contextlib.contextmanager
def running(certificate: Path | None = None) -> Iterator[Cache]:
    """A server of its own; with `certificate` (a PEM of chain and key) it speaks TLS."""
    cache = Cache()
    server = CacheServer(cache)
    scheme = "http"
    if certificate is not None:
        scheme = "https"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    cache.address = f"{scheme}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield cache
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def status(code: int, *, headers: dict[str, str] | None = None, times: int = 1) -> Fault:
    """Answer with that status, so many times."""
    left = [times]

    def fault(handler: Handler) -> bool:
        if not left[0]:
            return False
        left[0] -= 1
        length = int(handler.headers.get("Content-Length", "0"))
        handler.rfile.read(length)
        handler.answer(code, b"what went wrong, at length", headers)
        return True

    return fault


def reset(handler: Handler) -> bool:
    handler.reset()
    return True


def cut_short(handler: Handler) -> bool:
    """Announce the whole body, send half of it, close."""
    body = handler.server.cache.blobs[handler.path]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True
    return True


def stall(handler: Handler) -> bool:
    """Announce the whole body, send half of it, and then nothing until the client has gone."""
    body = handler.server.cache.blobs[handler.path]
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: len(body) // 2])
    handler.connection.settimeout(10)
    with contextlib.suppress(OSError):
        handler.connection.recv(1)
    handler.close_connection = True
    return True


def trickle_headers(handler: Handler) -> bool:
    """A header that never ends, a byte at a time: never silent for long."""
    end = time.monotonic() + 10
    with contextlib.suppress(OSError):
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\nX-Endless: ")
        while time.monotonic() < end:
            handler.connection.sendall(b"x")
            time.sleep(0.02)
    handler.close_connection = True
    return True


def in_pieces(handler: Handler) -> bool:
    """The body chunked, without its length."""
    body = handler.server.cache.blobs[handler.path]
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    middle = len(body) // 2
    for piece in (*filter(None, (body[:middle], body[middle:])), b""):
        handler.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
    return True


def redirect(location: str, code: int = 302) -> Fault:
    def fault(handler: Handler) -> bool:
        handler.rfile.read(int(handler.headers.get("Content-Length", "0")))
        handler.answer(code, b"elsewhere", {"Location": location + handler.path})
        return True

    return fault
