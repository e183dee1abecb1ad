"""An end for whatever a server does: time-outs of sockets bound each silence, a deadline bounds the whole.

A server that sends a byte now and then keeps every time-out of a socket from running out. So each exchange notes its
sockets, and when its time is over, or its operation is given up, they are shut down under whoever waits for them.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

_local = threading.local()


class Exchange:
    """A request and its response; `cut` ends it from any thread."""

    def __init__(self) -> None:
        self.is_cut = False
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def note(self, connection: socket.socket) -> None:
        with self._lock:
            if not self.is_cut:
                self._sockets.append(connection)
                return
        raise TimeoutError("the time for this request is over")

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            for each in self._sockets:
                # The socket's own method: that of an encrypted one would take its state from under the reader.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def end(self) -> None:
        with self._lock:
            self._sockets.clear()


class Operation:
    """One call of a transport: all its requests end by `seconds` from now, or when it is cancelled.

    As a context manager it is cancelled by an error that leaves the block.
    """

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._exchanges: set[Exchange] = set()

    def __enter__(self) -> Operation:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()

    @property
    def remaining(self) -> float:
        """Seconds; 0 where it is over or cancelled."""
        return 0.0 if self._cancelled.is_set() else max(0.0, self._end - time.monotonic())

    def cancel(self) -> None:
        self._cancelled.set()
        with self._lock:
            for each in self._exchanges:
                each.cut()

    def sleep(self, seconds: float) -> bool:
        """Wait; False, at once, where the operation would be over by then."""
        return seconds < self.remaining and not self._cancelled.wait(seconds)

    @contextlib.contextmanager
    def exchange(self, seconds: float) -> Iterator[Exchange]:
        """What the calling thread asks of a watched client in the block ends within `seconds`."""
        exchange = Exchange()
        timer = threading.Timer(min(seconds, self.remaining), exchange.cut)
        timer.daemon = True
        with self._lock:
            self._exchanges.add(exchange)
        outer = getattr(_local, "exchange", None)
        _local.exchange = exchange
        timer.start()
        try:
            yield exchange
        finally:
            timer.cancel()
            _local.exchange = outer
            exchange.end()
            with self._lock:
                self._exchanges.discard(exchange)


def watch(client: Any) -> None:
    """Let a boto client's connections be noted by the exchange of the thread that uses them.

    botocore offers no door to its sockets, so the classes of its pools are changed for ours. In a version that keeps
    them elsewhere the sockets' own time-outs remain.
    """
    session = getattr(getattr(client, "_endpoint", None), "http_session", None)
    classes = getattr(session, "_pool_classes_by_scheme", None)
    if classes is not None:
        classes.update(_pool_classes())


def _pool_classes() -> dict[str, type]:
    from botocore import awsrequest

    def watched(connection: type, pool: type) -> type:
        def request(self: Any, *arguments: Any, **named: Any) -> Any:
            exchange: Exchange | None = getattr(_local, "exchange", None)
            if exchange is not None:
                if self.sock is None:
                    self.connect()
                exchange.note(self.sock)
            return connection.request(self, *arguments, **named)  # type: ignore[attr-defined]

        ours = type(f"Watched{connection.__name__}", (connection,), {"request": request})
        return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": ours})

    return {
        "http": watched(awsrequest.AWSHTTPConnection, awsrequest.AWSHTTPConnectionPool),
        "https": watched(awsrequest.AWSHTTPSConnection, awsrequest.AWSHTTPSConnectionPool),
    }
