"""The build driver: carries out the scheduler's instructions, in one loop over one queue of what happened.

The scheduler decides; the driver waits. Quick work (a lookup on disk, a stat) is done in the loop. What may take long
(digesting sources, storing them, a remote, placing outputs, publishing) is done in a few threads, which answer through
the queue. Actions run on the executors.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from mlcbuild.cache.digest import Digest
from mlcbuild.cache.file_digests import FileDigests
from mlcbuild.engine.action import Action
from mlcbuild.engine.action_cache_lookup import ActionCacheLookup, FoundRemotely, LocalStore
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
from mlcbuild.engine.remote_session import RemoteSession
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
from mlcbuild.errors import InfrastructureError, InternalError, MlcbuildError

_BACKGROUND_THREADS = 4
NO_CACHED_RESULT = "no cache has its result"
_NETWORK_THREADS = 16  # They mostly wait for a remote. The other threads must not have to.


class _Kill:
    """The user does not want to wait until running actions have stopped."""


class Driver:
    """One build. `build` runs it in the calling thread. `interrupt` may be called from any thread or signal handler.

    `store` holds the blobs and results of this machine. `digests`, `placer` and `last_build` are saved here at the end;
    whoever made `toolchains` and `implementations` saves them. Executors are started and closed here. `jobs = 0` stands
    for all slots of all executors. With `rerun` no result of a pure function is looked up, with `rerun_tests` none of a
    test. With `from_cache_only` no action runs: one without a result ends as `ActionStatus.NOT_CACHED`, and what needs
    it is skipped. Listeners are called in order, from the thread of `build`. `invocation` is the UUID that they are
    given; "" stands for a new one.
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
        rerun_tests: bool = False,
        from_cache_only: bool = False,
        remote: RemoteCache | None = None,
    ) -> None:
        if not executors:
            raise ValueError("a build needs an executor")
        self._store = store
        self._executors = tuple(executors)
        self._jobs = jobs
        self._from_cache_only = from_cache_only
        self._digests = digests
        self._last_build = last_build
        self._remote = remote
        self._inbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._background = Background(self._inbox, threads=_BACKGROUND_THREADS)
        self._network = Background(self._inbox, threads=_NETWORK_THREADS) if remote else self._background
        self._build_events = BuildEventPublisher(listeners, invocation=invocation)
        self._remote_session = RemoteSession(
            remote, inbox=self._inbox, background=self._background, build_events=self._build_events
        )
        self._fetcher = InputFetcher(
            workspace=workspace, store=store, digests=digests, remote=remote, on_failure=self._remote_session.failed
        )
        self._result_publisher = ResultPublisher(store=store, fetcher=self._fetcher, remote=remote)
        self._lookups = ActionCacheLookup(
            store=store, remote=remote, last_build=last_build, rerun=rerun, rerun_tests=rerun_tests
        )
        self._key_cache = KeyCache(
            toolchains=toolchains,
            implementations=implementations,
            function=store.function,
            last_build=last_build,
        )
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
        self._interruptions = 0
        self._killed = False
        self._end: Finished | None = None

    def interrupt(self) -> None:
        """Stop the build: cancel running actions and keep what has finished. A second call does not wait for them."""
        self._interruptions += 1
        self._inbox.put(Cancelled() if self._interruptions == 1 else _Kill())

    def build(self, actions: Iterable[Action], targets: Sequence[RequestedTarget]) -> BuildResult:
        """Build the targets, which need some of the actions. To be called once.

        The result says whether the build failed or was interrupted. Raises InternalError for a bug of ours.
        """
        self._build_events.begin(
            targets,
            jobs=self._scheduler.queue.jobs,
            digest_function=self._store.function.value,
        )
        for executor in self._executors:
            executor.start(lambda outcome: self._inbox.put(Executed(outcome=outcome)))
        self._remote_session.start()
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

    def _run_to_the_end(self, happened: list[SchedulerEvent]) -> None:
        while self._end is None:
            happened += self._jobs_added()
            answers: list[SchedulerEvent] = []
            instructions = self._scheduler.handle(*happened)
            self._lookups.announce(instructions)
            for instruction in instructions:
                answers += self._carry_out(instruction)
            happened = answers
            if self._end is None and not happened:
                happened = self._next()
            happened += self._received()
        while self._publishing and not self._killed:
            self._receive(self._inbox.get())
        self._finish_sending()
        self._received()

    def _jobs_added(self) -> list[SchedulerEvent]:
        """An executor may turn out to have more slots than it could say at first."""
        jobs = 0 if self._jobs else sum(executor.slots for executor in self._executors)
        return [JobsAdded(jobs=jobs)] if jobs > self._scheduler.queue.jobs else []

    def _finish_sending(self) -> None:
        """All outputs are here. Wait until the remote has sent the rest, unless the user interrupts."""
        if self._interruptions:
            self._remote_session.abandon()
        self._remote_session.finish()
        while self._remote_session.is_sending and not self._killed:
            message = self._inbox.get()
            if isinstance(message, Cancelled):
                self._remote_session.abandon()
            self._receive(message)

    def _next(self) -> list[SchedulerEvent]:
        """Wait until something happens, or until a lookup takes too long."""
        try:
            return self._receive(self._inbox.get(timeout=self._lookup_timeout.seconds_left()))
        except queue.Empty:
            return [LookupSlow(identifier=identifier) for identifier in self._lookup_timeout.exhausted()]

    def _received(self) -> list[SchedulerEvent]:
        happened: list[SchedulerEvent] = []
        while not self._inbox.empty():
            happened += self._receive(self._inbox.get())
        return happened

    def _receive(self, message: object) -> list[SchedulerEvent]:
        """What the scheduler is to know of a message from the inbox."""
        if self._remote_session.receive(message):
            return []
        match message:
            case Executed(outcome=outcome):
                return self._on_outcomes([outcome])
            case Prepared():
                return self._on_outcomes(self._runner.prepared(message))
            case Published(failure=failure):
                self._publishing -= 1
                if failure:
                    self._build_events.notice(failure)
                return []
            case FoundRemotely(found=found):
                self._lookup_timeout.answered(found.identifier)
                self._reporter.found_remotely.add(found.identifier)
                return [found]
            case ResultNotFound(identifier=identifier):
                self._lookup_timeout.answered(identifier)
                return [message]
            case _Kill():
                return self._kill()
            case MlcbuildError():
                raise message
            case Exception():
                raise InternalError(f"a background job failed: {message!r}") from message
            case _:
                return [message]  # type: ignore[list-item]  # All other messages are events.

    def _kill(self) -> list[SchedulerEvent]:
        self._killed = True
        self._remote_session.abandon()
        for executor in self._executors:
            executor.close()
        stopped = self._on_outcomes(
            ExecutionOutcome(identifier=identifier, kind=OutcomeKind.CANCELLED)
            for identifier in self._runner.identifiers()
        )
        interrupted = "the build was interrupted"
        failed = [DeliveryFailed(label=label, message=interrupted) for label in self._deliveries.labels()]
        return [Cancelled(), *stopped, *failed]

    def _conclude(self) -> BuildResult:
        assert self._end is not None
        self._remote_session.conclude()
        graph = self._scheduler.graph

        def producers_of(identifier: str) -> list[str]:
            return [producer.name for producer in graph.known_producers_of(graph.actions[identifier])]

        chains = Chains(self._build_events.executed, producers_of)
        return self._build_events.end(
            success=self._end.success,
            interrupted=self._end.cancelled,
            critical_path=chains.longest(),
            slacks=chains.slacks(),
            bytes_downloaded=self._remote_session.bytes_downloaded,
            bytes_uploaded=self._remote_session.bytes_uploaded,
        )

    # Instructions. Answers that are known at once are returned.

    def _carry_out(self, instruction: Instruction) -> list[SchedulerEvent]:
        match instruction:
            case LookUp():
                return self._look_up(instruction)
            case ReportAction():
                self._reporter.report(instruction)
            case DigestSources(paths=paths):
                for job in self._fetcher.digesting(paths):
                    self._background.run(job)
            case AnnounceWanted():
                self._build_events.wanted(instruction)
            case Execute(action=action) if self._from_cache_only:
                return [self._refused(action)]
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

    # Lookups.

    def _look_up(self, instruction: LookUp) -> list[SchedulerEvent]:
        found = self._lookups.on_disk(instruction)
        if found is not None:
            self._key_cache.drop(instruction.key)
            if self._lookups.sends_found(instruction.action):
                self._publishing += 1  # It must be sent before the remote is asked to finish.
                self._network.run(lambda: [*self._lookups.send(found), Published()])
            return [found]
        if not self._lookups.asks_remote(instruction.action):
            return [ResultNotFound(identifier=instruction.action.identifier, key=instruction.key)]
        if self._remote is not None and self._remote.may_be_overtaken and not self._from_cache_only:
            self._lookup_timeout.asked(instruction.action.identifier, run_seconds=self._run_seconds(instruction.action))
        self._network.run(lambda: self._lookups.at_remote(instruction))
        return []

    def _on_outcomes(self, outcomes: Iterable[ExecutionOutcome]) -> list[SchedulerEvent]:
        ended = (self._runner.end(outcome) for outcome in outcomes)
        return [Executed(outcome=outcome) for outcome in ended if outcome is not None]

    # Results.

    def _refused(self, action: Action) -> SchedulerEvent:
        """The answer to an action that would run in a build that takes results from caches alone."""
        self._reporter.not_cached.add(action.identifier)
        outcome = ExecutionOutcome(identifier=action.identifier, kind=OutcomeKind.FAILED, message=NO_CACHED_RESULT)
        return Executed(outcome=outcome)

    def _publish(self, instruction: Publish) -> None:
        attempt, outcome = self._runner.ended(instruction.action.identifier)
        assert attempt is not None
        assert outcome is not None
        self._publishing += 1
        self._background.run(partial(self._result_publisher.publish, instruction, attempt.key, outcome))

    def _discover(self, instruction: Discover) -> list[SchedulerEvent]:
        if instruction.inline is None and self._remote is not None and self._store.missing((instruction.manifest,)):
            self._network.run(lambda: [discover(instruction, self._read_manifest)])
            return []
        return [discover(instruction, self._read_manifest)]

    def _read_manifest(self, digest: Digest) -> bytes:
        if self._store.missing((digest,)):
            self._fetcher.fetch((digest,), ())
        return self._store.read(digest)
