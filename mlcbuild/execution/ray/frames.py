"""The form of messages between processes: a JSON object, and bytes beside it. Nothing is pickled."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_LENGTHS = struct.Struct("<IQ")  # of the object, and of the bytes beside it
_PIECE_BYTES = 1 << 20


def pack(head: Mapping[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """One byte string for an object and blobs. `unpack` is the reverse."""
    text = json.dumps({"head": head, "sizes": [len(blob) for blob in blobs]}, separators=(",", ":")).encode()
    return b"".join((_LENGTHS.pack(len(text), sum(map(len, blobs))), text, *blobs))


def unpack(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Raises ValueError for anything that `pack` does not make."""
    if len(data) < _LENGTHS.size:
        raise ValueError("a message that is cut short")
    text_bytes, blob_bytes = _LENGTHS.unpack_from(data)
    at = _LENGTHS.size + text_bytes
    if len(data) != at + blob_bytes:
        raise ValueError(f"a message of {len(data)} bytes that should have {at + blob_bytes}")
    body = json.loads(data[_LENGTHS.size : at])
    blobs = []
    for size in body["sizes"]:
        blobs.append(data[at : at + size])
        at += size
    return body["head"], blobs


def send(connection: socket.socket, head: Mapping[str, Any], payload: bytes = b"") -> None:
    """Write a frame. Raises OSError if the other side has closed the connection."""
    text = json.dumps(head, separators=(",", ":")).encode()
    lengths = _LENGTHS.pack(len(text), len(payload))
    if len(payload) < _PIECE_BYTES:
        connection.sendall(b"".join((lengths, text, payload)))
    else:
        connection.sendall(lengths + text)
        connection.sendall(payload)


class Receiver:
    """Reads frames from a connection; one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rb", buffering=_PIECE_BYTES)

    def close(self) -> None:
        self._stream.close()

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """The next frame; None if the other side has closed the connection."""
        try:
            lengths = self._stream.read(_LENGTHS.size)
            if len(lengths) < _LENGTHS.size:
                return None
            text_bytes, payload_bytes = _LENGTHS.unpack(lengths)
            text = self._stream.read(text_bytes)
            payload = self._stream.read(payload_bytes) if payload_bytes else b""
        except OSError:
            return None
        if len(text) < text_bytes or len(payload) < payload_bytes:
            return None
        return json.loads(text), payload
