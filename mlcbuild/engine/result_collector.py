"""Collects the results that targets need, with all their bytes, as a build would find them. Nothing runs.

The scheduler decides as in a build. Where it wants an action to run, the collector reports that the action failed. So
actions that need that one are skipped, and everything else goes on.
"""

from __future__ import annotations

import enum
import queue
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.remote.results import blobs_in, explanation_of
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup, FoundRemotely, LocalStore, RemoteFailure
from mlcbuild.engine.background import Background
from mlcbuild.engine.discovery import discover
from mlcbuild.engine.executor import ExecutionOutcome, OutcomeKind
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.instructions import (
    AnnounceWanted,
    Deliver,
    DigestSources,
    Discover,
    Ending,
    Execute,
    Finished,
    Instruction,
    LookUp,
    ReportAction,
)
from mlcbuild.engine.key_cache import KeyCache, StageImplementations, ToolchainFingerprints
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    BlobsMissing,
    Executed,
    RequestedTarget,
    ResultFound,
    ResultNotFound,
    SchedulerEvent,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.engine.shared_actions import owners_that_share, shared_with
from mlcbuild.engine.shared_form import kept_files
from mlcbuild.errors import CacheError

_PROGRESS_SECONDS = 0.2  # between two calls of `progress` at most


class MissingReason(enum.Enum):
    """Why an action has no result. The value is the text for people."""

    ABSENT = "no result"
    INCOMPLETE = "a result whose blobs are gone"
    NEVER_SHARED = 'a result only on the machine that made it: cache = "local"'
    NEVER_KEPT = "never a result: it runs in every build"
    NO_KEY = "no key"  # `MissingResult.message` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingResult:
    """An action without a result. `title` is its name for people, with the other targets that share it."""

    identifier: str
    title: str
    reason: MissingReason
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedResults:
    """Results by key, each once, and the actions without one."""

    in_store: tuple[Digest, ...]  # keys of results that the store had
    fetched: tuple[Digest, ...]  # keys of results for which the remote was needed
    missing: tuple[MissingResult, ...]
    blocked: int  # known actions that need one of `missing`: their keys are not known, nor what they would discover
    local_only: frozenset[Digest]  # keys, of `in_store`, whose results are true of this machine only

    @property
    def is_complete(self) -> bool:
        return not self.missing


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """By the remote, for people."""

    message: str


