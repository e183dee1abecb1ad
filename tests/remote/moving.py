"""Blobs from and to a transport, whichever it is."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.remote.transport import Transport


def downloaded(remote: Transport, digest: Digest) -> bytes | None:
    received: list[bytes] = []
    return b"".join(received) if remote.download(digest, received.append) else None


def uploaded(remote: Transport, content: bytes, folder: Path) -> bool:
    digest = remote.function.of_bytes(content)
    path = folder / digest.hash  # two threads may be at it
    path.write_bytes(content)
    return remote.upload(digest, path)
