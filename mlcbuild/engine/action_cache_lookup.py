"""Results by key: from this machine, which is quick, and from a remote, which takes as long as the network does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import ActionCache, LocalBlobStore
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.action_results import manifest_of, outputs_of
from mlcbuild.engine.instructions import LookUp
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler_events import ResultFound, ResultNotFound
from mlcbuild.errors import CacheError


class LocalStore(LocalBlobStore, ActionCache, Protocol):
    """Blobs and results on this machine's disk; `mlcbuild.cache.disk.DiskStore` is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRemotely:
    """A result that a remote had, and the store now has too; its blobs may be there only."""

    found: ResultFound


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFailure:
    """For people."""

    message: str


class ActionCacheLookup:
    """`here` is for the thread of the build; `there` and `send` for any. With `rerun` no result of a pure function is
    looked up.
    """

    def __init__(self, *, store: LocalStore, remote: RemoteCache | None, last_build: LastBuild, rerun: bool) -> None:
        self._store = store
        self._remote = remote
        self._last_build = last_build
        self._rerun = rerun

    def asks_remote(self, action: Action) -> bool:
        return self._remote is not None and action.cache is not CachePolicy.LOCAL and not self.reruns(action)

    def sends_found(self, action: Action) -> bool:
        """Whether a result found here is to be sent."""
        return self._remote is not None and self._remote.sends_what_was_found and action.cache is CachePolicy.ALL

    def here(self, wanted: LookUp) -> ResultFound | None:
        action, key = wanted.action, wanted.key
        if self.reruns(action):
            return None
        if not action.manifest:
            outputs = self._last_build.outputs_for(action.identifier, key)
            if outputs is not None and self._store.contains(key):
                return ResultFound(identifier=action.identifier, key=key, outputs=outputs)
        return self._found(action, key, self._store.get(key))

    def there(self, wanted: LookUp) -> list[object]:
        """Messages for the inbox: what was found, or not, and what went wrong."""
        action, key = wanted.action, wanted.key
        assert self._remote is not None
        try:
            result = self._remote.find(key, self._store)
            found = self._found(action, key, result)
            if result is not None and found is not None:
                self._store.put(key, result)
                return [FoundRemotely(found=found)]
        except CacheError as error:
            return [RemoteFailure(message=str(error)), ResultNotFound(identifier=action.identifier, key=key)]
        return [ResultNotFound(identifier=action.identifier, key=key)]

    def send(self, found: ResultFound) -> list[object]:
        """Offer what was found here to the remote; answers messages for the inbox."""
        assert self._remote is not None
        result = self._store.get(found.key)
        try:
            if result is not None:
                self._remote.send(found.key, result, [entry.digest for entry in found.outputs], self._store)
        except CacheError as error:
            return [RemoteFailure(message=str(error))]
        return []

    def reruns(self, action: Action) -> bool:
        """Whether it is to run whatever any cache has."""
        return self._rerun and is_deterministic(action)

    def _found(self, action: Action, key: Digest, result: ActionResult | None) -> ResultFound | None:
        """A result as a event; None for one that cannot be used."""
        if result is None or result.exit_code != 0:
            return None
        try:
            outputs = outputs_of(result, self._store)
            manifest = manifest_of(action, result, self._store) if action.manifest else None
        except (ValueError, CacheError):
            return None
        return ResultFound(identifier=action.identifier, key=key, outputs=outputs, manifest=manifest)


def is_deterministic(action: Action) -> bool:
    return action.cache is not CachePolicy.NONE and not action.requirements.network
