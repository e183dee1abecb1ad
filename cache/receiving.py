"""A blob that arrives in pieces: hashed while it is written, begun anew at each try, kept only if it is right."""

from __future__ import annotations

import os

from mlcbuild.cache.digest import Digest, DigestFunction


class Reception:
    """Bytes on their way into a store. One thread at a time; whoever made it closes it.

    What is written beyond the digest's size is counted and thrown away, so that a sender without an end fills no disk.
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
        """Bytes since the last start."""
        return self._received

    @property
    def checksum(self) -> bytes:
        """The XXH3-128 of what was written since the last start."""
        return self._checksum.digest()

    @property
    def is_right(self) -> bool:
        """Whether what has arrived since the last start is the blob, whole."""
        return self._received == self.digest.size_bytes and self._hasher.hexdigest() == self.digest.hash

    def restart(self) -> None:
        """Forget what has arrived. Raises OSError."""
        import xxhash

        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self._hasher = self._function.hasher()
        self._checksum = xxhash.xxh3_128()
        self._received = 0

    def write(self, piece: bytes) -> None:
        """Raises OSError."""
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
