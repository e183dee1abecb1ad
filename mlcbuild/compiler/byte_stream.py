"""TVM's binary form of plain values: little-endian, and the length before what has one, as 64 bits."""

from __future__ import annotations

import struct
from collections.abc import Sequence


class ByteWriter:
    """Collects values in TVM's binary form."""

    def __init__(self) -> None:
        self._data = bytearray()

    def number(self, value: int) -> None:
        """An unsigned number of 64 bits: a length, a count, an index."""
        self._data += struct.pack("<Q", value)

    def integer(self, value: int) -> None:
        """A signed number of 32 bits."""
        self._data += struct.pack("<i", value)

    def numbers(self, values: Sequence[int]) -> None:
        self.number(len(values))
        self._data += struct.pack(f"<{len(values)}Q", *values)

    def string(self, value: str | bytes) -> None:
        encoded = value.encode() if isinstance(value, str) else value
        self.number(len(encoded))
        self._data += encoded

    def strings(self, values: Sequence[str]) -> None:
        self.number(len(values))
        for value in values:
            self.string(value)

    def data_type(self, code: int, bits: int, lanes: int) -> None:
        """DLPack's DLDataType."""
        self._data += struct.pack("<BBH", code, bits, lanes)

    def bytes(self) -> bytes:
        return bytes(self._data)


class ByteReader:
    """Takes values in TVM's binary form, one after another. All raise ValueError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        return int(self._unpack("<Q")[0])

    def integer(self) -> int:
        return int(self._unpack("<i")[0])

    def numbers(self) -> tuple[int, ...]:
        return tuple(map(int, self._unpack(f"<{self.number()}Q")))

    def string(self) -> bytes:
        return self._take(self.number())

    def data_type(self) -> tuple[int, int, int]:
        code, bits, lanes = self._unpack("<BBH")
        return int(code), int(bits), int(lanes)

    def end(self) -> None:
        """Raises ValueError where something is left."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes are left over")

    def _unpack(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self._take(struct.calcsize(form)))

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise ValueError(f"the bytes end {size - len(taken)} bytes too early")
        self._at += size
        return taken
