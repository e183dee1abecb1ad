"""The doors to a store: blobs by digest, and results by action key.

A disk, a remote, or tiers of them stand behind. Every method is safe to call from several threads, and from
several processes on one store.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, Protocol

from mlcbuild.cache.digest import Digest, DigestFunction
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.receiving import Reception
from mlcbuild.errors import CacheError


class BlobMissingError(CacheError):
    """A blob is not in the store, or was found damaged and taken out; whoever can make it again should."""

    def __init__(self, digest: Digest, *, reason: str = "is not in the store") -> None:
        super().__init__(
            f"the blob {digest} {reason}",
            advice=("build again: the action that makes it runs again",),
        )
        self.digest = digest


class BlobStore(Protocol):
    """Content-addressed bytes. What is served has been verified; the empty blob is always there."""

    @property
    def function(self) -> DigestFunction:
        """What names the blobs; one function a store."""
        ...

    def missing(self, digests: Iterable[Digest]) -> tuple[Digest, ...]:
        """Those of `digests` that are not there (each once, in order), judged by presence and size, not by
        content.
        """
        ...

    def read(self, digest: Digest) -> bytes:
        """Raises BlobMissingError for an absent or damaged blob, CacheError for an unreadable store."""
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """For reading, at byte 0; the content is verified before this returns. Raises like `read`."""
        ...

    def put_bytes(self, data: bytes, *, durable: bool = True) -> Digest:
        """Store bytes; nothing happens where they are there already.

        `durable = False` leaves out the wait for the disk: for blobs that nobody misses after a power
        failure. Raises LocalEnvironmentError where the disk is full, CacheError where the store cannot be
        written.
        """
        ...

    def put_file(self, path: Path, *, move: bool = False) -> Digest:
        """Store a file's content, read once: the digest is that of the bytes stored, whatever the file does.

        With `move` the file is the caller's to give away: it is gone afterwards. Raises like `put_bytes`,
        ValueError for what is no regular file, and OSError where it cannot be read.
        """
        ...


class LocalBlobStore(BlobStore, Protocol):
    """A store whose blobs are files of this machine."""

    def path_of(self, digest: Digest) -> Path:
        """The blob's own file, verified: read-only (0444), never to be written, renamed or made executable.

        Raises like `read`.
        """
        ...

    def receive(self, digest: Digest) -> AbstractContextManager[Reception]:
        """Take a blob in pieces. At the end of the block it is stored, durably, if what was written is the blob;
        anything else is thrown away, and nothing is raised for it.

        Raises like `put_bytes`.
        """
        ...


class ActionCache(Protocol):
    """Results of actions by key, which is the digest of the encoded REAPI Action. Only successes are kept."""

    def get(self, key: Digest) -> ActionResult | None:
        """None for an absent or unreadable entry.

        The blobs it names may be missing: ask `BlobStore.missing`.
        """
        ...

    def contains(self, key: Digest) -> bool:
        """Whether there is an entry, unread: cheaper than `get` for who knows what it says."""
        ...

    def put(self, key: Digest, result: ActionResult) -> None:
        """Publish or replace; the caller has stored every blob that `result` names. Raises like `put_bytes`.

        Raises ValueError for a result with an exit code other than 0.
        """
        ...
