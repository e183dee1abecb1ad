"""A section of a file as a request body for boto. It is read while it is sent, in little memory."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Callable

_CHUNK_BYTES = 1 << 20


class FileSection:
    """`size` bytes of an open file from `start`. Several may read one descriptor at the same time.

    Each read calls `told` with the number of bytes of the previous read, which have been sent by then.
    """

    def __init__(self, descriptor: int, start: int, size: int) -> None:
        self.told: Callable[[int], object] = lambda _count: None
        self._given = 0
        self._descriptor = descriptor
        self._start = start
        self._size = size
        self._position = 0

    def __len__(self) -> int:
        return self._size

    def read(self, count: int | None = -1) -> bytes:
        given, self._given = self._given, 0
        self.told(given)
        left = max(0, self._size - self._position)
        wanted = left if count is None or count < 0 else min(count, left)
        data = os.pread(self._descriptor, wanted, self._start + self._position) if wanted else b""
        self._position += len(data)
        self._given = len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        self._given = 0
        return self._position

    def tell(self) -> int:
        return self._position

    def crc32(self) -> str:
        """The CRC32 as S3 expects it: four bytes, big-endian, in base64."""
        value, at = 0, 0
        while at < self._size:
            data = os.pread(self._descriptor, min(_CHUNK_BYTES, self._size - at), self._start + at)
            if not data:
                break
            value = zlib.crc32(data, value)
            at += len(data)
        return encoded(value)


def crc32(data: bytes) -> str:
    return encoded(zlib.crc32(data))


def encoded(value: int) -> str:
    return base64.b64encode(value.to_bytes(4, "big")).decode()
