"""A blob that arrives in pieces. It is hashed while it is written, and kept only if the hash is right."""

from __future__ import annotations

import os

from mlcbuild.cache.digest import Digest, DigestFunction


class BlobWriter:
    """Writes one blob into a store. Used by one thread at a time; the creator closes it.

    Bytes beyond the digest's size are counted and dropped, so that an endless sender does not fill the disk.
    """

    def __init__(self, path: str, digest: Digest, function: DigestFunction) -> None:
        self.digest = digest
        self._function = function
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.restart()

    @property
    def descriptor(self) -> int:
        return self._descriptor

    @property
    def received(self) -> int:
        """Bytes since the last restart."""
        return self._received

    @property
    def checksum(self) -> bytes:
        """The XXH3-128 of the bytes since the last restart."""
        return self._checksum.digest()

    @property
    def is_complete(self) -> bool:
        """Whether the bytes since the last restart are exactly the blob."""
        return self._received == self.digest.size_bytes and self._hasher.hexdigest() == self.digest.hash

    def restart(self) -> None:
        """Drop all bytes and begin again. Raises OSError."""
        import xxhash

        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hasher = self._function.hasher()
        self._checksum = xxhash.xxh3_128()
        self._received = 0

    def write(self, piece: bytes) -> None:
        """Append bytes. Raises OSError."""
        self._received += len(piece)
        if self._received > self.digest.size_bytes:
            return
        self._hasher.update(piece)
        self._checksum.update(piece)
        view = memoryview(piece)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def close(self) -> None:
        os.close(self._descriptor)
