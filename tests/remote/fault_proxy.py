"""A proxy between a client and an HTTP server that does to chosen requests what networks and servers do.

It reads each request whole, asks its faults in order for the first that wants it, and counts every request. HTTP/1.1
with Content-Length or chunked bodies; it answers `Expect: 100-continue` itself.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Request:
    method: str
    target: str  # path and query, as sent
    headers: dict[str, str]  # names in lower case
    body: bytes  # in `FaultProxy.requests`, its first 4,096

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]


Wanted = Callable[[Request], bool]


def anything(request: Request) -> bool:
    return True


@dataclass(kw_only=True)
class Fault:
    """One thing that goes wrong, `times` times (for ever where it is -1), for requests that `wanted` picks.

    Exactly one of the actions is set. `status` answers without asking the server. `reset` closes with RST before
    the server is asked, `lost_response` after it has answered. `cut` passes on so many bytes of the body and closes.
    `stall` passes on nothing, or so many bytes of the body, and keeps silent. `flip` changes one byte of the body,
    `flip_upload` one of the request's. `trickle` sends the response a byte at a time, with so many seconds between;
    with `claims` too, the answer to a GET is made up: an object of so many bytes, of which a byte comes at a time.
    `bytes_per_second` sends the body at so many bytes a second.
    """

    wanted: Wanted = anything
    times: int = 1
    status: int = 0
    code: str = "InternalError"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    reset: bool = False
    lost_response: bool = False
    cut: int = -1
    stall: int = -1
    flip: bool = False
    flip_upload: bool = False
    trickle: float = 0.0
    claims: int = 0
    bytes_per_second: int = 0
    hits: int = 0


def slow_down(seconds: int | None = None, **settings: object) -> Fault:
    """503 SlowDown, with Retry-After where seconds are given."""
    headers = () if seconds is None else (("Retry-After", str(seconds)),)
    return Fault(status=503, code="SlowDown", headers=headers, **settings)  # type: ignore[arg-type]


@dataclass(kw_only=True)
class FaultProxy:
    """Listens while the block of `faulty` lasts; tests append to `faults` and read `requests`.

    `rewrite` makes another request of each that is passed on, `answer_headers` take the place of the server's.
    `reading_bytes_per_second`: bytes a second at which bodies of requests are read; 0: as they come.
    """

    port: int
    upstream: tuple[str, int]
    faults: list[Fault] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    rewrite: Callable[[Request], Request] = field(default=lambda request: request)
    answer_headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    reading_bytes_per_second: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str | None = None, path: str | None = None, query: str = "") -> int:
        """How many requests came of a method, to a path, with a text in the query."""
        with self.lock:
            return sum(
                method in (None, each.method) and path in (None, each.path) and query in each.query
                for each in self.requests
            )

    def counts(self) -> collections.Counter[tuple[str, str]]:
        with self.lock:
            return collections.Counter((each.method, each.path) for each in self.requests)

    def take(self, request: Request) -> Fault | None:
        with self.lock:
            self.requests.append(dataclasses.replace(request, body=request.body[:4096]))
            for fault in self.faults:
                if fault.times and fault.wanted(request):
                    fault.times -= 1
                    fault.hits += 1
                    return fault
        return None


@contextlib.contextmanager
def faulty(port: int) -> Iterator[FaultProxy]:
    """A proxy in front of 127.0.0.1:`port`."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        proxy = FaultProxy(port=listener.getsockname()[1], upstream=("127.0.0.1", port))
        listener.settimeout(0.1)
        acceptor = threading.Thread(target=_accept, args=(proxy, listener), name="fault proxy", daemon=True)
        acceptor.start()
        try:
            yield proxy
        finally:
            proxy.ended.set()
            acceptor.join()


def _accept(proxy: FaultProxy, listener: socket.socket) -> None:
    threads = []
    while not proxy.ended.is_set():
        try:
            client, _ = listener.accept()
        except TimeoutError:
            continue
        client.settimeout(None)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        thread = threading.Thread(target=_serve, args=(proxy, client), name="fault proxy", daemon=True)
        thread.start()
        threads.append((thread, client))
    for thread, client in threads:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        thread.join(timeout=5)


def _serve(proxy: FaultProxy, client: socket.socket) -> None:
    """Requests of one connection, each over a connection of its own to the server."""
    with client, contextlib.suppress(OSError, ValueError), client.makefile("rb") as reader:
        while not proxy.ended.is_set():
            head = _head(reader)
            if head is None:
                return
            first, headers = head
            if headers.get("expect", "").lower() == "100-continue":
                client.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = (
                _read_slowly(proxy, client, reader, headers)
                if proxy.reading_bytes_per_second
                else _body(reader, headers)
            )
            request = Request(method=first.split()[0], target=first.split()[1], headers=headers, body=body)
            if not _answer(proxy, request, client):
                return


def _answer(proxy: FaultProxy, request: Request, client: socket.socket) -> bool:
    """Whether the connection may be used again."""
    fault = proxy.take(request)
    if fault is None:
        return _forward(proxy, request, client, None)
    if fault.status:
        client.sendall(_made_up(request, fault))
        return True
    if fault.reset:
        _reset(client)
        return False
    if fault.claims:
        return _claim(proxy, client, fault, request)
    if fault.flip_upload:
        spoiled = dataclasses.replace(request, body=_flipped(request.body))
        return _forward(proxy, spoiled, client, None)
    return _forward(proxy, request, client, fault)


def _flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 0x40])


