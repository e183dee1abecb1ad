"""Which nodes do not answer: their link is cut, or they have lost their power, and nobody has told Ray.

Ray notices that after a minute. Here each node's address is connected to every few seconds. A node whose machine
refuses the connection answers too: what has ended there, Ray learns by itself.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Mapping

SILENT_SECONDS = 8.0
_CONNECT_SECONDS = 2.0
# These say that nothing came back. All others are answers, or errors of this machine.
_NO_ANSWER = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EINPROGRESS)

Address = tuple[str, int]


class Silence:
    """Remembers when each node answered last. `answering` returns the addresses that answer within some seconds."""

    def __init__(
        self,
        *,
        seconds: float = SILENT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        answering: Callable[[frozenset[Address]], frozenset[Address]] | None = None,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._answering = answering or answering_addresses
        self._heard: dict[str, float] = {}

    def look(self, nodes: Mapping[str, Address]) -> frozenset[str]:
        """Try all `nodes` (by identifier). Returns those that have not answered for some seconds."""
        began = self._clock()
        self._heard = {node: self._heard.get(node, began) for node in nodes}
        answering = self._answering(frozenset(nodes.values()))
        now = self._clock()
        self._heard.update({node: now for node, address in nodes.items() if address in answering})
        return frozenset(node for node, heard in self._heard.items() if now - heard >= self._seconds)


def answering_addresses(addresses: frozenset[Address]) -> frozenset[Address]:
    """Connect to all addresses at once, and wait two seconds at most."""
    answering: set[Address] = set()
    pending: dict[int, tuple[socket.socket, Address]] = {}
    poller = select.poll()
    for address in addresses:
        try:
            connection = socket.socket(socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
            connection.setblocking(False)
            code = connection.connect_ex(address)
        except OSError:
            answering.add(address)
            continue
        if code == errno.EINPROGRESS:
            pending[connection.fileno()] = (connection, address)
            poller.register(connection, select.POLLOUT)
        else:
            connection.close()
            if code not in _NO_ANSWER:
                answering.add(address)
    deadline = time.monotonic() + _CONNECT_SECONDS
    while pending and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poller.poll(left * 1000):
            connection, address = pending.pop(descriptor)
            poller.unregister(descriptor)
            if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) not in _NO_ANSWER:
                answering.add(address)
            connection.close()
    for connection, _ in pending.values():
        connection.close()
    return frozenset(answering)
