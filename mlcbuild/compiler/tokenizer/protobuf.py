"""The fields of a protocol buffer message, read from its bytes.

Format: https://protobuf.dev/programming-guides/encoding/. Only what messages without groups need; a message inside of
another one is the bytes of a field, and is read when somebody asks for it, so nothing nests by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class ProtobufError(Exception):
    """The bytes are no message; says at which of them."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field's number, and its content: an integer, or bytes of a string, a message or a fixed number."""

    number: int
    content: int | bytes

    def integer(self) -> int:
        """A signed integer; raises ProtobufError for a field of another kind."""
        if not isinstance(self.content, int):
            raise ProtobufError(f"field {self.number} is no integer")
        return self.content - (1 << 64) if self.content >> 63 else self.content

    def data(self) -> bytes:
        if not isinstance(self.content, bytes):
            raise ProtobufError(f"field {self.number} has no bytes")
        return self.content

    def text(self) -> str:
        try:
            return self.data().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ProtobufError(f"field {self.number} is no text: {error}") from None

    def float32(self) -> float:
        if len(self.data()) != 4:
            raise ProtobufError(f"field {self.number} is no float")
        return float(struct.unpack("<f", self.data())[0])


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message in their order. Raises ProtobufError where the bytes are none."""
    position = 0
    while position < len(message):
        start = position
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield Field(number, value)
            continue
        size = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}.get(kind)
        if kind == _BYTES:
            size, position = _varint(message, position)
        if size is None or number == 0:
            raise ProtobufError(f"at byte {start}, field {number} is of the unknown kind {kind}")
        if size > len(message) - position:
            raise ProtobufError(f"it ends inside field {number}, which begins at byte {start} and has {size} bytes")
        yield Field(number, message[position : position + size])
        position += size


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """A number of 64 bits, lowest seven bits first, and the position after it."""
    value = 0
    for index, byte in enumerate(message[position : position + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & ((1 << 64) - 1), position + index + 1
    raise ProtobufError(f"the number at byte {position} has no end")
