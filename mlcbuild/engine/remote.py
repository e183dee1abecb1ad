"""The door to a cache that others share. The driver looks, fetches and sends; whatever fails there fails no build."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import LocalBlobStore
from mlcbuild.engine.keys import ActionKey


class RemoteCache(Protocol):
    """Thread-safe; each method may raise CacheError, and takes as long as the network does."""

    @property
    def bytes_downloaded(self) -> int: ...

    @property
    def bytes_uploaded(self) -> int: ...

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None:
        """The result of a key, the Trees that it names fetched into `store`; None where there is none."""
        ...

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        """Bring blobs into `store`, verified; answer those that the remote lacks too."""
        ...

    def send(self, key: ActionKey, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        """Blobs, then what the key was made from, then the result."""
        ...
