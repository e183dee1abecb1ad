"""Looking up results by key: on this machine, which is quick, and at a remote, which takes as long as the network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.cache.store import ActionCache, LocalBlobStore
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.action_results import manifest_of, outputs_of, stays_here
from mlcbuild.engine.instructions import Instruction, LookUp
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler_events import ResultFound, ResultNotFound
from mlcbuild.engine.shared_form import listed_trees, shared_files, shared_form
from mlcbuild.errors import CacheError


class LocalStore(LocalBlobStore, ActionCache, Protocol):
    """Blobs and results on this machine's disk; `mlcbuild.cache.disk.DiskStore` is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRemotely:
    """A result that the remote had. The store has it now; its blobs may still be at the remote alone."""

    found: ResultFound


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFailure:
    """The remote did not do what it was asked for. `message` is for people; it goes into the inbox."""

    message: str


class ActionCacheLookup:
    """`on_disk` is for the thread of the build, `at_remote` and `send` are for any thread.

    With `rerun` no result of a pure function is looked up, with `rerun_tests` none of a test.
    """

    def __init__(
        self,
        *,
        store: LocalStore,
        remote: RemoteCache | None,
        last_build: LastBuild,
        rerun: bool,
        rerun_tests: bool = False,
    ) -> None:
        self._store = store
        self._remote = remote
        self._last_build = last_build
        self._rerun = rerun
        self._rerun_tests = rerun_tests

    def asks_remote(self, action: Action) -> bool:
        return self._remote is not None and action.cache is not CachePolicy.LOCAL and not self.reruns(action)

    def sends_found(self, action: Action) -> bool:
        """Whether a result of this action that is found on disk is to be sent to the remote."""
        return self._remote is not None and self._remote.sends_what_was_found and is_shared(action)

    def announce(self, instructions: Iterable[Instruction]) -> None:
        """Protect the results that `on_disk` will look for, so that it need not protect one after the other."""
        keys = [each.key for each in instructions if isinstance(each, LookUp) and not self.reruns(each.action)]
        if len(keys) > 1:
            self._store.protect(keys)

    def on_disk(self, instruction: LookUp) -> ResultFound | None:
        action, key = instruction.action, instruction.key
        if self.reruns(action):
            return None
        if not action.manifest:
            outputs = self._last_build.outputs_for(action.identifier, key)
            if outputs is not None and self._store.contains(key):
                return ResultFound(identifier=action.identifier, key=key, outputs=outputs)
        return self._found(action, key, self._store.get(key))

    def at_remote(self, instruction: LookUp) -> list[object]:
        """Messages for the inbox: the result or that there is none, and a failure of the remote."""
        action, key = instruction.action, instruction.key
        assert self._remote is not None
        try:
            result = self._remote.find(key, self._store)
            if result is not None and (trees := self._store.missing(listed_trees(result).values())):
                self._remote.fetch(trees, self._store)
            found = self._found(action, key, result)
            if result is not None and found is not None:
                self._store.put(key, result)
                return [FoundRemotely(found=found)]
        except CacheError as error:
            return [RemoteFailure(message=str(error)), ResultNotFound(identifier=action.identifier, key=key)]
        return [ResultNotFound(identifier=action.identifier, key=key)]

    def send(self, found: ResultFound) -> list[object]:
        """Offer a result that was found on disk to the remote. Answers messages for the inbox."""
        assert self._remote is not None
        result = self._store.get(found.key)
        try:
            if result is not None and not stays_here(result):
                self._remote.send(found.key, shared_form(result), shared_files(result, found.outputs), self._store)
        except CacheError as error:
            return [RemoteFailure(message=str(error))]
        return []

    def reruns(self, action: Action) -> bool:
        """Whether the action is to run, whatever the caches have."""
        return (self._rerun or (self._rerun_tests and action.is_test)) and is_deterministic(action)

    def _found(self, action: Action, key: Digest, result: ActionResult | None) -> ResultFound | None:
        """A result as an event for the scheduler; None for a result that cannot be used."""
        if result is None or result.exit_code != 0:
            return None
        try:
            outputs = outputs_of(result, self._store)
            manifest = manifest_of(action, result, self._store) if action.manifest else None
        except (ValueError, CacheError):
            return None
        return ResultFound(identifier=action.identifier, key=key, outputs=outputs, manifest=manifest)


def is_shared(action: Action) -> bool:
    """Whether its results are sent to a remote."""
    return action.cache not in (CachePolicy.LOCAL, CachePolicy.NONE)


def is_deterministic(action: Action) -> bool:
    """Whether the same inputs give the same result, be it in other bytes: no measurement, no fetch."""
    return action.cache is not CachePolicy.NONE and not action.requirements.network
