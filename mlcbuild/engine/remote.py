"""The door to a cache that others share. The driver looks, fetches and sends; whatever fails there fails no build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import LocalBlobStore


class RemoteCache(Protocol):
    """Thread-safe; `find`, `fetch` and `send` may raise CacheError, and the first two take as long as the network."""

    @property
    def bytes_downloaded(self) -> int: ...

    @property
    def bytes_uploaded(self) -> int: ...

    @property
    def sends_what_was_found(self) -> bool:
        """Whether it wants to be sent what was found on this machine too, and not only what ran."""
        ...

    @property
    def may_be_overtaken(self) -> bool:
        """Whether an action may run while its look-up takes longer than itself."""
        ...

    def start(self, tell: Callable[[str], object]) -> None:
        """A build begins; `tell` takes what people should know, from any thread, until `finish` has returned."""
        ...

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None:
        """The result of a key, the Trees that it names fetched into `store`; None where there is none."""
        ...

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        """Bring blobs into `store`, verified; answer those that the remote lacks too."""
        ...

    def send(self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        """Blobs, what the key was made from (`store` has both), then the result. May go on after it has returned."""
        ...

    def finish(self) -> None:
        """Wait for what is being sent, for a bounded time."""
        ...

    def abandon(self) -> None:
        """Let it be, now; `finish` returns soon where it runs."""
        ...
