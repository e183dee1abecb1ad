"""Reads results of the disk cache, and what their keys were made of, as far as they have not been removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.disk import DiskStore, default_root
from mlcbuild.cache.inventory import bases
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.engine.code_listing import CodeListing
from mlcbuild.engine.keys import StoredKey, read_key
from mlcbuild.errors import MlcbuildError


class StoredResults:
    """Answers by keys in hexadecimal.

    It looks in the stores of all digest functions, so that it needs no settings of a workspace, which may be broken.
    """

    def __init__(self, disk_cache: Path | None) -> None:
        root = disk_cache.absolute() if disk_cache else default_root()
        self._stores = [(base, DiskStore(root, function, to_read=True)) for base, function in bases(root)]
        self._listings: dict[Digest, CodeListing | None] = {}

    def key(self, key: str) -> StoredKey | None:
        """What a key was made of; None if no store has it."""
        for store, digest in self._holders(key):
            with suppress(MlcbuildError):
                if stored := read_key(store, store, digest):
                    return stored
        return None

    def components(self, key: str) -> dict[str, str] | None:
        """The components of a key by name; None if no store has them."""
        stored = self.key(key)
        return dict(stored.breakdown) if stored else None

    def listing(self, digest: Digest | None) -> CodeListing | None:
        """The listing of a stage's code; None if no store has it."""
        if digest is None:
            return None
        if digest not in self._listings:
            data = self.blob(digest)
            self._listings[digest] = None
            with suppress(ValueError):
                if data is not None:
                    self._listings[digest] = CodeListing.decode(data)
        return self._listings[digest]

    def blob(self, digest: Digest) -> bytes | None:
        for _, store in self._stores:
            with suppress(MlcbuildError):
                return store.read(digest)
        return None

    def result(self, key: str) -> tuple[ActionResult, DiskStore] | None:
        """The result of a key, and the store that has it."""
        for store, digest in self._holders(key):
            with suppress(MlcbuildError):
                if result := store.get(digest):
                    return result, store
        return None

    def log(self, key: str) -> str:
        with suppress(MlcbuildError, ValueError):
            if found := self.result(key):
                result, store = found
                if result.stdout_digest is not None:
                    return store.read(result.stdout_digest).decode("utf-8", "replace")
        return ""

    def _holders(self, key: str) -> Iterator[tuple[DiskStore, Digest]]:
        """The stores that have a key, each with its digest, whose size is that of the Action, a blob of the store."""
        for base, store in self._stores:
            with suppress(OSError):
                if key:
                    yield store, Digest(key, (base / "cas" / key[:2] / key).stat().st_size)
