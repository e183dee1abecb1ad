"""The scheduler: a state machine that is told what happened and says what to do. No clock, no I/O, no threads.

An action waits until the digests of all its inputs are known, and only then has a key; so a producer that made
equal bytes leads to the key of the last build, and the rebuild stops there (early cutoff). Actions of one key share
one look-up and one run. A blob that has gone makes its producer run again, and that one's producers where needed.
The rules that hold after every step are written down in `mlcbuild.engine.invariants`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.engine import stimuli as s
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry, OutcomeKind
from mlcbuild.engine.graph import Graph
from mlcbuild.engine.instructions import (
    AnnounceWanted,
    Cancel,
    Deliver,
    DigestSources,
    Discover,
    Ending,
    Execute,
    Finished,
    Instruction,
    LookUp,
    Publish,
    ReportAction,
    ReportTarget,
)
from mlcbuild.engine.nodes import BROKEN, ENDED, ActionNode, Consumer, NodeState, SourceNode, TargetNode
from mlcbuild.engine.priorities import SecondsOf, unknown_seconds
from mlcbuild.engine.ready_queue import ReadyQueue
from mlcbuild.engine.resolution import fault_in
from mlcbuild.errors import BuildError, InternalError, MlcbuildError

REWIND_LIMIT = 20
LOSS_LIMIT = 5
SHORTAGE_LIMIT = 2  # of memory


class KeyFunction(Protocol):
    """The key of an action with these inputs: a pure function. Raises MlcbuildError or ValueError."""

    def __call__(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest: ...


class Scheduler:
    """Decides what a build does next.

    `jobs` actions run at once at most, each counted as `requirements.cpus` (no more than `jobs`). Without
    `keep_going` nothing new starts after the first failure. `seconds_of` says how long an action is thought to take.
    """

    def __init__(
        self,
        *,
        key_of: KeyFunction,
        jobs: int,
        keep_going: bool = False,
        seconds_of: SecondsOf = unknown_seconds,
        rewind_limit: int = REWIND_LIMIT,
        loss_limit: int = LOSS_LIMIT,
        shortage_limit: int = SHORTAGE_LIMIT,
    ) -> None:
        self.keep_going = keep_going
        self.graph = Graph()
        self.queue = ReadyQueue(jobs=jobs, seconds_of=seconds_of)
        self.leaders: dict[Digest, ActionNode] = {}
        self.in_flight = 0  # look-ups, discoveries, deliveries, executions and digests not answered yet
        self.unsettled = 0  # wanted actions and targets that have not ended
        self.wanted = 0  # actions
        self.stopped_by = ""  # the failure after which nothing new starts
        self.failed = False
        self.cancelled = False
        self.finished = False
        self.requested = False
        self.delivering = 0
        self._key_of = key_of
        self._rewind_limit = rewind_limit
        self._loss_limit = loss_limit
        self._shortage_limit = shortage_limit
        self._evaluate: deque[Consumer] = deque()
        self._instructions: list[Instruction] = []
        self._wanted_for: dict[str, int] = {}
        self._handlers: Mapping[type, Callable[..., None]] = {
            s.ActionsAdded: self._on_actions_added,
            s.TargetsRequested: self._on_targets_requested,
            s.JobsAdded: self._on_jobs_added,
            s.SourceDigested: self._on_source_digested,
            s.SourceUnavailable: self._on_source_unavailable,
            s.ResultFound: self._on_result_found,
            s.ResultNotFound: self._on_result_not_found,
            s.LookUpSlow: self._on_look_up_slow,
            s.Executed: self._on_executed,
            s.ActionsDiscovered: self._on_actions_discovered,
            s.DiscoveryFailed: self._on_discovery_failed,
            s.TargetDelivered: self._on_target_delivered,
            s.DeliveryFailed: self._on_delivery_failed,
            s.BlobsMissing: self._on_blobs_missing,
            s.ExecutorLost: self._on_executor_lost,
            s.Cancelled: self._on_cancelled,
        }

    def handle(self, *told: s.Stimulus) -> list[Instruction]:
        """Take in what happened and answer with what to do, in order. After Finished the answer is empty.

        Raises InternalError where two different actions are added under one identifier.
        """
        for stimulus in told:
            if not self.finished:
                self._handlers[type(stimulus)](stimulus)
        if not self.finished:
            self._go_on()
        instructions, self._instructions = self._instructions, []
        return instructions

    # What was told.

    def _on_actions_added(self, told: s.ActionsAdded) -> None:
        for action in told.actions:
            conflict = self.graph.add(action, discovered_by="")
            if conflict:
                raise InternalError(conflict)

    def _on_jobs_added(self, told: s.JobsAdded) -> None:
        self.queue.grow(told.jobs)

    def _on_targets_requested(self, told: s.TargetsRequested) -> None:
        self.requested = True
        for target in told.targets:
            if target.label not in self.graph.targets:
                node = self.graph.targets[target.label] = TargetNode(target=target)
                self._want(node)

    def _on_source_digested(self, told: s.SourceDigested) -> None:
        node = self._answered_source(told.path)
        if node is not None:
            node.digest, node.is_executable = told.digest, told.is_executable
            self._release(node)

    def _on_source_unavailable(self, told: s.SourceUnavailable) -> None:
        node = self._answered_source(told.path)
        if node is not None:
            node.error = told.message
            self._release(node)

    def _on_look_up_slow(self, told: s.LookUpSlow) -> None:
        """Run it meanwhile, where there is room: whichever is done first counts."""
        node = self.graph.actions.get(told.identifier)
        if node is not None and node.state is NodeState.LOOKING_UP:
            node.is_asked_for = True
            self.in_flight -= 1
            self._found_nothing(node)

    def _on_result_found(self, told: s.ResultFound) -> None:
        node = self._looked_up(told.identifier, told.key) or self._overtaken(told)
        if node is None:
            return
        if fault_in(node.action, told.outputs):
            self._has_no_result(node)  # A result without what was declared is no result; the run overwrites it.
        else:
            node.is_asked_for, node.failure = False, ""
            node.inline_manifest = told.manifest
            self._made(node, told.outputs, Ending.FOUND)

    def _overtaken(self, told: s.ResultFound) -> ActionNode | None:
        """The node if its run has not begun; one that runs is told to stop, and takes the result when it has."""
        node = self.graph.actions.get(told.identifier)
        if node is None or not node.is_asked_for or node.key != told.key:
            return None
        node.is_asked_for = False
        if node.rewinds or fault_in(node.action, told.outputs):
            return None  # Its blobs have gone before: a run makes them again, the result does not.
        if node.state is NodeState.RUNNING and node.late_result is None:
            node.late_result = told
            self._instructions.append(Cancel(identifier=node.name))
        return node if node.state is NodeState.READY else None

    def _on_result_not_found(self, told: s.ResultNotFound) -> None:
        node = self.graph.actions.get(told.identifier)
        if node is not None and node.key == told.key:
            node.is_asked_for = False
        node = self._looked_up(told.identifier, told.key)
        if node is not None:
            self._has_no_result(node)

    def _has_no_result(self, node: ActionNode) -> None:
        if node.failure:
            self._fail(node, node.failure)
        else:
            self._found_nothing(node)

    def _on_executed(self, told: s.Executed) -> None:
        outcome = told.outcome
        node = self._stop_running(outcome.identifier)
        if node is None:
            return
        late, node.late_result = node.late_result, None
        if late is not None and outcome.kind is not OutcomeKind.SUCCEEDED:
            node.inline_manifest = late.manifest
            self._made(node, late.outputs, Ending.FOUND)
            return
        match outcome.kind:
            case OutcomeKind.SUCCEEDED:
                self._succeeded(node, outcome)
            case OutcomeKind.INPUTS_MISSING:
                self._rewind(node, outcome.missing)
            case OutcomeKind.LOST:
                self._lost(node, outcome.message)
            case OutcomeKind.OUT_OF_MEMORY:
                self._out_of_memory(node, outcome)
            case OutcomeKind.CANCELLED if self.cancelled:
                self._end_badly(node, NodeState.SKIPPED, "the build was interrupted")
            case OutcomeKind.CANCELLED:
                self._lost(node, outcome.message)
            case _ if node.is_asked_for and not node.rewinds and not self.cancelled:
                # Another machine may have had what this one lacks: nothing has failed before the remote has answered.
                node.failure = outcome.message or "it failed without a word"
                node.state = NodeState.LOOKING_UP
                self.in_flight += 1
            case _:
                self._fail(node, outcome.message or "it failed without a word")

    def _on_actions_discovered(self, told: s.ActionsDiscovered) -> None:
        node = self._answered(told.identifier, NodeState.DISCOVERING)
        if node is None:
            return
        for action in told.discovery.actions:
            conflict = self.graph.add(action, discovered_by=node.name)
            if conflict:
                self._fail(node, f"what it discovered cannot be: {conflict}")
                return
        node.groups = dict(told.discovery.groups)
        self._done(node)

    def _on_discovery_failed(self, told: s.DiscoveryFailed) -> None:
        node = self._answered(told.identifier, NodeState.DISCOVERING)
        if node is not None:
            self._fail(node, told.message)

    def _on_target_delivered(self, told: s.TargetDelivered) -> None:
        node = self._answered_target(told.label)
        if node is not None:
            node.state = NodeState.DONE
            self.unsettled -= 1
            self._instructions.append(ReportTarget(label=told.label, success=True))

    def _on_delivery_failed(self, told: s.DeliveryFailed) -> None:
        node = self._answered_target(told.label)
        if node is not None:
            self._fail(node, told.message)

    def _on_blobs_missing(self, told: s.BlobsMissing) -> None:
        target = self._answered_target(told.needed_by)
        if target is not None:
            self._rewind(target, told.digests)
            return
        node = self._answered(told.needed_by, NodeState.DISCOVERING)
        if node is not None and self._run_again(node):
            self._wait(node)

    def _on_executor_lost(self, told: s.ExecutorLost) -> None:
        for identifier in told.identifiers:
            lost = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.LOST, message="its executor went away")
            self._on_executed(s.Executed(outcome=lost))

    def _on_cancelled(self, _told: s.Cancelled) -> None:
        if not self.cancelled:
            self.cancelled = True
            self._instructions += [Cancel(identifier=name) for name in self.queue.running]

    # Answers: the node if it still waits for one.

    def _answered(self, identifier: str, state: NodeState) -> ActionNode | None:
        node = self.graph.actions.get(identifier)
        if node is None or node.state is not state:
            return None
        self.in_flight -= 1
        return node

    def _looked_up(self, identifier: str, key: Digest) -> ActionNode | None:
        node = self.graph.actions.get(identifier)
        return None if node is None or node.key != key else self._answered(identifier, NodeState.LOOKING_UP)

    def _answered_target(self, label: str) -> TargetNode | None:
        node = self.graph.targets.get(label)
        if node is None or node.state is not NodeState.DELIVERING:
            return None
        self.in_flight -= 1
        self.delivering -= 1
        return node

    def _answered_source(self, path: str) -> SourceNode | None:
        node = self.graph.sources.get(path)
        if node is None or node.digest is not None or node.error:
            return None
        self.in_flight -= 1
        return node

    def _stop_running(self, identifier: str) -> ActionNode | None:
        node = self.queue.stop(identifier)
        if node is not None:
            self.in_flight -= 1
        return node

    # Going on: until nothing moves without an answer.

    def _go_on(self) -> None:
        while True:
            while self._evaluate:
                node = self._evaluate.popleft()
                if node.state is not NodeState.WAITING:
                    continue
                if node.pending == 0 and self._may_advance(node):
                    self._advance(node)
                elif node.pending and not self._stopping:
                    self._wait_for_discovered(node)
            self._start_ready()
            if self._evaluate:
                continue
            if self._stopping or self.in_flight or self.graph.undigested or not self.unsettled:
                break
            self._break_cycle()
        if self._stopping and not self.queue.running and not self.delivering:
            self._give_up()
        if self.graph.undigested:
            paths, self.graph.undigested = tuple(self.graph.undigested), []
            self.in_flight += len(paths)
            self._instructions.append(DigestSources(paths=paths))
        self._announce()
        if self.requested and self.unsettled == 0 and not self.queue.running:
            self.finished = True
            self._instructions.append(
                Finished(success=not self.failed and not self.cancelled, cancelled=self.cancelled)
            )

    def _want(self, node: Consumer) -> None:
        node.state = NodeState.WAITING
        self.unsettled += 1
        self._evaluate.append(node)

    def _may_advance(self, node: Consumer) -> bool:
        """After a failure a target that is complete is still delivered."""
        return not self._stopping or (isinstance(node, TargetNode) and not self.cancelled)

    @property
    def _stopping(self) -> bool:
        return self.cancelled or bool(self.stopped_by)

    def _announce(self) -> None:
        for cause, count in self._wanted_for.items():
            self.wanted += count
            self._instructions.append(AnnounceWanted(count=count, total=self.wanted, discovered_by=cause))
        self._wanted_for = {}

    def _advance(self, node: Consumer) -> None:
        """Wait for the producers that are not done; where all are, resolve the inputs and use them."""
        at_hand = self.graph.files_at_hand(node)
        if at_hand is None:
            try:
                waits_for = self._unready_producers(node)
                if waits_for is None or waits_for:
                    return
                at_hand = self.graph.files_of(node)
            except BuildError as error:
                self._fail(node, str(error))
                return
        files, sources = at_hand
        if isinstance(node, TargetNode):
            node.state = NodeState.DELIVERING
            self.in_flight += 1
            self.delivering += 1
            self._instructions.append(
                Deliver(label=node.name, directory=node.target.directory, files=files, sources=sources)
            )
        else:
            node.sources = sources
            self._resolved(node, files)

    def _unready_producers(self, node: Consumer) -> dict[int, SourceNode | ActionNode] | None:
        """Those that `node` waits for from now on; None where it never will be ready, and has ended."""
        unready: dict[int, SourceNode | ActionNode] = {}
        for producer in self.graph.producers_of(node):
            if isinstance(producer, SourceNode):
                if producer.error:
                    self._fail(node, producer.error)
                    return None
                if producer.digest is None:
                    unready[id(producer)] = producer
                continue
            state = producer.state
            if state is NodeState.DONE:
                continue
            if state in BROKEN:
                self._skip_after(node, producer)
                return None
            if state is NodeState.UNWANTED:
                self._want(producer)
                self.queue.wanted(producer)
                cause = producer.discovered_by
                self._wanted_for[cause] = self._wanted_for.get(cause, 0) + 1
            unready[id(producer)] = producer
        waits = node.pending > 0
        for producer in unready.values():
            if not waits or node not in producer.waiters:
                producer.waiters.append(node)
                node.pending += 1
        return unready

    def _wait_for_discovered(self, node: Consumer) -> None:
        """What has been discovered for a node need not wait for the other things that the node waits for."""
        try:
            self._unready_producers(node)
        except BuildError as error:
            self._fail(node, str(error))

    def _release(self, producer: SourceNode | ActionNode) -> None:
        waiters, producer.waiters = producer.waiters, []
        discovers = isinstance(producer, ActionNode) and producer.action.discoverer is not None
        for waiter in waiters:
            waiter.pending -= 1
            if waiter.state is NodeState.WAITING and (waiter.pending == 0 or discovers):
                self._evaluate.append(waiter)

    # One action's way: key, look-up, run, result.

    def _resolved(self, node: ActionNode, inputs: tuple[FileEntry, ...]) -> None:
        try:
            key = self._key_of(node.action, inputs)
        except (MlcbuildError, ValueError) as error:
            self._fail(node, str(error))
            return
        node.key = key
        node.inputs = inputs
        if node.action.cache is CachePolicy.NONE:
            self._make_ready(node)
            return
        leader = self.leaders.get(key)
        if node.rerun_key == key:
            if leader is not None and leader.state in (NodeState.READY, NodeState.RUNNING):
                self._join(node, leader)
            else:
                self.leaders[key] = node
                self._make_ready(node)
        elif leader is None:
            self.leaders[key] = node
            node.state = NodeState.LOOKING_UP
            self.in_flight += 1
            self._instructions.append(LookUp(action=node.action, key=key))
        else:
            self._share(node, leader)

    def _share(self, node: ActionNode, leader: ActionNode) -> None:
        """Take the result of an action with the same key, now or once it is there."""
        if leader.state in (NodeState.DONE, NodeState.DISCOVERING):
            assert leader.outputs is not None
            node.inline_manifest = leader.inline_manifest
            self._made(node, leader.outputs, Ending.SHARED)
        else:
            self._join(node, leader)

    def _join(self, node: ActionNode, leader: ActionNode) -> None:
        node.state = NodeState.JOINED
        node.leader = leader
        leader.followers.append(node)

    def _found_nothing(self, node: ActionNode) -> None:
        assert node.key is not None
        node.rerun_key = node.key
        leader = self.leaders.get(node.key)
        if leader is None or leader is node or leader.state is NodeState.LOOKING_UP:
            self.leaders[node.key] = node
            self._make_ready(node)
        else:
            self._share(node, leader)

    def _make_ready(self, node: ActionNode) -> None:
        node.state = NodeState.READY
        self.queue.push(node)

    def _start_ready(self) -> None:
        while not self._stopping and (node := self.queue.next()) is not None:
            # A producer whose blobs have gone may be running again: no run without inputs.
            if all(producer.state is NodeState.DONE for producer in self.graph.known_producers_of(node)):
                self._start(node)
            else:
                if not node.rewinds:
                    node.rerun_key = None  # By then another action of this key may have run.
                self._wait(node)

    def _start(self, node: ActionNode) -> None:
        assert node.key is not None
        node.state = NodeState.RUNNING
        self.queue.start(node)
        self.in_flight += 1
        self._instructions.append(
            Execute(
                action=node.action,
                key=node.key,
                inputs=node.inputs,
                sources=node.sources,
                memory_bytes=node.memory_bytes,
            )
        )

    def _succeeded(self, node: ActionNode, outcome: ExecutionOutcome) -> None:
        fault = fault_in(node.action, outcome.outputs)
        if fault:
            self._fail(node, fault)
            return
        assert node.key is not None
        if node.action.cache is not CachePolicy.NONE:
            self._instructions.append(Publish(action=node.action, key=node.key, outputs=outcome.outputs))
        node.inline_manifest = None
        self._made(node, outcome.outputs, Ending.EXECUTED)

    def _made(self, node: ActionNode, outputs: tuple[FileEntry, ...], ending: Ending) -> None:
        node.outputs = outputs
        node.by_path = None
        node.ending = ending
        node.rerun_key = None
        followers, node.followers = node.followers, []
        for follower in followers:
            follower.leader = None
            follower.inline_manifest = node.inline_manifest
            self._made(follower, outputs, Ending.SHARED)
        if node.action.discoverer is not None:
            manifest = next(entry.digest for entry in outputs if entry.path == node.action.manifest)
            if node.discovered_from != manifest:
                node.discovered_from = manifest
                node.groups = None
                node.state = NodeState.DISCOVERING
                self.in_flight += 1
                self._instructions.append(Discover(action=node.action, manifest=manifest, inline=node.inline_manifest))
                return
        self._done(node)

    def _done(self, node: ActionNode) -> None:
        assert node.ending is not None
        node.state = NodeState.DONE
        node.inputs = ()
        self.unsettled -= 1
        self._instructions.append(ReportAction(action=node.action, key=node.key, ending=node.ending))
        self._release(node)

    # Trouble.

    def _wait(self, node: ActionNode | TargetNode) -> None:
        """Back to the beginning: the producers again, then the key again."""
        node.state = NodeState.WAITING
        node.pending = 0
        self._evaluate.append(node)
        if isinstance(node, ActionNode):
            self._leave_key(node)

    def _leave_key(self, node: ActionNode) -> None:
        """Let others with this key go their own way: the node may depend on one of them."""
        if node.key is not None and self.leaders.get(node.key) is node:
            del self.leaders[node.key]
        followers, node.followers = node.followers, []
        for follower in followers:
            follower.leader = None
            self._wait(follower)

    def _run_again(self, node: ActionNode) -> bool:
        """Have an action make its outputs again, whatever the cache says. False where it failed by too many times."""
        node.rewinds += 1
        if node.state is NodeState.DONE:
            self.unsettled += 1
        if node.rewinds > self._rewind_limit:
            self._fail(node, f"its outputs have gone from the cache {node.rewinds} times in this build")
            return False
        node.rerun_key = node.key
        node.discovered_from = node.discovered_from if node.groups is not None else None
        self._wait(node)
        return True

    def _rewind(self, node: Consumer, missing: Iterable[Digest]) -> None:
        """Make the blobs that `node` lacks again, then go on with it."""
        gone = set(missing)
        node.rewinds += 1
        if node.rewinds > self._rewind_limit:
            self._fail(node, f"its inputs have gone from the cache {node.rewinds} times in this build")
            return
        if isinstance(node, ActionNode):
            node.rerun_key = node.key
        self._wait(node)
        for producer in self.graph.known_producers_of(node):
            made = producer.outputs or ()
            if producer.state is NodeState.DONE and any(entry.digest in gone for entry in made):
                self._run_again(producer)

    def _lost(self, node: ActionNode, message: str) -> None:
        node.losses += 1
        if node.losses > self._loss_limit:
            self._fail(node, f"its executor was lost {node.losses} times: {message}")
        else:
            self._make_ready(node)

    def _out_of_memory(self, node: ActionNode, outcome: ExecutionOutcome) -> None:
        """Again with twice as much, a few times."""
        node.shortages += 1
        if node.shortages > self._shortage_limit:
            self._fail(node, outcome.message)
        else:
            had = max(node.memory_bytes, node.action.requirements.memory_bytes, outcome.peak_bytes)
            node.memory_bytes = 2 * had
            self._make_ready(node)

    def _fail(self, node: Consumer, message: str) -> None:
        self.failed = True
        if not self.keep_going and not self.stopped_by:
            self.stopped_by = node.name
        self._end_badly(node, NodeState.FAILED, message)

    def _skip_after(self, node: Consumer, producer: ActionNode) -> None:
        cause = producer.name if producer.state is NodeState.FAILED else producer.blocked_by
        self._end_badly(node, NodeState.SKIPPED, f"{cause} failed" if cause else producer.message, cause)

    def _end_badly(self, first: Consumer, state: NodeState, message: str, cause: str = "") -> None:
        """End a node without a result, and with it all that wait for it."""
        worklist: list[tuple[Consumer, NodeState, str, str]] = [(first, state, message, cause)]
        while worklist:
            node, state, message, cause = worklist.pop()
            if node.state in ENDED and node.state is not NodeState.DONE:
                continue
            node.state = state
            self.unsettled -= 1
            if isinstance(node, TargetNode):
                self._instructions.append(
                    ReportTarget(label=node.name, success=False, message=message, blocked_by=cause)
                )
                continue
            node.message, node.blocked_by = message, cause
            ending = Ending.FAILED if state is NodeState.FAILED else Ending.SKIPPED
            self._instructions.append(
                ReportAction(action=node.action, key=node.key, ending=ending, message=message, blocked_by=cause)
            )
            root = node.name if state is NodeState.FAILED else cause
            after = f"{root} failed" if root else message
            if node.key is not None and self.leaders.get(node.key) is node:
                del self.leaders[node.key]
            blocked: list[Consumer] = [*node.waiters, *node.followers]
            node.waiters, node.followers = [], []
            for other in reversed(blocked):
                worklist.append((other, NodeState.SKIPPED, after, root))

    def _give_up(self) -> None:
        """Nothing runs and nothing new starts: end all that is left."""
        cause = "" if self.cancelled else self.stopped_by
        message = f"the build stopped because {cause} failed" if cause else "the build was interrupted"
        nodes: list[Consumer] = [*self.graph.actions.values(), *self.graph.targets.values()]
        for node in nodes:
            if node.state is not NodeState.UNWANTED and node.state not in ENDED:
                self._end_badly(node, NodeState.SKIPPED, message, cause)

    def _break_cycle(self) -> None:
        """Nothing is in flight and something waits: it waits for itself."""
        cycle = self.graph.waiting_cycle()
        if not cycle:
            raise InternalError(f"the build stands still with {self.unsettled} actions or targets left")
        self._fail(self.graph.actions[cycle[0]], f"it needs its own output: {' → '.join((*cycle, cycle[0]))}")