def _made_up(request: Request, fault: Fault) -> bytes:
    body = fault.body
    if body is None:
        body = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>made up</Message></Error>".encode()
    if request.method == "HEAD":
        body = b""
    lines = [
        f"HTTP/1.1 {fault.status} Made Up",
        "Content-Type: application/xml",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in fault.headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _forward(proxy: FaultProxy, request: Request, client: socket.socket, fault: Fault | None) -> bool:
    request = proxy.rewrite(request)
    with socket.create_connection(proxy.upstream, timeout=60) as server, server.makefile("rb") as answers:
        passed_on = {**request.headers, "connection": "close", "content-length": str(len(request.body))}
        for name in ("expect", "transfer-encoding"):
            passed_on.pop(name, None)
        if request.method in ("GET", "HEAD", "DELETE") and not request.body:
            passed_on.pop("content-length")
        lines = [f"{request.method} {request.target} HTTP/1.1", *(f"{key}: {text}" for key, text in passed_on.items())]
        server.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + request.body)
        head = _head(answers)
        if head is None:
            return False
        first, headers = head
        if fault is not None and fault.lost_response:
            _body(answers, headers, method=request.method, status=first.split()[1])
            _reset(client)
            return False
        headers.pop("connection", None)
        headers.update(proxy.answer_headers)
        length = 0 if request.method == "HEAD" else int(headers.get("content-length", "0"))
        if headers.get("transfer-encoding", "").lower() == "chunked" and request.method != "HEAD":
            body: Iterator[bytes] = iter([_body(answers, headers, method=request.method, status=first.split()[1])])
            whole = next(body)
            headers.pop("transfer-encoding")
            headers["content-length"] = str(len(whole))
            length, body = len(whole), iter([whole])
        else:
            body = _pieces(answers, length)
        reply = "\r\n".join([first, *(f"{key}: {text}" for key, text in headers.items()), "", ""]).encode("latin-1")
        if fault is None:
            client.sendall(reply)
            for piece in body:
                client.sendall(piece)
            return True
        return _spoil(proxy, client, fault, reply, b"".join(body))


def _spoil(proxy: FaultProxy, client: socket.socket, fault: Fault, reply: bytes, body: bytes) -> bool:
    if fault.flip:
        client.sendall(reply + _flipped(body))
        return True
    if fault.cut >= 0:
        client.sendall(reply + body[: fault.cut])
        return False
    if fault.stall >= 0:
        client.sendall(reply + body[: fault.stall] if fault.stall else b"")
        proxy.ended.wait(60)
        return False
    if fault.bytes_per_second:
        client.sendall(reply)
        for piece in throttled(proxy.ended, body, fault.bytes_per_second):
            client.sendall(piece)
        return True
    for byte in reply + body:
        client.sendall(bytes([byte]))
        if proxy.ended.is_set():
            return False
        time.sleep(fault.trickle)
    return True


def _claim(proxy: FaultProxy, client: socket.socket, fault: Fault, request: Request) -> bool:
    first, size, total = "200 OK", fault.claims, fault.claims
    lines = []
    if "range" in request.headers:
        begin, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        size = int(last) - int(begin) + 1
        first = "206 Partial Content"
        lines.append(f"Content-Range: bytes {begin}-{last}/{total}")
    client.sendall("\r\n".join([f"HTTP/1.1 {first}", f"Content-Length: {size}", *lines, "", ""]).encode())
    while not proxy.ended.wait(fault.trickle):
        client.sendall(b"x")
    return False


def throttled(ended: threading.Event, data: bytes, bytes_per_second: int) -> Iterator[bytes]:
    """Pieces of `data`, each when its time has come."""
    step = max(1, bytes_per_second // 20)
    began = time.monotonic()
    for start in range(0, len(data), step):
        ended.wait(max(0.0, began + start / bytes_per_second - time.monotonic()))
        yield data[start : start + step]


def _read_slowly(proxy: FaultProxy, client: socket.socket, reader: io.BufferedReader, headers: dict[str, str]) -> bytes:
    """A body of a known length. What the system keeps for a reader that is slow is made small."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 17)
    left = int(headers.get("content-length", "0"))
    step = max(1, proxy.reading_bytes_per_second // 20)
    pieces = []
    while left:
        piece = reader.read(min(step, left))
        if not piece or proxy.ended.wait(len(piece) / proxy.reading_bytes_per_second):
            raise OSError("the body ended")
        left -= len(piece)
        pieces.append(piece)
    return b"".join(pieces)


def _reset(client: socket.socket) -> None:
    """Whoever closes it next sends RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _head(reader: io.BufferedReader) -> tuple[str, dict[str, str]] | None:
    """The first line and the headers; None at the end of the connection."""
    first = reader.readline().decode("latin-1").rstrip("\r\n")
    if not first:
        return None
    headers = {}
    while line := reader.readline().decode("latin-1").rstrip("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, headers


def _body(reader: io.BufferedReader, headers: dict[str, str], *, method: str = "PUT", status: str = "200") -> bytes:
    if method == "HEAD" or status in ("204", "304"):
        return b""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        pieces = []
        while size := int(reader.readline().split(b";")[0], 16):
            pieces.append(reader.read(size))
            reader.readline()
        while reader.readline().strip():
            pass
        return b"".join(pieces)
    return reader.read(int(headers.get("content-length", "0")))


def _pieces(reader: io.BufferedReader, length: int) -> Iterator[bytes]:
    while length:
        piece = reader.read(min(length, 1 << 18))
        if not piece:
            return
        length -= len(piece)
        yield piece
