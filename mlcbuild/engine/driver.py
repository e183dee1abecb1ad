"""The build driver: carries out what the scheduler says, in one loop over one queue of what happened.

All decisions are the scheduler's, all waiting is here. What is quick (a look-up on disk, a stat) is done in the
loop itself; what may take long (digesting sources, storing them, a remote, placing outputs, publishing) in a few
threads that answer through the queue; actions run on the executors.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.engine.action import Action
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup, FoundRemotely, LocalStore, RemoteFailure
from mlcbuild.engine.action_reporter import ActionReporter
from mlcbuild.engine.action_runner import ActionRunner, Prepared
from mlcbuild.engine.background import Background
from mlcbuild.engine.build_event_publisher import BuildEventPublisher, Listener
from mlcbuild.engine.build_result import BuildResult
from mlcbuild.engine.critical_path import Chains
from mlcbuild.engine.deliveries import Deliveries
from mlcbuild.engine.discovery import discover
from mlcbuild.engine.executor import ExecutionOutcome, Executor, FileEntry, OutcomeKind
from mlcbuild.engine.input_fetcher import InputFetcher
from mlcbuild.engine.instructions import (
    AnnounceWanted,
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Execute,
    Finished,
    Instruction,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.key_cache import KeyCache, StageImplementations, ToolchainFingerprints
from mlcbuild.engine.last_build import LastBuild
from mlcbuild.engine.lookup_timeout import LookupTimeout
from mlcbuild.engine.outputs import OutputPlacer
from mlcbuild.engine.priorities import UNKNOWN_SECONDS
from mlcbuild.engine.remote import RemoteCache
from mlcbuild.engine.result_publisher import Published, ResultPublisher
from mlcbuild.engine.scheduler import Scheduler
from mlcbuild.engine.scheduler_events import (
    ActionsDeclared,
    Cancelled,
    DeliveryFailed,
    Executed,
    JobsAdded,
    LookupSlow,
    RequestedTarget,
    ResultNotFound,
    SchedulerEvent,
    TargetsRequested,
)
from mlcbuild.errors import CacheError, InfrastructureError, InternalError, MlcbuildError

_BACKGROUND_THREADS = 4
_NETWORK_THREADS = 16  # They wait for a remote, which must keep nobody from working here.


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """By the remote, for people."""

    message: str


class _Sent:
    """The remote has nothing more to send."""


class _Kill:
    """The user will not wait for running actions to stop."""


class Driver:
    """One build. `build` runs it in the calling thread; `interrupt` may be called from anywhere, a signal handler too.

    `store` holds the blobs and results of this machine; `digests`, `placer`, `last_build`, `toolchains` and
    `implementations` belong to the workspace and are saved, where they can be, by who made them, but for
    `digests`, `placer` and `last_build`, which are saved here. Executors are started and closed here. `jobs = 0`
    stands for all slots of all executors. With `rerun` no result of a pure function is looked
    up. Listeners are called from the thread of `build`, in order. `invocation` is the UUID that they are told; "": a
    new one.
    """

    def __init__(
        self,
        *,
        workspace: Path,
        store: LocalStore,
        toolchains: ToolchainFingerprints,
        implementations: StageImplementations,
        executors: Sequence[Executor],
        digests: FileDigests,
        placer: OutputPlacer,
        last_build: LastBuild,
        listeners: Sequence[Listener] = (),
        invocation: str = "",
        jobs: int = 0,
        keep_going: bool = False,
        rerun: bool = False,
        remote: RemoteCache | None = None,
    ) -> None:
        if not executors:
            raise ValueError("a build needs an executor")
        self._store = store
        self._executors = tuple(executors)
        self._jobs = jobs
        self._digests = digests
        self._last_build = last_build
        self._remote = remote
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._background = Background(self._inbox, threads=_BACKGROUND_THREADS)
        self._network = Background(self._inbox, threads=_NETWORK_THREADS) if remote else self._background
        self._fetcher = InputFetcher(
            workspace=workspace, store=store, digests=digests, remote=remote, trouble=self._remote_failed
        )
        self._result_publisher = ResultPublisher(store=store, fetcher=self._fetcher, remote=remote)
        self._lookups = ActionCacheLookup(store=store, remote=remote, last_build=last_build, rerun=rerun)
        self._key_cache = KeyCache(
            toolchains=toolchains,
            implementations=implementations,
            function=store.function,
            last_build=last_build,
        )
        self._build_events = BuildEventPublisher(listeners, invocation=invocation)
        self._scheduler = Scheduler(
            key_of=self._key_of,
            jobs=jobs or sum(executor.slots for executor in executors),
            keep_going=keep_going,
            seconds_of=self._run_seconds,
        )
        self._runner = ActionRunner(
            executors=self._executors,
            fetcher=self._fetcher,
            network=self._network,
            key_cache=self._key_cache,
            build_events=self._build_events,
            run_seconds=self._run_seconds,
            peak_bytes=lambda action: last_build.peak_bytes_by_mnemonic.get(action.mnemonic, 0),
        )
        self._reporter = ActionReporter(
            nodes=self._scheduler.graph.actions,
            runner=self._runner,
            lookups=self._lookups,
            key_cache=self._key_cache,
            last_build=last_build,
            build_events=self._build_events,
        )
        self._deliveries = Deliveries(placer=placer, fetcher=self._fetcher, network=self._network)
        self._lookup_timeout = LookupTimeout(time.monotonic)
        self._publishing = 0
        self._sending = False
        self._troubles = 0
        self._interruptions = 0
        self._killed = False
        self._end: Finished | None = None

    def interrupt(self) -> None:
        """Stop the build: running actions are cancelled, what has finished is kept. The second time, at once."""
        self._interruptions += 1
        self._inbox.put(Cancelled() if self._interruptions == 1 else _Kill())

    def build(self, actions: Iterable[Action], targets: Sequence[RequestedTarget]) -> BuildResult:
        """Build the targets, which need some of the actions; to be called once.

        A build that fails or is interrupted is told by the result. Raises InternalError for a bug of ours.
        """
        self._build_events.begin((target.label for target in targets), jobs=self._scheduler.queue.jobs)
        for executor in self._executors:
            executor.start(lambda outcome: self._inbox.put(Executed(outcome=outcome)))
        if self._remote is not None:
            self._remote.start(lambda message: self._inbox.put(_Told(message=message)))
        try:
            self._run_to_the_end([ActionsDeclared(actions=tuple(actions)), TargetsRequested(targets=tuple(targets))])
        finally:
            self._background.close(wait=False)
            self._network.close(wait=False)
            if not self._killed:
                for executor in self._executors:
                    executor.close()
            self._digests.save()
            self._deliveries.save()
            self._last_build.save()
        return self._conclude()

    # The loop.

    def _run_to_the_end(self, told: list[SchedulerEvent]) -> None:
        while self._end is None:
            told += self._jobs_added()
            answers: list[SchedulerEvent] = []
            for instruction in self._scheduler.handle(*told):
                answers += self._carry_out(instruction)
            told = answers
            if self._end is None and not told:
                told = self._next()
            told += self._received()
        while self._publishing and not self._killed:
            self._receive(self._inbox.get())
        self._finish_sending()
        self._received()

    def _jobs_added(self) -> list[SchedulerEvent]:
        """An executor may turn out to have more room than it could say at first."""
        jobs = 0 if self._jobs else sum(executor.slots for executor in self._executors)
        return [JobsAdded(jobs=jobs)] if jobs > self._scheduler.queue.jobs else []

    def _finish_sending(self) -> None:
        """All that was made is here. The remote may take its time with the rest, unless the user interrupts."""
        remote = self._remote
        if remote is None:
            return

        def finish() -> list[object]:
            try:
                remote.finish()
            except CacheError as error:
                return [RemoteFailure(message=str(error)), _Sent()]
            return [_Sent()]

        self._sending = True
        if self._interruptions:
            remote.abandon()
        self._background.run(finish)
        while self._sending and not self._killed:
            message = self._inbox.get()
            if isinstance(message, Cancelled):
                remote.abandon()
            self._receive(message)

    def _next(self) -> list[SchedulerEvent]:
        """Wait for something to happen, or for a look-up to take too long."""
        try:
            return self._receive(self._inbox.get(timeout=self._lookup_timeout.seconds_left()))
        except queue.Empty:
            return [LookupSlow(identifier=identifier) for identifier in self._lookup_timeout.exhausted()]

    def _received(self) -> list[SchedulerEvent]:
        told: list[SchedulerEvent] = []
        while not self._inbox.empty():
            told += self._receive(self._inbox.get())
        return told

    def _receive(self, message: object) -> list[SchedulerEvent]:
        match message:
            case Executed(outcome=outcome):
                return self._on_outcomes([outcome])
            case Prepared():
                return self._on_outcomes(self._runner.prepared(message))
            case Published(trouble=trouble):
                self._publishing -= 1
                if trouble:
                    self._build_events.notice(trouble)
                return []
            case FoundRemotely(found=found):
                self._lookup_timeout.answered(found.identifier)
                self._reporter.found_remotely.add(found.identifier)
                return [found]
            case ResultNotFound(identifier=identifier):
                self._lookup_timeout.answered(identifier)
                return [message]
            case _Told(message=text):
                self._build_events.notice(text)
                return []
            case RemoteFailure(message=text):
                self._troubles += 1
                if self._troubles == 1:
                    self._build_events.notice(f"the remote cache fails, the build goes on without it: {text}")
                return []
            case _Sent():
                self._sending = False
                return []
            case _Kill():
                return self._kill()
            case MlcbuildError():
                raise message
            case Exception():
                raise InternalError(f"a background job failed: {message!r}") from message
            case _:
                return [message]  # type: ignore[list-item]  # Whoever puts anything else puts a event.

    def _kill(self) -> list[SchedulerEvent]:
        self._killed = True
        if self._remote is not None:
            self._remote.abandon()
        for executor in self._executors:
            executor.close()
        told: list[SchedulerEvent] = [Cancelled()]
        told += self._on_outcomes(
            ExecutionOutcome(identifier=identifier, kind=OutcomeKind.CANCELLED)
            for identifier in self._runner.identifiers()
        )
        interrupted = "the build was interrupted"
        told += [DeliveryFailed(label=label, message=interrupted) for label in self._deliveries.labels()]
        return told

    def _conclude(self) -> BuildResult:
        assert self._end is not None
        if self._troubles > 1:
            self._build_events.notice(f"the remote cache failed {self._troubles} times in this build")
        graph = self._scheduler.graph

        def producers_of(identifier: str) -> list[str]:
            return [producer.name for producer in graph.known_producers_of(graph.actions[identifier])]

        chains = Chains(self._build_events.executed, producers_of)
        return self._build_events.end(
            success=self._end.success,
            interrupted=self._end.cancelled,
            critical_path=chains.longest(),
            slacks=chains.slacks(),
            bytes_downloaded=self._remote.bytes_downloaded if self._remote else 0,
            bytes_uploaded=self._remote.bytes_uploaded if self._remote else 0,
        )

    # Instructions. What is answered here and now is returned.

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        match instruction:
            case LookUp():
                return self._look_up(instruction)
            case ReportAction():
                self._reporter.tell(instruction)
            case DigestSources(paths=paths):
                for job in self._fetcher.digesting(paths):
                    self._background.run(job)
            case AnnounceWanted():
                self._build_events.wanted(instruction)
            case Execute():
                return self._on_outcomes(self._runner.begin(instruction))
            case Publish():
                self._publish(instruction)
            case Discover():
                return self._discover(instruction)
            case Deliver():
                return self._deliveries.begin(instruction)
            case ReportTarget():
                self._build_events.target(self._deliveries.end(instruction))
            case Cancel(identifier=identifier):
                self._runner.cancel(identifier)
            case Finished():
                self._end = instruction
        return []

    def _key_of(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest:
        try:
            return self._key_cache(action, inputs)
        except InfrastructureError:
            self._reporter.keyless.add(action.identifier)
            raise

    def _run_seconds(self, action: Action) -> float:
        known = self._last_build.seconds_of(action.identifier, action.mnemonic)
        return UNKNOWN_SECONDS if known is None else known

    # Look-ups.

    def _look_up(self, wanted: LookUp) -> list[SchedulerEvent]:
        found = self._lookups.here(wanted)
        if found is not None:
            self._key_cache.drop(wanted.key)
            if self._lookups.sends_found(wanted.action):
                self._publishing += 1  # The build's end waits for it, before the remote is told to finish.
                self._network.run(lambda: [*self._lookups.send(found), Published()])
            return [found]
        if not self._lookups.asks_remote(wanted.action):
            return [ResultNotFound(identifier=wanted.action.identifier, key=wanted.key)]
        if self._remote is not None and self._remote.may_be_overtaken:
            self._lookup_timeout.asked(wanted.action.identifier, run_seconds=self._run_seconds(wanted.action))
        self._network.run(lambda: self._lookups.there(wanted))
        return []

    def _remote_failed(self, error: CacheError) -> None:
        self._inbox.put(RemoteFailure(message=str(error)))

    def _on_outcomes(self, outcomes: Iterable[ExecutionOutcome]) -> list[SchedulerEvent]:
        believed = (self._runner.end(outcome) for outcome in outcomes)
        return [Executed(outcome=outcome) for outcome in believed if outcome is not None]

    # Results.

    def _publish(self, told: Publish) -> None:
        run, outcome = self._runner.ended(told.action.identifier)
        assert run is not None
        assert outcome is not None
        self._publishing += 1
        self._background.run(partial(self._result_publisher.publish, told, run.key, outcome))

    def _discover(self, told: Discover) -> list[SchedulerEvent]:
        if told.inline is None and self._remote is not None and self._store.missing((told.manifest,)):
            self._network.run(lambda: [discover(told, self._read_manifest)])
            return []
        return [discover(told, self._read_manifest)]

    def _read_manifest(self, digest: Digest) -> bytes:
        if self._store.missing((digest,)):
            self._fetcher.provide((digest,), ())
        return self._store.read(digest)
