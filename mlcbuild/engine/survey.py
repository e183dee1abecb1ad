"""Finds what a build would do with each action, by lookups in the disk cache, and in a remote cache if there is one.

Nothing runs. Of a remote, results are fetched, and manifests that no result contains, but no other outputs. The
scheduler decides as in a build. Where it wants an action to run, the survey reports that the action failed, so that
actions that need its outputs are known to wait for it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.cache.reapi import ActionResult
from mlcbuild.engine.action import Action, CachePolicy, DerivedArtifact, SourceArtifact
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup, FoundRemotely, LocalStore, RemoteFailure
from mlcbuild.engine.action_results import outputs_of
from mlcbuild.engine.discovery import discover
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.input_fetcher import FetchedInputs, InputFetcher
from mlcbuild.engine.instructions import Deliver, DigestSources, Discover, Ending, Execute, LookUp, ReportAction
from mlcbuild.engine.key_cache import KeyCache, StageImplementations, ToolchainFingerprints
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.nodes import Consumer
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    Executed,
    RequestedTarget,
    ResultNotFound,
    SchedulerEvent,
    TargetDelivered,
    TargetsRequested,
)
from mlcbuild.errors import CacheError, MlcbuildError

_NO_LIMIT = 1 << 20
_THREADS = 16  # They wait for a remote.


class ActionState(enum.Enum):
    """What a build would do with an action."""

    UP_TO_DATE = "up to date"  # it has the key of the last build here, and a result
    CACHED = "cached"  # a cache that was asked has a result under a key that the last build here did not have
    WOULD_RUN = "would run"  # no cache that was asked has a result
    WAITS = "waits"  # its key is not known, because an action that makes its inputs would run
    NO_KEY = "no key"  # `SurveyedAction.message` says why


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyedAction:
    """One action. `inputs` are files, sorted by path; () if they are not known. `key` is None without them."""

    action: Action
    state: ActionState
    key: Digest | None = None
    previous_key: Digest | None = None  # of the last build here
    inputs: tuple[FileEntry, ...] = ()
    waits_for: str = ""  # the identifier of the action that would run; for WAITS
    message: str = ""
    shared_with: str = ""  # the identifier of an action with the same key, which runs for both

    @property
    def never_kept(self) -> bool:
        return self.action.cache is CachePolicy.NONE


class Survey:
    """Walks over the graph once. `actions` has every known action by its identifier: in the order in which rules
    declare them, which is that of the data, each followed by those that its manifest announces.

    `deliveries` has the files of each target, by its label, that needs no action to run. `remote` is started and closed
    by the caller. `remote_failures` says what it did not do, for people.
    """

    def __init__(
        self,
        *,
        workspace: Path,
        store: LocalStore,
        toolchains: ToolchainFingerprints,
        implementations: StageImplementations,
        digests: FileDigests,
        last_build: LastBuild,
        remote: RemoteCache | None = None,
    ) -> None:
        self.store = store
        self.last_build = last_build
        self.keys = KeyCache(
            toolchains=toolchains, implementations=implementations, function=store.function, last_build=last_build
        )
        self.actions: dict[str, SurveyedAction] = {}
        self.remote_failures: dict[str, None] = {}
        self._inputs: dict[str, tuple[FileEntry, ...]] = {}
        self._fetcher = InputFetcher(
            workspace=workspace,
            store=store,
            digests=digests,
            remote=remote,
            on_failure=lambda error: self.remote_failures.setdefault(str(error)),
        )
        self._lookups = ActionCacheLookup(store=store, remote=remote, last_build=last_build, rerun=False)
        self._scheduler = Scheduler(key_of=self._key_of, jobs=_NO_LIMIT, keep_going=True)
        self.deliveries: dict[str, Deliver] = {}
        self._would_run: set[str] = set()
        self._reports: dict[str, ReportAction] = {}

    def walk(self, actions: Iterable[Action], targets: Iterable[RequestedTarget]) -> None:
        """To be called once, with all actions of the targets' closure."""
        happened: list[SchedulerEvent] = [
            ActionsDeclared(actions=tuple(actions)),
            TargetsRequested(targets=tuple(targets)),
        ]
        while happened:
            answers: list[SchedulerEvent] = []
            not_on_disk: list[LookUp] = []
            instructions = self._scheduler.handle(*happened)
            self._lookups.announce(instructions)
            for instruction in instructions:
                match instruction:
                    case LookUp():
                        if found := self._lookups.on_disk(instruction):
                            answers.append(found)
                        else:
                            not_on_disk.append(instruction)
                    case DigestSources(paths=paths):
                        for job in self._fetcher.digesting(paths):
                            answers += job()
                    case Execute(action=action):
                        self._would_run.add(action.identifier)
                        answers.append(
                            Executed(outcome=ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.FAILED))
                        )
                    case Discover():
                        answers.append(discover(instruction, self._read_manifest))
                    case Deliver(label=label):
                        self.deliveries[label] = instruction
                        answers.append(TargetDelivered(label=label))
                    case ReportAction(action=action):
                        self._reports[action.identifier] = instruction
                    case _:
                        pass
            happened = answers + self._look_up_remotely(not_on_disk)
        self.actions = {name: self._surveyed(self._reports[name]) for name in self._in_order() if name in self._reports}

    def _in_order(self) -> Iterator[str]:
        announced: dict[str, list[str]] = {}
        for name, node in self._scheduler.graph.actions.items():
            announced.setdefault(node.discovered_by, []).append(name)
        pending = announced.pop("", [])[::-1]
        while pending:
            name = pending.pop()
            yield name
            if announced:
                pending += announced.pop(name, [])[::-1]

    def actions_of(self, target: str) -> tuple[SurveyedAction, ...]:
        """The actions that a requested target needs, as far as they are known. Each after those that need it."""
        graph = self._scheduler.graph
        found: dict[str, None] = {}
        pending: list[Consumer] = [graph.targets[target]]
        while pending:
            for producer in graph.known_producers_of(pending.pop()):
                if producer.name not in found:
                    found[producer.name] = None
                    pending.append(producer)
        return tuple(self.actions[name] for name in found if name in self.actions)

    def fetch(self, label: str) -> FetchedInputs:
        """Bring the files of a target of `deliveries` into the store, from the workspace and the remote."""
        delivery = self.deliveries[label]
        return self._fetcher.fetch(self._fetcher.missing(delivery.files), delivery.sources)

    def result_of(self, surveyed: SurveyedAction) -> ActionResult | None:
        """The result of an action; None if the store has none, also none that came from the remote."""
        if surveyed.key is None:
            return None
        try:
            return self.store.get(surveyed.key)
        except CacheError:
            return None

    def outputs_of(self, surveyed: SurveyedAction) -> tuple[FileEntry, ...] | None:
        """The files of the result of an action, whose bytes may be at the remote alone; None without a result."""
        result = self.result_of(surveyed)
        try:
            return None if result is None else outputs_of(result, self.store)
        except (MlcbuildError, ValueError):
            return None

    def bring(self, digests: Iterable[Digest]) -> None:
        """Fetch what the store does not have from the remote, as far as that has it."""
        if missing := self.store.missing(digests):
            self._fetcher.fetch(missing, ())

    def _surveyed(self, report: ReportAction) -> SurveyedAction:
        identifier = report.action.identifier
        previous = self.last_build.key_of(identifier)
        message, waits_for = report.message, ""
        if report.ending in (Ending.FOUND, Ending.SHARED):
            state = ActionState.UP_TO_DATE if report.key == previous else ActionState.CACHED
        elif report.ending is Ending.SKIPPED:
            state, waits_for = ActionState.WAITS, report.blocked_by
        elif identifier in self._would_run or report.shared_with in self._would_run:
            state, message = ActionState.WOULD_RUN, ""
        else:
            state = ActionState.NO_KEY
        return SurveyedAction(
            action=report.action,
            state=state,
            key=report.key,
            previous_key=previous,
            inputs=self._inputs.get(identifier, ()),
            waits_for=waits_for,
            message=message,
            shared_with=report.shared_with,
        )

    def _key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        self._inputs[action.identifier] = inputs
        key = self.keys(action, inputs)
        self.keys.drop(key)
        return key

    def _look_up_remotely(self, instructions: Sequence[LookUp]) -> list[SchedulerEvent]:
        asked = [each for each in instructions if self._lookups.asks_remote(each.action)]
        answers: list[SchedulerEvent] = [
            ResultNotFound(identifier=each.action.identifier, key=each.key)
            for each in instructions
            if not self._lookups.asks_remote(each.action)
        ]
        if not asked:
            return answers
        with ThreadPoolExecutor(_THREADS) as threads:
            messages = [message for answer in threads.map(self._lookups.at_remote, asked) for message in answer]
        for message in messages:
            match message:
                case RemoteFailure(message=text):
                    self.remote_failures.setdefault(text)
                case FoundRemotely(found=found):
                    answers.append(found)
                case ResultNotFound():
                    answers.append(message)
        return answers

    def _read_manifest(self, digest: Digest) -> bytes:
        if self.store.missing((digest,)):
            self._fetcher.fetch((digest,), ())
        return self.store.read(digest)


def all_wanted(actions: Iterable[Action]) -> list[RequestedTarget]:
    """Requests that want every action, also those on which no output of a target depends.

    Actions that others of them need are wanted by these.
    """
    wanted = tuple(actions)
    needed = {
        item.artifact.action
        for action in wanted
        for item in action.inputs
        if not isinstance(item.artifact, SourceArtifact)
    }
    return [
        RequestedTarget(label=action.identifier, directory=str(number), outputs=_first_output(action))
        for number, action in enumerate(wanted)
        if action.identifier not in needed
    ]


def _first_output(action: Action) -> tuple[tuple[str, DerivedArtifact], ...]:
    path = action.outputs[0]
    return ((path, action.output(path)),)
