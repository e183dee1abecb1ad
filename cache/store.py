"""The interfaces of a store: blobs by digest, and results by action key.

The store may be a disk or a remote cache. Every method may be called from several threads, and by several processes on
one store.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from mlcbuild.cache.blob_writer import BlobWriter
from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.errors import CacheError


class BlobMissingError(CacheError):
    """A blob is not in the store, or it was damaged and is in quarantine. Its action has to run again."""

    def __init__(self, digest: Digest, *, reason: str = "is not in the store") -> None:
        super().__init__(
            f"the blob {digest} {reason}",
            advice=("build again: the action that makes it runs again",),
        )
        self.digest = digest


class BlobStore(Protocol):
    """Content-addressed bytes. Content is verified before it is returned. The empty blob always exists."""

    @property
    def function(self) -> DigestFunction:
        """The digest function that names the blobs; one per store."""
        ...

    def missing(self, digests: Iterable[Digest]) -> tuple[Digest, ...]:
        """Those of `digests` that are absent, each once, in order. Checks presence and size, not content."""
        ...

    def read(self, digest: Digest) -> bytes:
        """Raises BlobMissingError for an absent or damaged blob, CacheError for an unreadable store."""
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """Open for reading at byte 0, after the content was verified. Raises like `read`."""
        ...

    def put_bytes(self, data: bytes, *, durable: bool = True) -> Digest:
        """Store bytes, unless they are stored already.

        `durable = False` does not wait for the disk; for blobs that may be lost in a power failure. Raises
        LocalEnvironmentError if the disk is full, CacheError if the store cannot be written.
        """
        ...

    def put_file(self, path: Path, *, move: bool = False) -> Digest:
        """Store a file's content. It is read once, so the digest matches the stored bytes even if the file changes.

        It does not wait for the disk: the file can be made again after a power failure. With `move` the file is gone
        afterwards. Raises like `put_bytes`, ValueError for anything but a regular file, and OSError if the file cannot
        be read.
        """
        ...


class LocalBlobStore(BlobStore, Protocol):
    """A store whose blobs are files on this machine."""

    def path_of(self, digest: Digest) -> Path:
        """The blob's file, verified. It is read-only (0444); never write to it, rename it or change its mode.

        Raises like `read`.
        """
        ...

    def receive(self, digest: Digest) -> AbstractContextManager[BlobWriter]:
        """Receive a blob in pieces. At the end of the block it is stored durably if the bytes are the blob.

        Wrong bytes are dropped without an error. Raises like `put_bytes`.
        """
        ...


class ActionCache(Protocol):
    """Results of actions by key, the digest of the encoded REAPI Action. Only successful results are stored."""

    def get(self, key: Digest) -> ActionResult | None:
        """The result; None if it is absent or unreadable. The blobs it names may be missing (`BlobStore.missing`)."""
        ...

    def contains(self, key: Digest) -> bool:
        """Whether there is an entry. It is not read, so this is cheaper than `get`."""
        ...

    def protect(self, keys: Iterable[Digest]) -> None:
        """Protect the results of these keys from eviction, as `get` and `contains` do, but all in one step."""
        ...

    def put(self, key: Digest, result: ActionResult) -> None:
        """Store or replace a result. The caller has stored every blob that it names. Raises like `put_bytes`.

        Raises ValueError for a result with an exit code other than 0.
        """
        ...
