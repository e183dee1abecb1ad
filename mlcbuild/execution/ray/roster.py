"""The nodes of a cluster as a build sees them: who lives, who may be used, and why the others are not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mlcbuild.engine.action import ExecutionRequirements
from mlcbuild.execution.ray.demand import Node, options_for, refusal_by
from mlcbuild.execution.ray.likeness import differences
from mlcbuild.execution.ray.settings import RaySettings


class Roster:
    """For any thread; `changed` is its lock, and told of whatever happens to it. `say` takes what people should know,
    more than once where it stays true.
    """

    def __init__(self, settings: RaySettings, *, changed: threading.Condition, say: Callable[[str], object]) -> None:
        self._settings = settings
        self._changed = changed
        self._say = say
        self._nodes: dict[str, Node] | None = None
        self._names: dict[str, str] = {}
        # node → in what it is unlike this machine, "" for nothing, and None where it went away instead of an answer
        self._compared: dict[str, str | None] = {}
        self._sharing: set[str] = set()  # nodes that work in the build's store
        self._avoided: set[str] = set()  # nodes that are given nothing

    # Who lives

    def set(self, nodes: Sequence[Node] | None) -> frozenset[str]:
        """None where it is not known. Answers the identifiers of those that have gone."""
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

    # Who may be used

    def usable(self) -> list[Node]:
        with self._changed:
            return [
                node
                for node in (self._nodes or {}).values()
                if node.resources.cpus > 0 and node.identifier not in self._avoided and node.has(self._settings.labels)
            ]

    @property
    def cpus(self) -> int:
        """Of the nodes that may be used; 0 as long as none is known."""
        return sum(node.resources.cpus for node in self.usable())

    @property
    def all_share(self) -> bool:
        """Whether every node works in the build's own store."""
        with self._changed:
            return self._sharing.issuperset(self._nodes or ())

    def refusal(self, requirements: ExecutionRequirements) -> str:
        """Why no node, and none that may come, can ever run what needs this; "" where one can."""
        wanted = dict(self._settings.labels)
        may_come = [
            machine for machine in self._settings.may_scale_to if wanted.items() <= dict(machine.labels).items()
        ]
        return refusal_by(self.usable(), may_come, requirements)

    def options_for(self, requirements: ExecutionRequirements) -> dict[str, Any]:
        with self._changed:
            avoided = tuple(self._avoided.intersection(self._nodes or ()))
        return options_for(requirements, labels=self._settings.labels, avoided=avoided)

    def avoid(self, identifier: str, reason: str) -> bool:
        """Give a node nothing any more; False where there is no other."""
        with self._changed:
            others = [node for node in self.usable() if node.identifier != identifier]
            if not others:
                return False
            self._avoided.add(identifier)
        self._say(f"{self.name_of(identifier)} of the Ray cluster is not used any more: {reason}")
        return True

    # Who is like this machine

    def compare(self, node: Node, ours: Mapping[str, str], answer: Mapping[str, Any] | str | None) -> None:
        """With what a node answered to that question: what it is, what kept it from saying so, or None where it went
        away before.
        """
        shares = False
        if answer is None or isinstance(answer, str):
            problem = answer
        elif "trouble" in answer:
            problem = str(answer["trouble"])
        else:
            problem = "; ".join(differences(ours, answer["likeness"]))
            shares = answer["is_shared"]
        with self._changed:
            self._compared[node.identifier] = problem
            if problem:
                self._avoided.add(node.identifier)
            elif shares:
                self._sharing.add(node.identifier)
            self._changed.notify_all()

    def differs(self, identifier: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
        """A node turned out to be unlike this machine."""
        problem = "; ".join(differences(ours, theirs))
        with self._changed:
            self._compared[identifier] = problem
            self._avoided.add(identifier)
        self.tell_of_unlike()

    def have_answered(self, asked: Sequence[Node]) -> bool:
        return all(node.identifier in self._compared for node in asked)

    def is_like_any(self, asked: Sequence[Node]) -> bool:
        return any(self._compared.get(node.identifier) == "" for node in asked)

    def problems(self, asked: Sequence[Node]) -> list[str]:
        with self._changed:
            told = {node.identifier: self._compared.get(node.identifier, "it does not answer") for node in asked}
        return [f"{self.name_of(identifier)}: {problem}" for identifier, problem in told.items() if problem]

    def tell_of_unlike(self) -> None:
        with self._changed:
            unlike = [(self.name_of(identifier), problem) for identifier, problem in self._compared.items() if problem]
        for name, problem in unlike:
            self._say(f"{name} of the Ray cluster is not used, because it differs: {problem}")
