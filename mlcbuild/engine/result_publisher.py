"""Publishes results of runs in the caches, first on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from mlcbuild.engine.action_cache_lookup import LocalStore, RemoteFailure, is_shared
from mlcbuild.engine.action_results import result_of
from mlcbuild.engine.executor import ExecutionOutcome
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.instructions import Publish
from mlcbuild.engine.keys import ActionKey, publish
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.shared_form import shared_files, shared_form
from mlcbuild.errors import CacheError, MlcbuildError


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message for the inbox: a result is published, or `failure` says why not."""

    failure: str = ""


class ResultPublisher:
    """May be used in any thread."""

    def __init__(self, *, store: LocalStore, fetcher: InputFetcher, remote: RemoteCache | None) -> None:
        self._store = store
        self._fetcher = fetcher
        self._remote = remote

    def publish(self, instruction: Publish, key: ActionKey, outcome: ExecutionOutcome) -> list[object]:
        """Messages for the inbox, one of them Published."""
        action = instruction.action
        try:
            if manifest := [entry.digest for entry in instruction.outputs if entry.path == action.manifest]:
                self._fetcher.fetch(self._store.missing(manifest), ())  # The result contains it.
            result = result_of(action, instruction.outputs, self._store, worker=outcome.worker, log=outcome.log)
            result = publish(self._store, self._store, key, result)
        except (MlcbuildError, ValueError) as error:
            return [
                Published(failure=f"the result of {action.title} was not kept, so it will run again next time: {error}")
            ]
        if self._remote is not None and is_shared(action):
            try:
                outputs = shared_files(result, instruction.outputs)
                self._remote.send(key.digest, shared_form(result), outputs, self._store)
            except CacheError as error:
                return [RemoteFailure(message=str(error)), Published()]
        return [Published()]
