"""What happens to an action once its inputs are known: key, lookup or run, result. Actions of one key share these."""

from __future__ import annotations

from typing import Protocol

from mlcbuild.cache.digest import Digest
from mlcbuild.engine.action import Action, CachePolicy
from mlcbuild.engine.dependency_tracker import DependencyTracker
from mlcbuild.engine.executor import ExecutionOutcome, FileEntry
from mlcbuild.engine.failure_propagation import FailurePropagation
from mlcbuild.engine.instructions import Discover, Ending, Execute, LookUp, Publish, ReportAction
from mlcbuild.engine.nodes import ActionNode
from mlcbuild.engine.resolution import error_in_outputs
from mlcbuild.engine.scheduler_state import SchedulerState
from mlcbuild.engine.transitions import NodeState
from mlcbuild.errors import MlcbuildError


class KeyFunction(Protocol):
    """Computes the key of an action with these inputs: a pure function. Raises MlcbuildError or ValueError."""

    def __call__(self, action: Action, inputs: tuple[FileEntry, ...]) -> Digest: ...


class ActionLifecycle:
    """A part of the scheduler. The first action of a key is its leader: others join it, and get its result."""

    def __init__(
        self,
        state: SchedulerState,
        dependencies: DependencyTracker,
        failures: FailurePropagation,
        key_of: KeyFunction,
    ) -> None:
        self._state = state
        self._dependencies = dependencies
        self._failures = failures
        self._key_of = key_of

    def begin(self, node: ActionNode, inputs: tuple[FileEntry, ...], sources: tuple[str, ...]) -> None:
        """All inputs are there. `sources` are the workspace paths among them."""
        node.sources = sources
        try:
            key = self._key_of(node.action, inputs)
        except (MlcbuildError, ValueError) as error:
            self._failures.fail(node, str(error))
            return
        node.key = key
        node.inputs = inputs
        if node.action.cache is CachePolicy.NONE:
            self.make_ready(node)
            return
        leaders = self._state.leaders
        leader = leaders.get(key)
        if node.rerun_key == key:
            if leader is not None and leader.state in (NodeState.READY, NodeState.RUNNING):
                self._join(node, leader)
            else:
                leaders[key] = node
                self.make_ready(node)
        elif leader is None:
            leaders[key] = node
            self._state.graph.move(node, NodeState.LOOKING_UP)
            self._state.instructions.append(LookUp(action=node.action, key=key))
        else:
            self._share(node, leader)

    def found_nothing(self, node: ActionNode) -> None:
        """Its lookup led to no result: it runs, or joins an action of its key that is about to run or runs."""
        assert node.key is not None
        node.rerun_key = node.key
        leader = self._state.leaders.get(node.key)
        looks_up = (NodeState.LOOKING_UP, NodeState.AWAITING_LOOKUP)
        if leader is None or leader is node or leader.state in looks_up:
            self._state.leaders[node.key] = node
            self.make_ready(node)
        else:
            self._share(node, leader)

    def _share(self, node: ActionNode, leader: ActionNode) -> None:
        """Take the result of an action with the same key, now or once it is there."""
        if leader.state in (NodeState.DONE, NodeState.DISCOVERING):
            assert leader.outputs is not None
            node.inline_manifest = leader.inline_manifest
            node.shared_with = leader.name
            self._has_outputs(node, leader.outputs, Ending.SHARED)
        else:
            self._join(node, leader)

    def _join(self, node: ActionNode, leader: ActionNode) -> None:
        self._state.graph.move(node, NodeState.JOINED)
        node.leader = leader
        leader.followers.append(node)

    def make_ready(self, node: ActionNode) -> None:
        self._state.graph.move(node, NodeState.READY)
        self._state.queue.push(node)

    def start_ready(self) -> None:
        """Run the ready actions that there is room for."""
        state = self._state
        while not state.is_stopping and (node := state.queue.next()) is not None:
            # A producer may be running again because its blobs have gone. Then the inputs are not there.
            if all(producer.state is NodeState.DONE for producer in state.graph.known_producers_of(node)):
                self._start(node)
            else:
                if not node.rewinds:
                    node.rerun_key = None  # By then another action of this key may have run: look it up again.
                self._dependencies.wait_again(node)

    def _start(self, node: ActionNode) -> None:
        assert node.key is not None
        self._state.graph.move(node, NodeState.RUNNING)
        node.shared_with, node.shared_by = "", ()
        self._state.queue.start(node)
        self._state.instructions.append(
            Execute(
                action=node.action,
                key=node.key,
                inputs=node.inputs,
                sources=node.sources,
                memory_bytes=node.memory_bytes,
                shared_by=tuple(follower.name for follower in node.followers),
            )
        )

    def found(self, node: ActionNode, outputs: tuple[FileEntry, ...], manifest: bytes | None) -> None:
        """A lookup found a result, which has all declared outputs."""
        node.inline_manifest = manifest
        self._has_outputs(node, outputs, Ending.FOUND)

    def succeeded(self, node: ActionNode, outcome: ExecutionOutcome) -> None:
        """Its run has succeeded. It fails all the same where the outputs are not those that it declares."""
        error = error_in_outputs(node.action, outcome.outputs)
        if error:
            self._failures.fail(node, error)
            return
        assert node.key is not None
        if node.action.cache is not CachePolicy.NONE:
            self._state.instructions.append(Publish(action=node.action, key=node.key, outputs=outcome.outputs))
        node.inline_manifest = None
        self._has_outputs(node, outcome.outputs, Ending.EXECUTED)

    def _has_outputs(self, node: ActionNode, outputs: tuple[FileEntry, ...], ending: Ending) -> None:
        node.outputs = outputs
        node.by_path = None
        node.ending = ending
        node.rerun_key = None
        followers, node.followers = node.followers, []
        node.shared_by = tuple(follower.name for follower in followers)
        for follower in followers:
            follower.leader = None
            follower.shared_with = node.name
            follower.inline_manifest = node.inline_manifest
            self._has_outputs(follower, outputs, Ending.SHARED)
        if node.action.discoverer is not None:
            manifest = next(entry.digest for entry in outputs if entry.path == node.action.manifest)
            if node.discovered_from != manifest:
                node.discovered_from = manifest
                node.groups = None
                self._state.graph.move(node, NodeState.DISCOVERING)
                self._state.instructions.append(
                    Discover(action=node.action, manifest=manifest, inline=node.inline_manifest)
                )
                return
        self.done(node)

    def done(self, node: ActionNode) -> None:
        """It has its outputs, and what it discovers is known."""
        assert node.ending is not None
        self._state.graph.move(node, NodeState.DONE)
        node.inputs = ()
        self._state.instructions.append(
            ReportAction(
                action=node.action,
                key=node.key,
                ending=node.ending,
                shared_with=node.shared_with if node.ending is Ending.SHARED else "",
                shared_by=node.shared_by,
            )
        )
        self._dependencies.release(node)
