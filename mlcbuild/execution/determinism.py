"""Checks determinism: runs every action twice, in different environments, and fails those whose outputs differ.

What differs between the two runs is not in an action's key: the path of its directory and the length of that path, the
seed of Python's hashes, the time zone, the locale, the time, and the addresses that the system chooses.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

from mlcbuild.cache.store import BlobMissingError, LocalBlobStore
from mlcbuild.engine.action import Action
from mlcbuild.engine.executor import ExecutionOutcome, ExecutionRequest, Executor, FileEntry, OutcomeKind
from mlcbuild.execution.differences import first_difference

_MOST_READ_BYTES = 256 << 20


@dataclass(slots=True, eq=False)
class _Pair:
    request: ExecutionRequest
    first: ExecutionOutcome | None = None
    is_cancelled: bool = False


class DeterminismChecker:
    """An `Executor` over two executors on this machine. The second run starts when the first has succeeded.

    Actions that are not pure functions (fetches, measurements) run once. An action with two different results fails
    with the first difference in the first file that has one. Both results stay in the store. One that is declared to be
    non-reproducible does not fail: its outcome has the difference as a notice.
    """

    def __init__(self, first: Executor, second: Executor, store: LocalBlobStore) -> None:
        self.name = first.name
        self.slots = first.slots
        self.trip_seconds = first.trip_seconds
        self._first = first
        self._second = second
        self._store = store
        self._lock = threading.Lock()
        self._pairs: dict[str, _Pair] = {}
        self._report: Callable[[ExecutionOutcome], None] = lambda _: None

    def start(self, report: Callable[[ExecutionOutcome], None]) -> None:
        self._report = report
        self._first.start(self._on_first)
        self._second.start(self._on_second)

    def unmet_requirement(self, action: Action) -> str:
        return self._first.unmet_requirement(action)

    def submit(self, request: ExecutionRequest) -> None:
        with self._lock:
            self._pairs[request.identifier] = _Pair(request)
        self._first.submit(request)

    def cancel(self, identifier: str) -> None:
        with self._lock:
            if identifier in self._pairs:
                self._pairs[identifier].is_cancelled = True
        self._first.cancel(identifier)
        self._second.cancel(identifier)

    def close(self) -> None:
        self._first.close()
        self._second.close()

    def _on_first(self, outcome: ExecutionOutcome) -> None:
        with self._lock:
            pair = self._pairs[outcome.identifier]
            pair.first = outcome
            again = outcome.kind is OutcomeKind.SUCCEEDED and pair.request.is_deterministic and not pair.is_cancelled
            if not again:
                del self._pairs[outcome.identifier]
        if not again:
            self._report(outcome)
            return
        try:
            self._second.submit(pair.request)
        except RuntimeError:  # The executor was closed in between, because the build has ended.
            self._report(replace(outcome, kind=OutcomeKind.CANCELLED, outputs=()))

    def _on_second(self, outcome: ExecutionOutcome) -> None:
        with self._lock:
            pair = self._pairs.pop(outcome.identifier)
        first = pair.first
        assert first is not None
        if outcome.kind is OutcomeKind.FAILED:
            outcome = replace(outcome, message=f"{outcome.message}\n  it had succeeded before, in another environment")
        elif outcome.kind is OutcomeKind.SUCCEEDED:
            difference = self._difference(first.outputs, outcome.outputs)
            outcome = replace(first, run_seconds=first.run_seconds + outcome.run_seconds)
            if difference and not pair.request.is_reproducible:
                notice = f"{first.identifier} is declared to be non-reproducible: two runs differ in {difference}"
                outcome = replace(outcome, notice=notice)
            elif difference:
                message = f"{first.identifier} is not deterministic: two runs differ in {difference}"
                outcome = replace(outcome, kind=OutcomeKind.FAILED, message=message, outputs=())
        self._report(outcome)

    def _difference(self, first: tuple[FileEntry, ...], second: tuple[FileEntry, ...]) -> str:
        """The first difference, for people; "" if there is none."""
        ones, others = ({entry.path: entry for entry in entries} for entries in (first, second))
        for path in sorted(ones.keys() | others.keys()):
            one, other = ones.get(path), others.get(path)
            if one is None or other is None:
                return f"{path}, which only the {'second' if one is None else 'first'} run wrote"
            if one.digest != other.digest:
                return f"{path}, {self._described(one, other)}"
            if one.is_executable != other.is_executable:
                return f"the executable bit of {path}"
        return ""

    def _described(self, one: FileEntry, other: FileEntry) -> str:
        try:
            if max(one.digest.size_bytes, other.digest.size_bytes) > _MOST_READ_BYTES:
                return f"of {one.digest.size_bytes} and {other.digest.size_bytes} bytes"
            told = first_difference(self._store.read(one.digest), self._store.read(other.digest))
            files = " and ".join(str(self._store.path_of(entry.digest)) for entry in (one, other))
        except BlobMissingError:
            return "which can no longer be read"
        return f"{told}\n  the files: {files}"
