"""The graph as far as it is known: sources, actions and targets by name, and what each needs of the others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from mlcbuild.engine.action import Action, Artifact, DiscoveredArtifacts, SourceArtifact
from mlcbuild.engine.cycles import find_cycle
from mlcbuild.engine.nodes import ActionNode, Consumer, NodeState, SourceNode, TargetNode
from mlcbuild.engine.resolution import Resolved, files_at_hand, files_of, members_of
from mlcbuild.errors import BuildError


class Graph:
    """`undigested` are sources that somebody needs and nobody was asked about yet."""

    def __init__(self) -> None:
        self.actions: dict[str, ActionNode] = {}
        self.sources: dict[str, SourceNode] = {}
        self.targets: dict[str, TargetNode] = {}
        self.undigested: list[str] = []

    def add(self, action: Action, *, discovered_by: str) -> str:
        """Make an action known. Equal ones merge, whatever their owner; answer what is wrong, "" for nothing."""
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

    def producer(self, identifier: str) -> ActionNode:
        """Raises BuildError where there is no such action."""
        node = self.actions.get(identifier)
        if node is None:
            raise BuildError(f"there is no action {identifier!r}, whose output is needed")
        return node

    def source(self, path: str) -> SourceNode:
        node = self.sources.get(path)
        if node is None:
            node = self.sources[path] = SourceNode(path=path)
            self.undigested.append(path)
        return node

    def producers_of(self, node: Consumer) -> Iterator[SourceNode | ActionNode]:
        """What a consumer waits for or has used, as far as discovery has come; repeated where used twice.

        Raises BuildError for what does not exist.
        """
        artifacts: list[Artifact] = [artifact for _, artifact in reversed(node.needs)]
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
            pass  # Whoever advances the node is told what is wrong.
        return list(found.values())

    def files_at_hand(self, node: Consumer) -> Resolved | None:
        """The files of a consumer in the common, quick case; None in all others."""
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
