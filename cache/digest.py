"""Digests, which name content, and the functions that compute them.

A digest is the lower-case hexadecimal hash of some bytes, and their number. Both identify the content (REAPI `Digest`).
"""

from __future__ import annotations

import enum
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from mlcbuild.regular_files import open_regular

_CHUNK_BYTES = 256 << 10  # A chunk fits into the processor's cache while it is hashed.
_HEXADECIMAL = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, order=True)
class Digest:
    """The hash (64 lower-case hexadecimal digits) and size in bytes of a blob."""

    hash: str
    size_bytes: int

    def __post_init__(self) -> None:
        if not _HEXADECIMAL.fullmatch(self.hash):
            raise ValueError(f"not a 256-bit hexadecimal hash: {self.hash!r}")
        if self.size_bytes < 0:
            raise ValueError(f"a size cannot be negative: {self.size_bytes}")

    def __str__(self) -> str:
        return f"{self.hash}/{self.size_bytes}"

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The reverse of `str()`. Raises ValueError for anything else."""
        hash_text, _, size = text.partition("/")
        if not (size.isascii() and size.isdigit()):
            raise ValueError(f"not a digest, hash/size: {text!r}")
        return cls(hash_text, int(size))


class Hasher(Protocol):
    """The part of hashlib's interface that is used here."""

    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


class DigestFunction(enum.Enum):
    """The digest functions of stores. The value is the name in `BUILD.toml`."""

    BLAKE3 = "blake3"
    SHA256 = "sha256"

    @property
    def reapi_number(self) -> int:
        """`DigestFunction.Value` of the Remote Execution API."""
        return 9 if self is DigestFunction.BLAKE3 else 1

    def hasher(self) -> Hasher:
        if self is DigestFunction.BLAKE3:
            import blake3

            return blake3.blake3()
        return hashlib.sha256()

    def of_bytes(self, data: bytes) -> Digest:
        hasher = self.hasher()
        hasher.update(data)
        return Digest(hasher.hexdigest(), len(data))

    def of_file(self, path: Path) -> Digest:
        """The digest of a file, which is read in chunks. Raises OSError."""
        hasher = self.hasher()
        size = 0
        with os.fdopen(open_regular(path), "rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                hasher.update(chunk)
                size += len(chunk)
        return Digest(hasher.hexdigest(), size)
