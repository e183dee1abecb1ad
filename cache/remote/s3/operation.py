"""Time limits that hold whatever a server does: socket timeouts bound each silence, a throughput deadline bounds the
whole.

A server that sends a byte now and then never exceeds a socket timeout. So each exchange records its sockets and the
bytes that they transfer. When its deadline passes, or its operation is cancelled, the sockets are shut down, which ends
all waiting calls.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from mlcbuild.cache.remote.acknowledged import AcknowledgedBytes, unacknowledged_bytes
from mlcbuild.cache.remote.throughput_deadline import ThroughputDeadline, Watchdog

_local = threading.local()


class Exchange:
    """A request and its response. Any thread can end it with `cut`. Its bytes count for the operation too."""

    def __init__(self, deadline: ThroughputDeadline, whole: ThroughputDeadline) -> None:
        self.is_cut = False
        self.is_sending = False  # Bodies are also read before they are sent, to sign them.
        self.deadline = deadline
        self._whole = whole
        self._acknowledged = AcknowledgedBytes()
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def note(self, connection: socket.socket) -> None:
        with self._lock:
            if not self.is_cut:
                self._sockets.append(connection)
                return
        raise TimeoutError("the time limit of this request has passed")

    def came(self, count: int) -> None:
        self._moved(count)

    def went(self, count: int) -> None:
        """`count` bytes were written to the socket. They count as moved when they are acknowledged."""
        with self._lock:
            held = sum(unacknowledged_bytes(each.fileno()) for each in self._sockets if each.fileno() >= 0)
            arrived = self._acknowledged.update(sent=count, unacknowledged=held)
        if count or arrived:
            self._moved(arrived)

    def _moved(self, count: int) -> None:
        self.deadline.moved(count)
        self._whole.moved(count)

    @property
    def left(self) -> float:
        """Seconds left, after counting newly acknowledged bytes."""
        self.went(0)
        return self.deadline.left

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            for each in self._sockets:
                # The base class's method: that of a TLS socket would destroy the state that a reader uses.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(each, socket.SHUT_RDWR)

    def end(self) -> None:
        with self._lock:
            self._sockets.clear()


class Operation:
    """One call of a transport. All its requests end when its deadline passes or it is cancelled.

    As a context manager it is cancelled by an error in the block.
    """

    def __init__(self, deadline: ThroughputDeadline) -> None:
        self.deadline = deadline
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
        """Seconds left; 0 if the deadline has passed or it is cancelled."""
        return 0.0 if self._cancelled.is_set() else self.deadline.left

    def cancel(self) -> None:
        self._cancelled.set()
        with self._lock:
            for each in self._exchanges:
                each.cut()

    def sleep(self, seconds: float) -> bool:
        """Wait. False, without waiting, if the operation would be over by then."""
        return seconds < self.remaining and not self._cancelled.wait(seconds)

    @contextlib.contextmanager
    def exchange(self, deadline: ThroughputDeadline) -> Iterator[Exchange]:
        """Requests of this thread in the block, through a watched client, end when `deadline` passes."""
        exchange = Exchange(deadline, self.deadline)
        with self._lock:
            self._exchanges.add(exchange)
        outer = getattr(_local, "exchange", None)
        _local.exchange = exchange
        try:
            with Watchdog(lambda: min(exchange.left, self.remaining), exchange.cut):
                yield exchange
        finally:
            _local.exchange = outer
            exchange.end()
            with self._lock:
                self._exchanges.discard(exchange)


def watch(client: Any) -> None:
    """Make the exchange of a thread record the connections of a boto client that the thread uses.

    botocore gives no access to its sockets, so the classes in its pools are replaced. If another version has them
    elsewhere, only socket timeouts apply.
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
            if exchange is None:
                return connection.request(self, *arguments, **named)  # type: ignore[attr-defined]
            if self.sock is None:
                self.connect()
            exchange.note(self.sock)
            exchange.is_sending = True
            try:
                return connection.request(self, *arguments, **named)  # type: ignore[attr-defined]
            finally:
                exchange.is_sending = False

        ours = type(f"Watched{connection.__name__}", (connection,), {"request": request})
        return type(f"Watched{pool.__name__}", (pool,), {"ConnectionCls": ours})

    return {
        "http": watched(awsrequest.AWSHTTPConnection, awsrequest.AWSHTTPConnectionPool),
        "https": watched(awsrequest.AWSHTTPSConnection, awsrequest.AWSHTTPSConnectionPool),
    }
