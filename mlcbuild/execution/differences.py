"""Describes the first difference between two outputs of an action, so that a person can find the cause."""

from __future__ import annotations

import json
import struct
from typing import Any

_SHOWN_BYTES = 16
_SHOWN_CHARACTERS = 60
_ELF = b"\x7fELF\x02\x01"  # 64 bits, little-endian


def first_difference(first: bytes, second: bytes) -> str:
    """One line about two different contents: a path in JSON, a line of text, or a byte with its ELF section."""
    if first == second:
        raise ValueError("the contents are equal")
    told = _in_json(first, second) or _in_text(first, second)
    if told:
        return told
    offset = next((at for at, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
    if offset is None:
        shorter, longer = sorted((len(first), len(second)))
        return f"the first {shorter} bytes are equal, and one of the two has {longer} bytes"
    section = _section_at(first, offset)
    where = f"byte {offset}" + (f" (section {section})" if section else "")
    return f"{where}: {_hex(first, offset)} against {_hex(second, offset)}"


def _hex(content: bytes, offset: int) -> str:
    return content[offset : offset + _SHOWN_BYTES].hex(" ")


def _in_json(first: bytes, second: bytes) -> str:
    if first[:1] not in (b"{", b"["):
        return ""
    try:
        documents: tuple[Any, Any] = (json.loads(first), json.loads(second))
    except (ValueError, RecursionError):
        return ""
    return _in_values(*documents) or "the same JSON value, written differently"


def _in_values(first: Any, second: Any) -> str:
    path = ""
    while True:
        if isinstance(first, dict) and isinstance(second, dict):
            if list(first) != list(second):
                return f"{path or '/'}: keys {_short(list(first))} against {_short(list(second))}"
            key = next((name for name in first if first[name] != second[name]), None)
        elif isinstance(first, list) and isinstance(second, list):
            pairs = enumerate(zip(first, second, strict=False))
            key = next((index for index, pair in pairs if pair[0] != pair[1]), None)
            if key is None and len(first) != len(second):
                return f"{path or '/'}: {len(first)} elements against {len(second)}"
        else:
            return "" if first == second else f"{path or '/'}: {_short(first)} against {_short(second)}"
        if key is None:
            return ""
        path, first, second = f"{path}/{key}", first[key], second[key]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _in_text(first: bytes, second: bytes) -> str:
    try:
        lines = [content.decode("utf-8").split("\n") for content in (first, second)]
    except UnicodeDecodeError:
        return ""
    if b"\0" in first + second:
        return ""
    pairs = enumerate(zip(*lines, strict=False), start=1)
    found = next(((number, pair) for number, pair in pairs if pair[0] != pair[1]), None)
    if found is None:
        return f"{len(lines[0])} lines against {len(lines[1])}"
    number, (one, other) = found
    return f"line {number}: {_short(one)} against {_short(other)}"


def _section_at(content: bytes, offset: int) -> str:
    """The name of the section of an ELF file that contains a byte; "" if there is none (System V ABI, chapter 4)."""
    if content[:6] != _ELF:
        return ""
    try:
        (table,) = struct.unpack_from("<Q", content, 40)
        size, count, names_index = struct.unpack_from("<HHH", content, 58)
        headers = [struct.unpack_from("<IIQQQQ", content, table + index * size) for index in range(count)]
        names = headers[names_index][4]
        for name, kind, _, _, start, length in headers:
            if kind != _NO_BITS and start <= offset < start + length:
                begin = names + name
                return content[begin : content.index(b"\0", begin)].decode("ascii", "replace")
    except (struct.error, IndexError, ValueError):
        return ""
    return ""


_NO_BITS = 8  # a section without bytes in the file
