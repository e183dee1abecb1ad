"""Calls to one gRPC server, with encoded messages: time limits, metadata and errors.

Only `Calls()` imports `grpcio`. Its retries are off, because the callers retry.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NoReturn

from mlcbuild.cache.remote.grpc import errors
from mlcbuild.cache.remote.grpc.address import GrpcAddress
from mlcbuild.cache.remote.settings import ServerSettings
from mlcbuild.cache.remote.throughput_deadline import Watchdog
from mlcbuild.cache.remote.transport import ErrorKind, TransportError

MOST_RECEIVED_BYTES = 64 << 20  # in one message
_MOST_PIECE_BYTES = 1 << 19
_IN_FLIGHT_BYTES = 1 << 20  # bytes that gRPC and the system may hold for a slow line
_SHORTEST_SECRET = 4


class Calls:
    """Thread-safe. Raises TransportError for unreadable certificates, and if grpcio is not installed."""

    def __init__(self, address: GrpcAddress, settings: ServerSettings) -> None:
        # Otherwise its C++ code also reports failed connections on stderr.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            import grpc
        except ImportError:
            raise TransportError(
                f"{address} needs grpcio, which is not installed",
                kind=ErrorKind.UNUSABLE,
                advice=('install it: pip install "mlcbuild[grpc]"',),
            ) from None
        self._address = address
        self._deadlines = settings.deadlines
        self._metadata = tuple((name.lower(), value) for name, value in settings.headers)
        self._secrets = _secrets(settings)
        self._closed = False
        self._rpc_error = grpc.RpcError
        self._cancelled = grpc.FutureCancelledError
        options = (
            ("grpc.primary_user_agent", "mlcbuild"),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_receive_message_length", MOST_RECEIVED_BYTES + (1 << 16)),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            # In spite of its name, this is the timeout of one attempt to connect.
            ("grpc.min_reconnect_backoff_ms", int(settings.deadlines.connect * 1000)),
        )
        if address.is_encrypted:
            credentials = grpc.ssl_channel_credentials(*_certificates(settings))
            self._channel = grpc.secure_channel(address.target, credentials, options)
        else:
            self._channel = grpc.insecure_channel(address.target, options)

    @property
    def piece_bytes(self) -> int:
        """The largest size of a message in a stream. Progress is only seen between messages."""
        return min(_MOST_PIECE_BYTES, self._deadlines.piece_bytes)

    def unary(
        self, method: str, request: bytes, doing: str, *, size_bytes: int = 0, seconds: float | None = None
    ) -> bytes:
        """Send one message, return the answer. The time limit depends on `size_bytes`, the bytes of both together."""
        timeout = self._deadlines.total_for(size_bytes) if seconds is None else seconds
        try:
            answer: bytes = self._call("unary_unary", method, request, timeout)
        except self._rpc_error as error:
            self._fail(error, doing)
        return answer

    def read(self, method: str, request: bytes, doing: str, *, size_bytes: int) -> Generator[bytes, None, None]:
        """The messages of a stream, within its throughput deadline; closing the iterator cancels the call."""
        call = self._call("unary_stream", method, request, self._deadlines.total_for(size_bytes))
        deadline = self._deadlines.transfer(idle=self._deadlines.idle)
        try:
            with Watchdog(lambda: deadline.left, call.cancel) as watch:
                while True:
                    try:
                        message: bytes = next(call)
                    except StopIteration:
                        return
                    except self._rpc_error as error:
                        self._fail(error, doing, watch)
                    deadline.moved(len(message))
                    with deadline.paused():
                        yield message
        finally:
            call.cancel()

    def write(self, method: str, messages: Iterator[bytes], doing: str, *, size_bytes: int) -> tuple[bytes, bool]:
        """The answer to a stream, and whether the server took all of it: it may answer before the end.

        Another thread consumes `messages` as fast as the server takes them. A TransportError of `messages` is raised
        again.
        """
        deadlines = self._deadlines
        deadline = deadlines.transfer(idle=deadlines.idle)
        failures: list[TransportError] = []
        taken: list[bool] = []

        def watched() -> Iterator[bytes]:
            try:
                for message in messages:
                    yield message
                    deadline.moved(len(message))  # The next message is requested when this one has been sent.
            except TransportError as error:
                failures.append(error)
            else:
                taken.append(True)
                # The server now writes the blob to its disk.
                deadline.allow_silence(in_flight=min(size_bytes, _IN_FLIGHT_BYTES))

        calls: list[Any] = []
        with Watchdog(lambda: deadline.left, lambda: [call.cancel() for call in calls]) as watch:
            call = self._call("stream_unary", method, watched(), deadlines.total_for(size_bytes))
            calls.append(call)
            answer, failure = b"", None
            try:
                answer = call.result()
            except (self._rpc_error, self._cancelled) as error:
                failure = error
            finally:
                call.cancel()
        if failures:  # The server's answer to an incomplete blob does not matter.
            raise failures[0] from None
        if failure is not None:
            self._fail(failure, doing, watch)
        return answer, bool(taken)

    def close(self) -> None:
        self._closed = True
        self._channel.close()

    def _call(self, kind: str, method: str, argument: Any, timeout: float) -> Any:
        start = getattr(self._channel, kind)(method)
        try:
            return (start.future if kind == "stream_unary" else start)(
                argument, timeout=timeout, metadata=self._metadata
            )
        except ValueError:  # raised by a closed channel
            if not self._closed:
                raise
            raise self._gone() from None

    def _gone(self) -> TransportError:
        return TransportError(f"the connection to {self._address} is closed", kind=ErrorKind.UNUSABLE)

    def _fail(self, error: Any, doing: str, watch: Watchdog | None = None) -> NoReturn:
        if watch is not None and watch.has_cut:
            raise errors.of_status("DEADLINE_EXCEEDED", "", 0.0, doing) from None
        if self._closed:
            raise self._gone() from None
        if not hasattr(error, "code"):
            raise errors.of_status("CANCELLED", "", 0.0, doing) from None
        raise errors.of_call(error, doing, self._secrets) from None


def _secrets(settings: ServerSettings) -> tuple[str, ...]:
    """The secrets that a server could quote: the values of headers, and `x` of `Bearer x`."""
    words = {word for _, value in settings.headers for word in (value, value.rpartition(" ")[2])}
    return tuple(sorted((word for word in words if len(word) >= _SHORTEST_SECRET), key=len, reverse=True))


def _certificates(settings: ServerSettings) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Trusted roots, key and chain. The system's roots replace those of grpcio, as users expect."""
    authorities = settings.authorities or ssl.get_default_verify_paths().cafile
    try:
        return (
            None if authorities is None else Path(authorities).read_bytes(),
            None if settings.client_key is None else settings.client_key.read_bytes(),
            None if settings.client_certificate is None else settings.client_certificate.read_bytes(),
        )
    except OSError as error:
        raise TransportError(
            f"the certificates in {error.filename} cannot be read: {error.strerror}", kind=ErrorKind.DENIED
        ) from None
