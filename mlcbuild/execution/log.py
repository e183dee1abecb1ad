"""The output of an action, of which only the head and the tail are kept if it is long."""

from __future__ import annotations

_KEPT_BYTES = 1 << 20


class BoundedLog:
    """Keeps the first and the last `kept` bytes of what is written, and drops what is in between."""

    def __init__(self, kept: int = _KEPT_BYTES) -> None:
        self._kept = kept
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    def write(self, data: bytes) -> None:
        room = self._kept - len(self._head)
        self._head += data[:room] if room > 0 else b""
        self._tail += data[max(room, 0) :]
        if len(self._tail) > 2 * self._kept:
            self._drop()

    def bytes(self) -> bytes:
        """Everything if it fits; else the head, a line that says how much is missing, and the tail."""
        if len(self._tail) > self._kept:
            self._drop()
        if not self._dropped:
            return bytes(self._head + self._tail)
        return bytes(self._head) + f"\n[… {self._dropped} bytes left out …]\n".encode() + bytes(self._tail)

    def _drop(self) -> None:
        excess = len(self._tail) - self._kept
        del self._tail[:excess]
        self._dropped += excess
