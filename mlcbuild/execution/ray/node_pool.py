"""The nodes of a cluster as a build sees them: which are alive, which may be used, and why the others may not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.execution.ray.demand import Node, options_for, unmet_requirement_of
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.settings import RaySettings


@dataclass(frozen=True, kw_only=True)
class NodeDescription:
    """What a node says about itself. `error` is why it could not; "" if it could."""

    environment: EnvironmentFingerprint | None = None
    shares_store: bool = False  # it works in the build's own store
    error: str = ""


class NodePool:
    """For any thread. `changed` is its lock, and is notified of every change. `say` takes messages for people, the same
    one more than once while it stays true.
    """

    def __init__(self, settings: RaySettings, *, changed: threading.Condition, say: Callable[[str], object]) -> None:
        self._settings = settings
        self._changed = changed
        self._say = say
        self._nodes: dict[str, Node] | None = None
        self._names: dict[str, str] = {}
        # node → why it cannot be used, "" for a node that can, and None for one that died before it answered
        self._compared: dict[str, str | None] = {}
        self._sharing: set[str] = set()  # nodes that work in the build's store
        self._excluded: set[str] = set()  # nodes that get no actions

    # Which are alive

    def update(self, nodes: Sequence[Node] | None) -> frozenset[str]:
        """Take in all nodes that are alive; None: not known. Returns the identifiers of those that died."""
        with self._changed:
            gone = frozenset() if nodes is None else frozenset(self._nodes or ()) - {node.identifier for node in nodes}
            self._nodes = None if nodes is None else {node.identifier: node for node in nodes}
            self._names.update((node.identifier, node.name) for node in nodes or ())
            self._changed.notify_all()
        return gone

    @property
    def is_known(self) -> bool:
        return self._nodes is not None

    def name_of(self, identifier: str) -> str:
        return f"node {self._names.get(identifier, identifier[:12])}"

    # Which may be used

    def usable(self) -> list[Node]:
        with self._changed:
            return [
                node
                for node in (self._nodes or {}).values()
                if node.resources.cpus > 0 and node.identifier not in self._excluded and node.has(self._settings.labels)
            ]

    @property
    def cpus(self) -> int:
        """Of the nodes that may be used; 0 while none is known."""
        return sum(node.resources.cpus for node in self.usable())

    @property
    def all_share_store(self) -> bool:
        """Whether every node works in the build's own store."""
        with self._changed:
            return self._sharing.issuperset(self._nodes or ())

    def unmet_requirement(self, requirements: ExecutionRequirements) -> str:
        """Why no node, and no node that may be added, can ever run what has these requirements; "" if one can."""
        wanted = dict(self._settings.labels)
        may_come = [kind for kind in self._settings.may_scale_to if wanted.items() <= dict(kind.labels).items()]
        return unmet_requirement_of(self.usable(), may_come, requirements)

    def options_for(self, requirements: ExecutionRequirements) -> dict[str, Any]:
        with self._changed:
            excluded = tuple(self._excluded.intersection(self._nodes or ()))
        return options_for(requirements, labels=self._settings.labels, excluded=excluded)

    def exclude(self, identifier: str, reason: str) -> bool:
        """Give a node no more actions. Returns False, and does nothing, if there is no other node."""
        with self._changed:
            others = [node for node in self.usable() if node.identifier != identifier]
            if not others:
                return False
            self._excluded.add(identifier)
        self._say(f"{self.name_of(identifier)} of the Ray cluster is not used any more: {reason}")
        return True

    # Which have the same environment as this machine

    def compare(self, node: Node, ours: EnvironmentFingerprint, theirs: NodeDescription | None) -> None:
        """Take in what a node says about itself; None: it died before it answered."""
        reason: str | None = None
        if theirs is not None:
            reason = theirs.error
            if theirs.environment is not None:
                reason = "; ".join(ours.differences(theirs.environment))
        with self._changed:
            self._compared[node.identifier] = reason
            if reason:
                self._excluded.add(node.identifier)
            elif theirs is not None and theirs.shares_store:
                self._sharing.add(node.identifier)
            self._changed.notify_all()

    def exclude_different(self, identifier: str, ours: EnvironmentFingerprint, theirs: EnvironmentFingerprint) -> None:
        """A node with another environment than this machine was found when it got an action."""
        reason = "; ".join(ours.differences(theirs))
        with self._changed:
            self._compared[identifier] = reason
            self._excluded.add(identifier)
        self.report_different()

    def have_answered(self, asked: Sequence[Node]) -> bool:
        return all(node.identifier in self._compared for node in asked)

    def any_matches(self, asked: Sequence[Node]) -> bool:
        return any(self._compared.get(node.identifier) == "" for node in asked)

    def reasons_against(self, asked: Sequence[Node]) -> list[str]:
        """For people: why each of these nodes cannot be used."""
        with self._changed:
            found = {node.identifier: self._compared.get(node.identifier, "it does not answer") for node in asked}
        return [f"{self.name_of(identifier)}: {reason}" for identifier, reason in found.items() if reason]

    def report_different(self) -> None:
        with self._changed:
            different = [(self.name_of(identifier), reason) for identifier, reason in self._compared.items() if reason]
        for name, reason in different:
            self._say(f"{name} of the Ray cluster is not used, because it differs: {reason}")
