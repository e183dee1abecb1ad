"""The interface to a remote cache. A failure of the remote fails no build."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import LocalBlobStore


class RemoteCache(Protocol):
    """It is thread-safe. `find`, `fetch` and `send` may raise CacheError. `find` and `fetch` wait for the network."""

    @property
    def bytes_downloaded(self) -> int: ...

    @property
    def bytes_uploaded(self) -> int: ...

    @property
    def sends_what_was_found(self) -> bool:
        """Whether results that were found on disk are sent as well, and not only results of runs."""
        ...

    @property
    def may_be_overtaken(self) -> bool:
        """Whether an action may run when its lookup takes longer than the action itself would."""
        ...

    def start(self, tell: Callable[[str], object]) -> None:
        """A build begins. `tell` is called with messages for people, from any thread, until `finish` has returned."""
        ...

    def find(self, key: Digest, store: LocalBlobStore) -> ActionResult | None:
        """The result of a key; None where there is none. The Trees that it names are fetched into `store`."""
        ...

    def fetch(self, digests: Sequence[Digest], store: LocalBlobStore) -> tuple[Digest, ...]:
        """Fetch blobs into `store`, and verify them. Returns those that the remote does not have."""
        ...

    def send(self, key: Digest, result: ActionResult, outputs: Sequence[Digest], store: LocalBlobStore) -> None:
        """Send outputs, what the key was made from (`store` has both), then the result. May go on after it returns."""
        ...

    def finish(self) -> None:
        """Wait until everything is sent, for a bounded time."""
        ...

    def abandon(self) -> None:
        """Stop sending. A running `finish` returns soon."""
        ...
