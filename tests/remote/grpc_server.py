"""A small server of the Remote Execution API on loopback, which can be told to go wrong.

It keeps blobs and results in memory, for one instance and one digest function, and a log of the calls. A fault is a
function that is given the method, the request and the context before the call is answered: it may end the call, and
what it returns, unless None, is the answer.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from mlcbuild.cache import wire
from mlcbuild.cache.digest import DigestFunction
from mlcbuild.cache.reapi import decode_digest

Fault = Callable[[str, bytes, Any], "bytes | None"]
MAIN = "main"


@dataclass
class Server:
    """What one server holds and has seen. Faults are asked in order, and stay."""

    function: DigestFunction
    address: str = ""
    blobs: dict[str, bytes] = field(default_factory=dict)  # by hash/size
    results: dict[str, bytes] = field(default_factory=dict)
    log: list[tuple[str, bytes]] = field(default_factory=list)  # method and first message
    names: list[str] = field(default_factory=list)  # resource names that streams were about
    metadata: list[dict[str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    most_batched_bytes: int = 0
    most_blob_bytes: int = 0
    piece_bytes: int = 100_000  # of a Read
    after_piece: Callable[[], object] = lambda: None  # called after each piece of a Read
    after_request: Callable[[int], object] = lambda _count: None  # called with the bytes of each message of a Write
    answers_early: bool = False  # a Write of what is there, before its end

    def methods(self) -> list[str]:
        return [method for method, _ in self.log]

    # Unary calls

    def unary(self, method: str, request: bytes, context: Any) -> bytes:
        told = self._begin(method, request, context)
        if told is not None:
            return told
        fields = wire.parse(request)
        if wire.one_text(fields, 1) != MAIN:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such instance")
        answers: dict[str, Callable[[wire.Fields], bytes | None]] = {
            "GetCapabilities": self._capabilities,
            "FindMissingBlobs": self._find_missing,
            "BatchUpdateBlobs": self._batch_update,
            "BatchReadBlobs": self._batch_read,
            "GetActionResult": self._get_result,
            "UpdateActionResult": self._update_result,
        }
        answer = answers[method](fields)
        if answer is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such result")
        assert answer is not None
        return answer

    def _capabilities(self, _: wire.Fields) -> bytes:
        cache = wire.bytes_field(1, wire.varint(self.function.reapi_number)) + wire.bytes_field(2, b"\x08\x01")
        limits = wire.integer_field(4, self.most_batched_bytes) + wire.integer_field(8, self.most_blob_bytes)
        return wire.bytes_field(1, cache + limits)

    def _find_missing(self, fields: wire.Fields) -> bytes:
        absent = [item for item in wire.all_bytes(fields, 2) if str(decode_digest(item)) not in self.blobs]
        return b"".join(wire.bytes_field(2, item) for item in absent)

    def _batch_update(self, fields: wire.Fields) -> bytes:
        answers = []
        for item in wire.all_bytes(fields, 2):
            update = wire.parse(item)
            digest = wire.one_bytes(update, 1) or b""
            self.blobs[str(decode_digest(digest))] = wire.one_bytes(update, 2) or b""
            answers.append(wire.bytes_field(1, wire.bytes_field(1, digest) + wire.bytes_field(2, b"")))
        return b"".join(answers)

    def _batch_read(self, fields: wire.Fields) -> bytes:
        answers = []
        for item in wire.all_bytes(fields, 2):
            content = self.blobs.get(str(decode_digest(item)))
            found = wire.bytes_field(3, b"\x08\x05") if content is None else wire.bytes_field(2, content)
            answers.append(wire.bytes_field(1, wire.bytes_field(1, item) + found))
        return b"".join(answers)

    def _get_result(self, fields: wire.Fields) -> bytes | None:
        return self.results.get(str(decode_digest(wire.one_bytes(fields, 2) or b"")))

    def _update_result(self, fields: wire.Fields) -> bytes:
        result = wire.one_bytes(fields, 3) or b""
        self.results[str(decode_digest(wire.one_bytes(fields, 2) or b""))] = result
        return result

    # Streams

    def read(self, request: bytes, context: Any) -> Iterator[bytes]:
        name = wire.one_text(wire.parse(request), 1)
        self.names.append(name)
        told = self._begin("Read", request, context)
        if told is not None:
            yield told
            return
        content = self.blobs.get("/".join(name.split("/")[-2:]))
        if content is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such blob")
        assert content is not None
        for start in range(0, len(content), self.piece_bytes):
            yield wire.bytes_field(10, content[start : start + self.piece_bytes])
            self.after_piece()

    def write(self, requests: Iterator[bytes], context: Any) -> bytes:
        received = bytearray()
        name, is_finished = "", False
        for request in requests:
            fields = wire.parse(request)
            if not name:
                name = wire.one_text(fields, 1)
                self.names.append(name)
                told = self._begin("Write", request, context)
                if told is not None:
                    return told
                size = int(name.split("/")[-1])
                if self.answers_early and "/".join(name.split("/")[-2:]) in self.blobs:
                    return wire.integer_field(1, size)
            assert wire.one_integer(fields, 2) == len(received)
            received += wire.one_bytes(fields, 10) or b""
            is_finished = wire.one_flag(fields, 3)
            self.after_request(len(request))
        if not is_finished:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the stream ended before the blob")
        self.blobs["/".join(name.split("/")[-2:])] = bytes(received)
        return wire.integer_field(1, len(received))

    def _begin(self, method: str, request: bytes, context: Any) -> bytes | None:
        self.log.append((method, request))
        self.metadata.append(dict(context.invocation_metadata()))
        for fault in list(self.faults):
            told = fault(method, request, context)
            if told is not None:
                return told
        return None


def _handlers(server: Server) -> list[Any]:
    def unary(method: str) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda request, context: server.unary(method, request, context))

    services = {
        "build.bazel.remote.execution.v2.Capabilities": ["GetCapabilities"],
        "build.bazel.remote.execution.v2.ContentAddressableStorage": [
            "FindMissingBlobs",
            "BatchUpdateBlobs",
            "BatchReadBlobs",
        ],
        "build.bazel.remote.execution.v2.ActionCache": ["GetActionResult", "UpdateActionResult"],
    }
    handlers = [
        grpc.method_handlers_generic_handler(service, {method: unary(method) for method in methods})
        for service, methods in services.items()
    ]
    streams = {
        "Read": grpc.unary_stream_rpc_method_handler(server.read),
        "Write": grpc.stream_unary_rpc_method_handler(server.write),
    }
    return [*handlers, grpc.method_handlers_generic_handler("google.bytestream.ByteStream", streams)]


@contextlib.contextmanager
def running(
    function: DigestFunction = DigestFunction.SHA256, certificate: Path | None = None, port: int = 0
) -> Iterator[Server]:
    """A server of its own; with `certificate` (a PEM of key and chain) it speaks TLS."""
    server = Server(function=function)
    with ThreadPoolExecutor(8) as threads:
        # Its limit on a message is gRPC's own, 4 MiB.
        peer = grpc.server(threads, options=[("grpc.so_reuseport", 0)])
        peer.add_generic_rpc_handlers(_handlers(server))
        if certificate is None:
            port = peer.add_insecure_port(f"127.0.0.1:{port}")
        else:
            pem = certificate.read_bytes()
            port = peer.add_secure_port(f"127.0.0.1:{port}", grpc.ssl_server_credentials([(pem, pem)]))
        peer.start()
        server.address = f"grpc{'s' if certificate else ''}://127.0.0.1:{port}/{MAIN}"
        try:
            yield server
        finally:
            peer.stop(0).wait()


def ending(code: Any, details: str = "", only: str = "", trailing: tuple[tuple[str, bytes], ...] = ()) -> Fault:
    """End calls, of one method or of all, with a status."""

    def fault(method: str, request: bytes, context: Any) -> bytes | None:
        if not only or method == only:
            context.set_trailing_metadata(trailing)
            context.abort(code, details)
        return None

    return fault


def answering(answer: bytes, only: str = "") -> Fault:
    """Answer calls, of one method or of all, with those bytes."""

    def fault(method: str, request: bytes, context: Any) -> bytes | None:
        return answer if not only or method == only else None

    return fault


def holding(released: threading.Event, arrived: threading.Barrier | None = None) -> Fault:
    """Keep calls waiting, once as many as `arrived` wants have come."""

    def fault(method: str, request: bytes, context: Any) -> bytes | None:
        if arrived is not None:
            arrived.wait(10)
        released.wait(10)
        return None

    return fault
