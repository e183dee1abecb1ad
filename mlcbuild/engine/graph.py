"""The graph as far as it is known: sources, actions and targets by name, their states, and what each needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mlcbuild.engine.action import Action, Artifact, DiscoveredArtifacts, SourceArtifact
from mlcbuild.engine.cycles import find_cycle
from mlcbuild.engine.nodes import ActionNode, Consumer, Node, SourceNode, TargetNode
from mlcbuild.engine.resolution import Resolved, files_at_hand, files_of, members_of
from mlcbuild.engine.scheduler_events import RequestedTarget
from mlcbuild.engine.transitions import NodeState
from mlcbuild.errors import BuildError, InternalError


class Graph:
    """`move` keeps the counters. `undigested` are sources whose digests were not asked for yet."""

    def __init__(self) -> None:
        self.actions: dict[str, ActionNode] = {}
        self.sources: dict[str, SourceNode] = {}
        self.targets: dict[str, TargetNode] = {}
        self.in_flight = 0  # nodes that wait for the answer to an instruction
        self.unfinished = 0  # actions and targets that are needed and have not ended
        self.delivering = 0
        self.undigested: list[str] = []

    def move(self, node: Node, after: NodeState) -> None:
        """Change the state of a node, and the counters. Nothing else does.

        Raises InternalError for a move that `mlcbuild.engine.transitions` does not permit.
        """
        before = node.state
        counted = node.moves[before].get(after)
        if counted is None:
            raise InternalError(f"{node.name}: a move from {before.value!r} to {after.value!r} is not permitted")
        node.state = after
        self.in_flight += counted.in_flight
        self.unfinished += counted.unfinished
        self.delivering += counted.delivering

    def add_action(self, action: Action, *, discovered_by: str) -> str:
        """Make an action known. Equal actions merge, whoever owns them. Answers what is wrong; "" for nothing."""
        known = self.actions.get(action.identifier)
        if known is None:
            self.actions[action.identifier] = ActionNode(
                action=action,
                index=len(self.actions),
                discovered_by=discovered_by,
                needs=tuple((item.path, item.artifact) for item in action.inputs),
            )
        elif known.action != action and replace(known.action, owner=action.owner) != action:
            return f"two different actions are called {action.identifier!r}"
        return ""

    def add_target(self, target: RequestedTarget) -> TargetNode:
        """Make a target known, which is not known yet."""
        node = self.targets[target.label] = TargetNode(target=target)
        return node

    def producer(self, identifier: str) -> ActionNode:
        """Raises BuildError where there is no such action."""
        node = self.actions.get(identifier)
        if node is None:
            raise BuildError(f"an input is an output of the action {identifier!r}, which does not exist")
        return node

    def source(self, path: str) -> SourceNode:
        node = self.sources.get(path)
        if node is None:
            node = self.sources[path] = SourceNode(path=path)
            self.move(node, NodeState.DIGESTING)
            self.undigested.append(path)
        return node

    def producers_of(self, node: Consumer) -> Iterator[SourceNode | ActionNode]:
        """What a consumer needs, as far as it is discovered. A node that is needed twice comes twice.

        Raises BuildError for an action that does not exist.
        """
        artifacts: list[Artifact] = [artifact for _, artifact in reversed(node.needs)]
        if isinstance(node, TargetNode):
            artifacts += node.waits_for
        while artifacts:
            artifact = artifacts.pop()
            if isinstance(artifact, SourceArtifact):
                yield self.source(artifact.path)
                continue
            producer = self.producer(artifact.action)
            yield producer
            if isinstance(artifact, DiscoveredArtifacts) and producer.state is NodeState.DONE:
                artifacts += reversed(members_of(artifact, producer))

    def known_producers_of(self, node: Consumer) -> list[ActionNode]:
        """The actions among them, each once; none after the first that does not exist."""
        found: dict[str, ActionNode] = {}
        try:
            for producer in self.producers_of(node):
                if isinstance(producer, ActionNode):
                    found[producer.name] = producer
        except BuildError:
            pass  # The error is told when the consumer registers with its producers.
        return list(found.values())

    def files_at_hand(self, node: Consumer) -> Resolved | None:
        """The files of a consumer in the common case, quickly; None in all other cases."""
        if isinstance(node, TargetNode) and node.waits_for:
            return None
        return files_at_hand(node.needs, self.sources, self.actions)

    def files_of(self, node: Consumer) -> Resolved:
        """The files of a consumer whose producers are all done. Raises BuildError."""
        return files_of(node.needs, source=self.source, producer=self.producer)

    def waiting_cycle(self) -> tuple[str, ...]:
        """Actions that wait for each other in a ring; () where there are none."""
        waiting = [node.name for node in self.actions.values() if node.state is NodeState.WAITING]

        def waits_for(name: str) -> list[str]:
            producers = self.known_producers_of(self.actions[name])
            return [producer.name for producer in producers if producer.state is NodeState.WAITING]

        return find_cycle(waiting, waits_for)
