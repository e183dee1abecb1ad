"""Which node runs which call: each node announces to the build a call that it begins.

Ray does not say where a task runs before it has ended. If a node falls silent, the build has to know which calls it
ran. So the process that talks to Ray listens on a port, and every call carries the port's address and a secret. A node
keeps one connection, and sends one line of JSON for a call. If it cannot connect, its calls run unannounced.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import selectors
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

_CONNECT_SECONDS = 2.0
_END_SECONDS = 0.5  # until it notices that it was closed
_LINE_BYTES = 4096
_BACKLOG = 512


class Announcements:
    """Listens on `host` until `close`. `on_begun` is called with the number of a call and the identifier of its node,
    from a thread of this class. Raises OSError if it cannot listen there.
    """

    def __init__(self, host: str, on_begun: Callable[[int, str], object]) -> None:
        self._on_begun = on_begun
        self._secret = secrets.token_hex(16)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._received: dict[socket.socket, bytes] = {}
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="announcements", daemon=True)
        self._thread.start()

    @property
    def target(self) -> dict[str, Any]:
        """What calls carry, for `announce`."""
        return {"address": self._listener.getsockname()[:2], "secret": self._secret}

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for connection in (self._listener, *self._received):
            connection.close()
        self._selector.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            for key, _ in self._selector.select(_END_SECONDS):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    self._receive(key.fileobj)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._selector.register(connection, selectors.EVENT_READ)
            self._received[connection] = b""

    def _receive(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(_LINE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, rest = (self._received[connection] + data).split(b"\n")
        if not data or len(rest) > _LINE_BYTES or not all(map(self._take, lines)):
            self._selector.unregister(connection)
            del self._received[connection]
            connection.close()
        else:
            self._received[connection] = rest

    def _take(self, line: bytes) -> bool:
        """False for what none of our calls can have sent."""
        try:
            told = json.loads(line)
            secret, number, node = told["secret"], told["number"], told["node"]
            if not (isinstance(number, int) and isinstance(node, str) and hmac.compare_digest(secret, self._secret)):
                return False
        except (ValueError, KeyError, TypeError):
            return False
        self._on_begun(number, node)
        return True


class Announcer:
    """A node's connections to the builds that it works for. Used by one thread at a time."""

    def __init__(self) -> None:
        self._connections: dict[tuple[str, int], socket.socket | None] = {}  # None: it cannot be reached

    def announce(self, target: Mapping[str, Any] | None, number: int, node: str) -> None:
        """Tell the build that this node begins a call. Does nothing if the build cannot be reached."""
        if target is None:
            return
        address = (str(target["address"][0]), int(target["address"][1]))
        line = json.dumps({"secret": target["secret"], "number": number, "node": node}).encode() + b"\n"
        for _ in range(2):  # The build may have closed a connection that was not used for long.
            try:
                if address not in self._connections:
                    self._connections[address] = _connected(address)
                connection = self._connections[address]
                if connection is not None:
                    connection.sendall(line)
                return
            except OSError:
                closed = self._connections.pop(address, None)
                if closed is None:
                    self._connections[address] = None
                    return
                closed.close()

    def close(self) -> None:
        for connection in self._connections.values():
            if connection is not None:
                connection.close()
        self._connections.clear()


def _connected(address: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(address, _CONNECT_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