class ResultCollector:
    """Walks over the graph once. Where `remote` is None, only the store is asked, and it may lack blobs of results.

    `progress` is called several times a second, with the number of actions that have ended and of those known. `tell`
    is called with messages for people. Both are called from the thread of `collect`.
    """

    def __init__(
        self,
        *,
        workspace: Path,
        store: LocalStore,
        toolchains: ToolchainFingerprints,
        implementations: StageImplementations,
        digests: FileDigests,
        remote: RemoteCache | None,
        threads: int,
        progress: Callable[[int, int], object] = lambda _done, _total: None,
        tell: Callable[[str], object] = lambda _message: None,
    ) -> None:
        self._store = store
        self._remote = remote
        self._progress = progress
        self._tell = tell
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._background = Background(self._inbox, threads=threads)
        self._fetcher = InputFetcher(
            workspace=workspace,
            store=store,
            digests=digests,
            remote=remote,
            on_failure=lambda error: self._say(str(error)),
        )
        self._lookups = ActionCacheLookup(store=store, remote=remote, last_build=LastBuild(None), rerun=False)
        self._key_cache = KeyCache(
            toolchains=toolchains,
            implementations=implementations,
            function=store.function,
            last_build=LastBuild(None),
        )
        self._scheduler = Scheduler(key_of=self._key_cache, jobs=threads, keep_going=True)
        self._reasons: dict[str, MissingReason] = {}
        self._fetched: set[str] = set()
        self._reports: dict[str, ReportAction] = {}
        self._known = 0
        self._is_finished = False

    def collect(self, actions: Iterable[Action], targets: Sequence[RequestedTarget]) -> CollectedResults:
        """To be called once. Raises MlcbuildError where nothing can be looked up."""
        if self._remote is not None:
            self._remote.start(self._say)
        happened: list[SchedulerEvent] = [
            ActionsDeclared(actions=tuple(actions)),
            TargetsRequested(targets=tuple(targets)),
        ]
        try:
            while True:
                answers: list[SchedulerEvent] = []
                for instruction in self._scheduler.handle(*happened):
                    answers += self._carry_out(instruction)
                if self._is_finished:
                    break
                happened = answers or self._next()
        finally:
            self._background.close(wait=False)
        while not self._inbox.empty():
            self._receive(self._inbox.get())
        return self._collected()

    def _collected(self) -> CollectedResults:
        in_store: dict[Digest, None] = {}
        fetched: dict[Digest, None] = {}
        missing = []
        local_only = set()
        graph = self._scheduler.graph
        for identifier, report in self._reports.items():
            if report.ending is Ending.FAILED and not report.shared_with:
                reason = self._reasons.get(identifier, MissingReason.NO_KEY)
                message = report.message if reason is MissingReason.NO_KEY else ""
                owners = owners_that_share(graph.actions[identifier], graph.actions)
                missing.append(
                    MissingResult(
                        identifier=identifier,
                        title=report.action.title + shared_with(owners),
                        reason=reason,
                        message=message,
                    )
                )
            elif report.key is not None and report.ending in (Ending.FOUND, Ending.SHARED):
                (fetched if identifier in self._fetched else in_store)[report.key] = None
                if report.action.cache is CachePolicy.LOCAL:
                    local_only.add(report.key)
        skipped = sum(
            report.ending is Ending.SKIPPED or (report.ending is Ending.FAILED and bool(report.shared_with))
            for report in self._reports.values()
        )
        return CollectedResults(
            in_store=tuple(key for key in in_store if key not in fetched),
            fetched=tuple(fetched),
            missing=tuple(sorted(missing, key=lambda each: each.identifier)),
            blocked=skipped,
            local_only=frozenset(local_only),
        )

    # The loop.

    def _next(self) -> list[SchedulerEvent]:
        while True:
            self._progress(len(self._reports), self._known)
            try:
                happened = self._receive(self._inbox.get(timeout=_PROGRESS_SECONDS))
            except queue.Empty:
                continue
            while not self._inbox.empty():
                happened += self._receive(self._inbox.get())
            if happened:
                return happened

    def _receive(self, message: object) -> list[SchedulerEvent]:
        match message:
            case _Said(message=text) | RemoteFailure(message=text):
                self._tell(text)
                return []
            case Exception():
                raise message
            case _:
                return [message]  # type: ignore[list-item]  # All other messages are events.

    def _say(self, message: str) -> None:
        self._inbox.put(_Said(message=message))

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        match instruction:
            case LookUp():
                self._background.run(partial(self._look_up, instruction))
            case DigestSources(paths=paths):
                for job in self._fetcher.digesting(paths):
                    self._background.run(job)
            case AnnounceWanted(total=total):
                self._known = total
            case Execute(action=action):
                return [Executed(outcome=self._without_a_result(action))]
            case Discover():
                return [self._discovered(instruction)]
            case Deliver(label=label):
                return [TargetDelivered(label=label)]
            case ReportAction(action=action):
                self._reports[action.identifier] = instruction
            case Finished():
                self._is_finished = True
            case _:
                pass
        return []

    def _without_a_result(self, action: Action) -> ExecutionOutcome:
        default = MissingReason.NEVER_KEPT if action.cache is CachePolicy.NONE else MissingReason.ABSENT
        reason = self._reasons.setdefault(action.identifier, default)
        return ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.FAILED, message=reason.value)

    def _discovered(self, instruction: Discover) -> SchedulerEvent:
        answer = discover(instruction, self._store.read)
        if isinstance(answer, BlobsMissing):
            self._reasons[instruction.action.identifier] = MissingReason.INCOMPLETE
        return answer

    # Lookups, in other threads.

    def _look_up(self, instruction: LookUp) -> list[object]:
        action = instruction.action
        messages: list[object] = []
        reason = MissingReason.ABSENT
        found = self._lookups.on_disk(instruction)
        self._key_cache.drop(instruction.key)
        if found is not None:
            was_complete = self._remote is None or not self._missing(found, action)
            if was_complete or self._is_complete(found, action):
                if not was_complete:
                    self._fetched.add(action.identifier)
                return [found]
            reason = MissingReason.INCOMPLETE
        if self._lookups.asks_remote(action):
            messages = self._lookups.at_remote(instruction)
            for message in messages:
                if isinstance(message, FoundRemotely):
                    if self._is_complete(message.found, action):
                        self._fetched.add(action.identifier)
                        return [message.found]
                    reason = MissingReason.INCOMPLETE
            messages = [message for message in messages if isinstance(message, RemoteFailure)]
        elif self._remote is not None and reason is MissingReason.ABSENT:
            reason = MissingReason.NEVER_SHARED
        self._reasons[action.identifier] = reason
        return [*messages, ResultNotFound(identifier=action.identifier, key=instruction.key)]

    def _missing(self, found: ResultFound, action: Action) -> tuple[Digest, ...]:
        return self._store.missing(kept_files(action, found.outputs))

    def _is_complete(self, found: ResultFound, action: Action) -> bool:
        """Whether all outputs are in the store, or can be fetched now."""
        if self._remote is None or action.cache is CachePolicy.LOCAL:
            return False
        try:
            self._remote.fetch(self._missing(found, action), self._store)
            if self._missing(found, action):
                return False
            self._fetch_explanation(found.key, self._remote)
        except CacheError as error:
            self._say(str(error))
        return not self._missing(found, action)

    def _fetch_explanation(self, key: Digest, remote: RemoteCache) -> None:
        """Fetch the log, and what the key was made of. A result is complete without them."""
        result = self._store.get(key)
        if result is not None:
            remote.fetch([key, *blobs_in(result)], self._store)
            remote.fetch(explanation_of(key, result, self._store), self._store)
