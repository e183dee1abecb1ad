"""The protobuf wire format, as far as REAPI messages need it: encoding and parsing.

Encoders write fields in tag order without default values, so that equal messages have equal bytes. In the format, which
protobuf's encoding guide documents, a field is a varint tag (number << 3 | wire type) and a value.
"""

from __future__ import annotations

VARINT = 0
FIXED64 = 1
LENGTH_DELIMITED = 2
FIXED32 = 5

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_MAXIMUM_FIELD_NUMBER = (1 << 29) - 1
_SMALL_VARINTS = tuple(bytes([number]) for number in range(128))

Fields = dict[int, list[int | bytes]]


def varint(number: int) -> bytes:
    """Seven bits a byte, low bits first; a negative number as its 64-bit two's complement (ten bytes)."""
    if 0 <= number < 128:
        return _SMALL_VARINTS[number]
    if number < 0:
        number += 1 << 64
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def bytes_field(number: int, value: bytes) -> bytes:
    """A length-delimited field, written even where `value` is empty: a present message, or a list's item."""
    size = len(value)
    if number < 16 and size < 128:  # The usual case, without calls: they would take most of the time.
        return _SMALL_VARINTS[number << 3 | LENGTH_DELIMITED] + _SMALL_VARINTS[size] + value
    return b"%b%b%b" % (varint(number << 3 | LENGTH_DELIMITED), varint(len(value)), value)


def text_field(number: int, value: str) -> bytes:
    """A singular string; nothing if it is empty.

    Raises UnicodeEncodeError (a ValueError) for lone surrogates.
    """
    return bytes_field(number, value.encode()) if value else b""


def integer_field(number: int, value: int) -> bytes:
    """A singular int32, int64, bool or enum; nothing if it is zero."""
    return varint(number << 3) + varint(value) if value else b""


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise ValueError("a message ends inside a number")
        byte = data[position]
        position += 1
        result |= (byte & 127) << shift
        if byte < 128:
            if result >= 1 << 64:
                raise ValueError("a number of more than 64 bits in a message")
            return result, position
    raise ValueError("a number of more than 64 bits in a message")


def parse(data: bytes) -> Fields:
    """Field values by number, in order of appearance; unknown fields are kept like any other.

    Raises ValueError for bytes that are no message: truncated, a group, field number 0, an overlong number.
    """
    fields: Fields = {}
    position, end = 0, len(data)
    while position < end:
        # Numbers of one byte, the usual case, are read here: a call for each would take most of the time.
        tag = data[position]
        if tag < 128:
            position += 1
        else:
            tag, position = _read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if not 1 <= number <= _MAXIMUM_FIELD_NUMBER:
            raise ValueError(f"field number {number} in a message")
        value: int | bytes
        if wire_type == VARINT:
            value, position = _read_varint(data, position)
        else:
            if wire_type == LENGTH_DELIMITED:
                if position < end and data[position] < 128:
                    length = data[position]
                    position += 1
                else:
                    length, position = _read_varint(data, position)
            elif wire_type in _FIXED_BYTES:
                length = _FIXED_BYTES[wire_type]
            else:
                raise ValueError(f"wire type {wire_type} in field {number} of a message")
            start, position = position, position + length
            if position > end:
                raise ValueError(f"a message ends inside field {number}")
            value = data[start:position]
        known = fields.get(number)
        if known is None:
            fields[number] = [value]
        else:
            known.append(value)
    return fields


def all_bytes(fields: Fields, number: int) -> list[bytes]:
    """Every value of a repeated length-delimited field. Raises ValueError for another wire type."""
    values = fields.get(number)
    if values is None:
        return []
    checked = [value for value in values if isinstance(value, bytes)]
    if len(checked) != len(values):
        raise ValueError(f"field {number} of a message is a number, not bytes")
    return checked


def one_bytes(fields: Fields, number: int) -> bytes | None:
    """The value of a singular length-delimited field.

    Raises ValueError if it appears twice, which REAPI forbids.
    """
    values = all_bytes(fields, number) if number in fields else []
    if len(values) > 1:
        raise ValueError(f"field {number} of a message appears {len(values)} times")
    return values[0] if values else None


def one_text(fields: Fields, number: int) -> str:
    """A singular string, "" where absent. Raises ValueError (UnicodeDecodeError) for what is not UTF-8."""
    return (one_bytes(fields, number) or b"").decode()


def one_integer(fields: Fields, number: int) -> int:
    """A singular signed 64-bit number, 0 where absent.

    Raises ValueError if it appears twice or is not a number.
    """
    values = fields.get(number, [])
    if len(values) > 1:
        raise ValueError(f"field {number} of a message appears {len(values)} times")
    value = values[0] if values else 0
    if isinstance(value, bytes):
        raise ValueError(f"field {number} of a message is bytes, not a number")
    return value - (1 << 64) if value >= 1 << 63 else value


def all_integers(fields: Fields, number: int) -> list[int]:
    """Every value of a repeated enum or unsigned number, packed (as proto3 writes them) or one by one.

    Raises ValueError for bytes that are no packed numbers.
    """
    numbers = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            numbers.append(value)
            continue
        position = 0
        while position < len(value):
            unpacked, position = _read_varint(value, position)
            numbers.append(unpacked)
    return numbers


def one_flag(fields: Fields, number: int) -> bool:
    """A singular bool, False where absent."""
    return one_integer(fields, number) != 0
