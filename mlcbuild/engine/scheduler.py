"""The scheduler: a state machine that is told what happened and says what to do. No clock, no I/O, no threads.

An action waits until the digests of all its inputs are known, and only then has a key; so a producer that made
equal bytes leads to the key of the last build, and the rebuild stops there (early cutoff). Actions of one key share
one look-up and one run. A blob that has gone makes its producer run again, and that one's producers where needed.
The rules that hold after every step are written down in `mlcbuild.engine.invariants`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mlcbuild.cache.digest import Digest
from mlcbuild.engine import scheduler_events as events
from mlcbuild.engine.action_lifecycle import ActionLifecycle, KeyFunction
from mlcbuild.engine.dependency_tracker import DependencyTracker
from mlcbuild.engine.executor import ExecutionOutcome, OutcomeKind
from mlcbuild.engine.failure_propagation import FailurePropagation
from mlcbuild.engine.instructions import (
    Cancel,
    Deliver,
    DigestSources,
    Finished,
    Instruction,
    ReportTarget,
)
from mlcbuild.engine.nodes import ActionNode, Consumer, NodeState, SourceNode, TargetNode
from mlcbuild.engine.priorities import SecondsOf, unknown_seconds
from mlcbuild.engine.ready_queue import ReadyQueue
from mlcbuild.engine.recovery import Recovery
from mlcbuild.engine.resolution import fault_in
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.errors import BuildError, InternalError

REWIND_LIMIT = 20
LOSS_LIMIT = 5
SHORTAGE_LIMIT = 2  # of memory


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
        self.queue = ReadyQueue(jobs=jobs, seconds_of=seconds_of)
        self.state = SchedulerState(queue=self.queue, keep_going=keep_going)
        self.graph = self.state.graph
        self.finished = False
        self._requested = False
        self._delivering = 0
        self._failures = FailurePropagation(self.state)
        self._dependencies = DependencyTracker(self.state, self._failures)
        self._lifecycle = ActionLifecycle(self.state, self._dependencies, self._failures, key_of)
        self._recovery = Recovery(
            self.state,
            self._dependencies,
            self._failures,
            self._lifecycle,
            rewind_limit=rewind_limit,
            loss_limit=loss_limit,
            shortage_limit=shortage_limit,
        )
        self._handlers: Mapping[type, Callable[..., None]] = {
            events.ActionsDeclared: self._on_actions_declared,
            events.TargetsRequested: self._on_targets_requested,
            events.JobsAdded: self._on_jobs_added,
            events.SourceDigested: self._on_source_digested,
            events.SourceUnavailable: self._on_source_unavailable,
            events.ResultFound: self._on_result_found,
            events.ResultNotFound: self._on_result_not_found,
            events.LookupSlow: self._on_lookup_slow,
            events.Executed: self._on_executed,
            events.ActionsDiscovered: self._on_actions_discovered,
            events.DiscoveryFailed: self._on_discovery_failed,
            events.TargetDelivered: self._on_target_delivered,
            events.DeliveryFailed: self._on_delivery_failed,
            events.BlobsMissing: self._on_blobs_missing,
            events.ExecutorLost: self._on_executor_lost,
            events.Cancelled: self._on_cancelled,
        }

    @property
    def cancelled(self) -> bool:
        return self.state.cancelled

    @property
    def stopped_by(self) -> str:
        """The failure after which nothing new starts; "" for none."""
        return self.state.stopped_by

    def handle(self, *told: events.SchedulerEvent) -> list[Instruction]:
        """Take in what happened and answer with what to do, in order. After Finished the answer is empty.

        Raises InternalError where two different actions are added under one identifier.
        """
        for event in told:
            if not self.finished:
                self._handlers[type(event)](event)
        if not self.finished:
            self._go_on()
        instructions, self.state.instructions = self.state.instructions, []
        return instructions

    # What was told.

    def _on_actions_declared(self, told: events.ActionsDeclared) -> None:
        for action in told.actions:
            conflict = self.graph.add(action, discovered_by="")
            if conflict:
                raise InternalError(conflict)

    def _on_jobs_added(self, told: events.JobsAdded) -> None:
        self.queue.grow(told.jobs)

    def _on_targets_requested(self, told: events.TargetsRequested) -> None:
        self._requested = True
        for target in told.targets:
            if target.label not in self.graph.targets:
                node = self.graph.targets[target.label] = TargetNode(target=target)
                self._dependencies.want(node)

    def _on_source_digested(self, told: events.SourceDigested) -> None:
        node = self._answered_source(told.path)
        if node is not None:
            node.digest, node.is_executable = told.digest, told.is_executable
            self._dependencies.release(node)

    def _on_source_unavailable(self, told: events.SourceUnavailable) -> None:
        node = self._answered_source(told.path)
        if node is not None:
            node.error = told.message
            self._dependencies.release(node)

    def _on_lookup_slow(self, told: events.LookupSlow) -> None:
        """Run it meanwhile, where there is room: whichever is done first counts."""
        node = self.graph.actions.get(told.identifier)
        if node is not None and node.state is NodeState.LOOKING_UP:
            node.is_asked_for = True
            self.state.in_flight -= 1
            self._lifecycle.found_nothing(node)

    def _on_result_found(self, told: events.ResultFound) -> None:
        node = self._looked_up(told.identifier, told.key) or self._overtaken(told)
        if node is None:
            return
        if fault_in(node.action, told.outputs):
            self._has_no_result(node)  # A result without what was declared is no result; the run overwrites it.
        else:
            node.is_asked_for, node.failure = False, ""
            self._lifecycle.found(node, told.outputs, told.manifest)

    def _overtaken(self, told: events.ResultFound) -> ActionNode | None:
        """The node if its run has not begun; one that runs is told to stop, and takes the result when it has."""
        node = self.graph.actions.get(told.identifier)
        if node is None or not node.is_asked_for or node.key != told.key:
            return None
        node.is_asked_for = False
        if node.rewinds or fault_in(node.action, told.outputs):
            return None  # Its blobs have gone before: a run makes them again, the result does not.
        if node.state is NodeState.RUNNING and node.late_result is None:
            node.late_result = told
            self.state.instructions.append(Cancel(identifier=node.name))
        return node if node.state is NodeState.READY else None

    def _on_result_not_found(self, told: events.ResultNotFound) -> None:
        node = self.graph.actions.get(told.identifier)
        if node is not None and node.key == told.key:
            node.is_asked_for = False
        node = self._looked_up(told.identifier, told.key)
        if node is not None:
            self._has_no_result(node)

    def _has_no_result(self, node: ActionNode) -> None:
        if node.failure:
            self._failures.fail(node, node.failure)
        else:
            self._lifecycle.found_nothing(node)

    def _on_executed(self, told: events.Executed) -> None:
        outcome = told.outcome
        node = self._stop_running(outcome.identifier)
        if node is None:
            return
        late, node.late_result = node.late_result, None
        if late is not None and outcome.kind is not OutcomeKind.SUCCEEDED:
            self._lifecycle.found(node, late.outputs, late.manifest)
            return
        match outcome.kind:
            case OutcomeKind.SUCCEEDED:
                self._lifecycle.succeeded(node, outcome)
            case OutcomeKind.INPUTS_MISSING:
                self._recovery.rewind(node, outcome.missing)
            case OutcomeKind.LOST:
                self._recovery.lost(node, outcome.message)
            case OutcomeKind.OUT_OF_MEMORY:
                self._recovery.out_of_memory(node, outcome)
            case OutcomeKind.CANCELLED if self.cancelled:
                self._failures.interrupt(node)
            case OutcomeKind.CANCELLED:
                self._recovery.lost(node, outcome.message)
            case _ if node.is_asked_for and not node.rewinds and not self.cancelled:
                # Another machine may have had what this one lacks: nothing has failed before the remote has answered.
                node.failure = outcome.message or "it failed without a word"
                node.state = NodeState.LOOKING_UP
                self.state.in_flight += 1
            case _:
                self._failures.fail(node, outcome.message or "it failed without a word")

    def _on_actions_discovered(self, told: events.ActionsDiscovered) -> None:
        node = self._answered(told.identifier, NodeState.DISCOVERING)
        if node is None:
            return
        for action in told.discovery.actions:
            conflict = self.graph.add(action, discovered_by=node.name)
            if conflict:
                self._failures.fail(node, f"what it discovered cannot be: {conflict}")
                return
        node.groups = dict(told.discovery.groups)
        self._lifecycle.done(node)

    def _on_discovery_failed(self, told: events.DiscoveryFailed) -> None:
        node = self._answered(told.identifier, NodeState.DISCOVERING)
        if node is not None:
            self._failures.fail(node, told.message)

    def _on_target_delivered(self, told: events.TargetDelivered) -> None:
        node = self._answered_target(told.label)
        if node is not None:
            node.state = NodeState.DONE
            self.state.unsettled -= 1
            self.state.instructions.append(ReportTarget(label=told.label, success=True))

    def _on_delivery_failed(self, told: events.DeliveryFailed) -> None:
        node = self._answered_target(told.label)
        if node is not None:
            self._failures.fail(node, told.message)

    def _on_blobs_missing(self, told: events.BlobsMissing) -> None:
        target = self._answered_target(told.needed_by)
        if target is not None:
            self._recovery.rewind(target, told.digests)
            return
        node = self._answered(told.needed_by, NodeState.DISCOVERING)
        if node is not None:
            self._recovery.run_again(node)

    def _on_executor_lost(self, told: events.ExecutorLost) -> None:
        for identifier in told.identifiers:
            lost = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.LOST, message="its executor went away")
            self._on_executed(events.Executed(outcome=lost))

    def _on_cancelled(self, _told: events.Cancelled) -> None:
        if not self.state.cancelled:
            self.state.cancelled = True
            self.state.instructions += [Cancel(identifier=name) for name in self.queue.running]

    # Answers: the node if it still waits for one.

    def _answered(self, identifier: str, state: NodeState) -> ActionNode | None:
        node = self.graph.actions.get(identifier)
        if node is None or node.state is not state:
            return None
        self.state.in_flight -= 1
        return node

    def _looked_up(self, identifier: str, key: Digest) -> ActionNode | None:
        node = self.graph.actions.get(identifier)
        return None if node is None or node.key != key else self._answered(identifier, NodeState.LOOKING_UP)

    def _answered_target(self, label: str) -> TargetNode | None:
        node = self.graph.targets.get(label)
        if node is None or node.state is not NodeState.DELIVERING:
            return None
        self.state.in_flight -= 1
        self._delivering -= 1
        return node

    def _answered_source(self, path: str) -> SourceNode | None:
        node = self.graph.sources.get(path)
        if node is None or node.digest is not None or node.error:
            return None
        self.state.in_flight -= 1
        return node

    def _stop_running(self, identifier: str) -> ActionNode | None:
        node = self.queue.stop(identifier)
        if node is not None:
            self.state.in_flight -= 1
        return node

    # Going on: until nothing moves without an answer.

    def _go_on(self) -> None:
        state = self.state
        while True:
            while self._dependencies.movable:
                node = self._dependencies.movable.popleft()
                if node.state is not NodeState.WAITING:
                    continue
                if node.pending == 0 and self._may_advance(node):
                    self._advance(node)
                elif node.pending and not state.is_stopping:
                    # What has been discovered for it need not wait for what else it waits for.
                    self._dependencies.register(node)
            self._lifecycle.start_ready()
            if self._dependencies.movable:
                continue
            if state.is_stopping or state.in_flight or self.graph.undigested or not state.unsettled:
                break
            self._break_cycle()
        if state.is_stopping and not self.queue.running and not self._delivering:
            self._failures.give_up()
        if self.graph.undigested:
            paths, self.graph.undigested = tuple(self.graph.undigested), []
            state.in_flight += len(paths)
            state.instructions.append(DigestSources(paths=paths))
        self._dependencies.announce()
        if self._requested and state.unsettled == 0 and not self.queue.running:
            self.finished = True
            state.instructions.append(
                Finished(success=not state.failed and not self.cancelled, cancelled=self.cancelled)
            )

    def _may_advance(self, node: Consumer) -> bool:
        """After a failure a target that is complete is still delivered."""
        return not self.state.is_stopping or (isinstance(node, TargetNode) and not self.cancelled)

    def _advance(self, node: Consumer) -> None:
        """Wait for the producers that are not done; where all are, resolve the inputs and use them."""
        graph = self.graph
        at_hand = graph.files_at_hand(node)
        if at_hand is None:
            if not self._dependencies.register(node):
                return
            try:
                at_hand = graph.files_of(node)
            except BuildError as error:
                self._failures.fail(node, str(error))
                return
        files, sources = at_hand
        if isinstance(node, TargetNode):
            node.state = NodeState.DELIVERING
            self.state.in_flight += 1
            self._delivering += 1
            self.state.instructions.append(
                Deliver(label=node.name, directory=node.target.directory, files=files, sources=sources)
            )
        else:
            self._lifecycle.begin(node, files, sources)

    def _break_cycle(self) -> None:
        """Nothing is in flight and something waits: it waits for itself."""
        cycle = self.graph.waiting_cycle()
        if not cycle:
            raise InternalError(f"the build stands still with {self.state.unsettled} actions or targets left")
        self._failures.fail(self.graph.actions[cycle[0]], f"it needs its own output: {' → '.join((*cycle, cycle[0]))}")
