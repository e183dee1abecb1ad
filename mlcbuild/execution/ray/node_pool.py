"""The nodes of a cluster as a build sees them: which are alive, which may be used, and why the others may not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.execution.machine_resources import MachineResources
from mlcbuild.execution.ray.demand import Node, options_for, unmet_requirement_of, with_whole_node
from mlcbuild.execution.ray.environment_fingerprint import EnvironmentFingerprint
from mlcbuild.execution.ray.settings import RaySettings

_MOST_FAILURES = 3  # of a node, in a row


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
        self._silent: frozenset[str] = frozenset()  # nodes that do not answer; a subset of `_nodes`
        self._unanswerable: set[str] = set()  # those of `_compared` that could not say what they are
        self._failures: dict[str, int] = {}  # of each node, since an action succeeded there

    # Which are alive

    def update(self, nodes: Sequence[Node] | None) -> frozenset[str]:
        """Take in all nodes that are alive; None: not known. Returns the identifiers of those that died."""
        with self._changed:
            gone = frozenset() if nodes is None else frozenset(self._nodes or ()) - {node.identifier for node in nodes}
            self._nodes = None if nodes is None else {node.identifier: node for node in nodes}
            self._names.update((node.identifier, node.name) for node in nodes or ())
            self._silent = self._silent.intersection(self._nodes or ())
            self._changed.notify_all()
        return gone

    def update_silent(self, silent: frozenset[str]) -> frozenset[str]:
        """Take in the nodes that do not answer. Returns those that answered before.

        If none of the nodes that may be used answers, the cause is this machine's own connection or the whole cluster.
        Then no node counts as silent, as there is none that could take its actions.
        """
        with self._changed:
            silent = silent.intersection(self._nodes or ())
            if all(node.identifier in silent for node in self.usable()):
                silent = frozenset()
            fallen_silent, back = silent - self._silent, self._silent - silent
            self._silent = silent
        for identifier in sorted(fallen_silent):
            self._say(f"{self.name_of(identifier)} of the Ray cluster does not answer: its actions run elsewhere")
        for identifier in sorted(back):
            self._say(f"{self.name_of(identifier)} of the Ray cluster answers again")
        return fallen_silent

    def is_lost(self, identifier: str) -> bool:
        """Whether a node is dead or silent."""
        with self._changed:
            return self._nodes is not None and (identifier not in self._nodes or identifier in self._silent)

    @property
    def is_known(self) -> bool:
        return self._nodes is not None

    def name_of(self, identifier: str) -> str:
        """For people. Nodes of one host are told apart by their identifiers."""
        name = self._names.get(identifier, "")
        if not name:
            return f"node {identifier[:12]}"
        is_alone = sum(each == name for each in self._names.values()) == 1
        return f"node {name}" if is_alone else f"node {name} ({identifier[:8]})"

    def at_address(self, address: str) -> str:
        """The identifier of the only node with an IP address; "" if there is none, or more than one."""
        with self._changed:
            found = [node.identifier for node in (self._nodes or {}).values() if node.address == address]
        return found[0] if len(found) == 1 else ""

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
        return unmet_requirement_of(self.usable(), self._may_come(), requirements)

    def _may_come(self) -> list[MachineResources]:
        wanted = dict(self._settings.labels)
        return [kind for kind in self._settings.may_scale_to if wanted.items() <= dict(kind.labels).items()]

    def options_for(self, requirements: ExecutionRequirements, *, avoided: Collection[str] = ()) -> dict[str, Any]:
        """The options of the Ray task for an action. Silent and `avoided` nodes are left out if others can run it."""
        with self._changed:
            excluded = self._excluded.intersection(self._nodes or ())
            for unwanted in (self._silent, frozenset(avoided).intersection(self._nodes or ())):
                if unwanted and self.can_run(requirements, without=excluded | unwanted):
                    excluded |= unwanted
            there = [node.resources for node in self.usable() if node.identifier not in excluded]
            if not there or unmet_requirement_of(self.usable(), (), requirements):
                there = self._may_come()
        requirements = with_whole_node(requirements, there)
        return options_for(requirements, labels=self._settings.labels, excluded=tuple(excluded))

    def can_run(self, requirements: ExecutionRequirements, *, without: Collection[str]) -> bool:
        """Whether a node that may be used, and is none of these, can run what has these requirements."""
        others = [node for node in self.usable() if node.identifier not in without]
        return bool(others) and not unmet_requirement_of(others, (), requirements)

    def exclude(self, identifier: str, reason: str, *, even_the_last: bool = False) -> bool:
        """Give a node no more actions. Returns False, and does nothing, if there is no other node that answers."""
        with self._changed:
            others = [node for node in self.usable() if node.identifier not in {identifier, *self._silent}]
            if not others and not even_the_last:
                return False
            if identifier in self._excluded:
                return True
            self._excluded.add(identifier)
        self._say(f"{self.name_of(identifier)} of the Ray cluster is not used any more: {reason}")
        return True

    # Which of them fail

    def count_failure(self, identifier: str, reason: str, *, even_the_last: bool = False) -> bool:
        """An action failed by the fault of its node. After three in a row it is excluded. Returns whether it is."""
        with self._changed:
            count = self._failures[identifier] = self._failures.get(identifier, 0) + 1
        if count < _MOST_FAILURES:
            return False
        told = f"{count} actions in a row could not run there; the last: {reason}"
        return self.exclude(identifier, told, even_the_last=even_the_last)

    def count_success(self, identifier: str) -> None:
        with self._changed:
            self._failures.pop(identifier, None)

    def forgive(self, identifiers: Collection[str]) -> None:
        """An action failed on all of these nodes, so it was not the fault of one of them."""
        with self._changed:
            for identifier in identifiers:
                if self._failures.get(identifier):
                    self._failures[identifier] -= 1

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
            if theirs is not None and theirs.environment is None:
                self._unanswerable.add(node.identifier)
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
            unused = [(each, reason) for each, reason in self._compared.items() if reason]
            failing = set(self._unanswerable)
        for identifier, reason in unused:
            why = "because of an error there" if identifier in failing else "because it differs"
            self._say(
                f"{self.name_of(identifier)} of the Ray cluster is not used, {why}: {reason.partition(chr(10))[0]}"
            )

    def differs(self, identifier: str) -> bool:
        """Whether a node has another environment, as opposed to an error."""
        with self._changed:
            return bool(self._compared.get(identifier)) and identifier not in self._unanswerable
