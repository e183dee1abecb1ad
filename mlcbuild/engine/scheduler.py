"""The scheduler: a state machine. Events say what happened, instructions say what to do. No clock, no I/O, no threads.

An action waits until the digests of all its inputs are known. Only then is its key known. So a producer that makes
equal bytes leads to the key of the last build, and the rebuild stops there (early cutoff). Actions of one key share one
lookup and one run. Where a blob has gone, its producer runs again, and that one's producers where needed.

`mlcbuild.engine.transitions` defines the states and the moves between them, `mlcbuild.engine.invariants` what holds
after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
from mlcbuild.engine.nodes import ActionNode, Consumer, SourceNode, TargetNode
from mlcbuild.engine.priorities import SecondsOf, unknown_seconds
from mlcbuild.engine.ready_queue import ReadyQueue
from mlcbuild.engine.recovery import Recovery
from mlcbuild.engine.resolution import error_in_outputs
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.engine.transitions import NodeState
from mlcbuild.errors import BuildError, InternalError

REWIND_LIMIT = 20
LOSS_LIMIT = 5
SHORTAGE_LIMIT = 2  # of memory


class Scheduler:
    """Decides what a build does next.

    At most `jobs` slots are used at once; an action takes `requirements.cpus` of them, but no more than `jobs`. Without
    `keep_going` nothing new starts after the first failure. `seconds_of` says how long an action is expected to take.
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

    def handle(self, *happened: events.SchedulerEvent) -> list[Instruction]:
        """Take in events and answer with instructions, in order. After Finished the answer is empty.

        Raises InternalError where two different actions are declared under one identifier, and for a move that
        `mlcbuild.engine.transitions` does not permit.
        """
        for event in happened:
            if not self.finished:
                self._handlers[type(event)](event)
        if not self.finished:
            self._go_on()
        instructions, self.state.instructions = self.state.instructions, []
        return instructions

    # Events about the build as a whole.

    def _on_actions_declared(self, event: events.ActionsDeclared) -> None:
        for action in event.actions:
            conflict = self.graph.add_action(action, discovered_by="")
            if conflict:
                raise InternalError(conflict)

    def _on_targets_requested(self, event: events.TargetsRequested) -> None:
        self._requested = True
        for target in event.targets:
            if target.label not in self.graph.targets:
                self._dependencies.want(self.graph.add_target(target))

    def _on_jobs_added(self, event: events.JobsAdded) -> None:
        self.queue.grow(event.jobs)

    def _on_cancelled(self, _event: events.Cancelled) -> None:
        if not self.state.cancelled:
            self.state.cancelled = True
            self.state.instructions += [Cancel(identifier=name) for name in self.queue.running]

    # Events about sources.

    def _on_source_digested(self, event: events.SourceDigested) -> None:
        node = self._digesting(event.path)
        if node is not None:
            node.digest, node.is_executable = event.digest, event.is_executable
            self.graph.move(node, NodeState.DONE)
            self._dependencies.release(node)

    def _on_source_unavailable(self, event: events.SourceUnavailable) -> None:
        node = self._digesting(event.path)
        if node is not None:
            node.error = event.message
            self.graph.move(node, NodeState.FAILED)
            self._dependencies.release(node)

    def _digesting(self, path: str) -> SourceNode | None:
        node = self.graph.sources.get(path)
        return None if node is None or node.state is not NodeState.DIGESTING else node

    # Events about lookups.

    def _on_lookup_slow(self, event: events.LookupSlow) -> None:
        """Run the action meanwhile, where there is room. Whichever ends first counts."""
        node = self.graph.actions.get(event.identifier)
        if node is not None and node.state is NodeState.LOOKING_UP:
            node.has_overtaken_lookup = True
            self._lifecycle.found_nothing(node)

    def _on_result_found(self, event: events.ResultFound) -> None:
        node = self.graph.actions.get(event.identifier)
        if node is None or node.key != event.key:
            return
        was_overtaken, node.has_overtaken_lookup = node.has_overtaken_lookup, False
        # A result without a declared output is no result. The run will overwrite it.
        is_valid = not error_in_outputs(node.action, event.outputs)
        # After a rewind the blobs of the result have gone. A run makes them again, the result does not.
        is_useful = is_valid and was_overtaken and not node.rewinds
        match node.state:
            case NodeState.LOOKING_UP | NodeState.AWAITING_LOOKUP if not is_valid:
                self._has_no_result(node)
            case NodeState.LOOKING_UP | NodeState.AWAITING_LOOKUP:
                self._lifecycle.found(node, event.outputs, event.manifest)
            case NodeState.READY if is_useful:
                self._lifecycle.found(node, event.outputs, event.manifest)
            case NodeState.RUNNING if is_useful:
                # The run is stopped. When it has ended, the action takes this result.
                node.late_result = event
                self.state.instructions.append(Cancel(identifier=node.name))
            case _:
                pass

    def _on_result_not_found(self, event: events.ResultNotFound) -> None:
        node = self.graph.actions.get(event.identifier)
        if node is not None and node.key == event.key:
            node.has_overtaken_lookup = False
            self._has_no_result(node)

    def _has_no_result(self, node: ActionNode) -> None:
        if node.state is NodeState.LOOKING_UP:
            self._lifecycle.found_nothing(node)
        elif node.state is NodeState.AWAITING_LOOKUP:
            self._failures.fail(node, node.failure)

    # Events about runs.

    def _on_executed(self, event: events.Executed) -> None:
        outcome = event.outcome
        node = self.queue.stop(outcome.identifier)
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
            case _:
                self._failed(node, outcome.message or "it failed without an error message")

    def _failed(self, node: ActionNode, message: str) -> None:
        """Its run has failed. While its lookup is still in flight, another machine may have had what this one lacks."""
        if node.has_overtaken_lookup and not node.rewinds and not self.cancelled:
            node.failure = message
            self.graph.move(node, NodeState.AWAITING_LOOKUP)
        else:
            self._failures.fail(node, message)

    def _on_executor_lost(self, event: events.ExecutorLost) -> None:
        for identifier in event.identifiers:
            lost = ExecutionOutcome(identifier=identifier, kind=OutcomeKind.LOST, message="its executor disappeared")
            self._on_executed(events.Executed(outcome=lost))

    # Events about discovery.

    def _on_actions_discovered(self, event: events.ActionsDiscovered) -> None:
        node = self._discovering(event.identifier)
        if node is None:
            return
        for action in event.discovery.actions:
            conflict = self.graph.add_action(action, discovered_by=node.name)
            if conflict:
                self._failures.fail(node, f"its manifest announces a conflicting action: {conflict}")
                return
        node.groups = dict(event.discovery.groups)
        self._lifecycle.done(node)

    def _on_discovery_failed(self, event: events.DiscoveryFailed) -> None:
        node = self._discovering(event.identifier)
        if node is not None:
            self._failures.fail(node, event.message)

    def _discovering(self, identifier: str) -> ActionNode | None:
        node = self.graph.actions.get(identifier)
        return None if node is None or node.state is not NodeState.DISCOVERING else node

    # Events about targets.

    def _on_target_delivered(self, event: events.TargetDelivered) -> None:
        node = self._delivering(event.label)
        if node is not None:
            self.graph.move(node, NodeState.DONE)
            self.state.instructions.append(ReportTarget(label=event.label, success=True))

    def _on_delivery_failed(self, event: events.DeliveryFailed) -> None:
        node = self._delivering(event.label)
        if node is not None:
            self._failures.fail(node, event.message)

    def _on_blobs_missing(self, event: events.BlobsMissing) -> None:
        target = self._delivering(event.needed_by)
        if target is not None:
            self._recovery.rewind(target, event.digests)
            return
        node = self._discovering(event.needed_by)
        if node is not None:
            self._recovery.run_again(node)

    def _delivering(self, label: str) -> TargetNode | None:
        node = self.graph.targets.get(label)
        return None if node is None or node.state is not NodeState.DELIVERING else node

    # After the events: go on until nothing moves without another event.

    def _go_on(self) -> None:
        state, graph = self.state, self.graph
        while True:
            while self._dependencies.movable:
                node = self._dependencies.movable.popleft()
                if node.state is not NodeState.WAITING:
                    continue
                if node.pending == 0 and self._may_advance(node):
                    self._advance(node)
                elif node.pending and not state.is_stopping:
                    # What was discovered for it can be made while it waits for its other producers.
                    self._dependencies.register(node)
            self._lifecycle.start_ready()
            if self._dependencies.movable:
                continue
            if state.is_stopping or graph.in_flight or not graph.unfinished:
                break
            self._break_cycle()
        if state.is_stopping and not self.queue.running and not graph.delivering:
            self._failures.give_up()
        if graph.undigested:
            paths, graph.undigested = tuple(graph.undigested), []
            state.instructions.append(DigestSources(paths=paths))
        self._dependencies.announce()
        if self._requested and not graph.unfinished:
            self.finished = True
            state.instructions.append(
                Finished(success=not state.failed and not self.cancelled, cancelled=self.cancelled)
            )

    def _may_advance(self, node: Consumer) -> bool:
        """After a failure a target that is complete is still delivered."""
        return not self.state.is_stopping or (isinstance(node, TargetNode) and not self.cancelled)

    def _advance(self, node: Consumer) -> None:
        """Wait for the producers that are not done. Where all are done, resolve the inputs and use them."""
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
            graph.move(node, NodeState.DELIVERING)
            self.state.instructions.append(
                Deliver(label=node.name, directory=node.target.directory, files=files, sources=sources)
            )
        else:
            self._lifecycle.begin(node, files, sources)

    def _break_cycle(self) -> None:
        """Nothing is in flight, and something waits: it waits for itself."""
        cycle = self.graph.waiting_cycle()
        if not cycle:
            raise InternalError(f"the build stands still with {self.graph.unfinished} actions or targets left")
        self._failures.fail(self.graph.actions[cycle[0]], f"it needs its own output: {' → '.join((*cycle, cycle[0]))}")
