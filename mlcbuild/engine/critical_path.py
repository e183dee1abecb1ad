"""The critical path: the chain of executed actions, each needing the one before it, that took longest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mlcbuild.engine.build_events import PathStep, Slack

_ROUNDING = 1e-9  # seconds


class Chains:
    """All chains that end with an executed action. Actions that were not executed take no time, but connect others.

    Everything here takes time linear in the numbers of actions and edges.
    """

    def __init__(self, executed: Mapping[str, PathStep], producers_of: Callable[[str], Iterable[str]]) -> None:
        self._executed = executed
        self._producers: dict[str, tuple[str, ...]] = {}
        self._total: dict[
            str, float
        ] = {}  # seconds of the longest chain that ends with each action; producers come first
        self._before: dict[str, str] = {}  # the action before it in that chain
        for root in executed:
            stack: list[tuple[str, bool]] = [(root, False)]
            while stack:
                name, expanded = stack.pop()
                if name in self._total:
                    continue
                if expanded:
                    self._add(name)
                    continue
                producers = self._producers.setdefault(name, tuple(producers_of(name)))
                stack.append((name, True))
                stack += [(producer, False) for producer in producers if producer not in self._total]

    def _add(self, name: str) -> None:
        longest = max(self._producers[name], key=lambda producer: self._total.get(producer, 0.0), default="")
        self._total[name] = self._own(name) + self._total.get(longest, 0.0)
        if longest:
            self._before[name] = longest

    def _own(self, name: str) -> float:
        return self._executed[name].seconds if name in self._executed else 0.0

    def longest(self) -> tuple[PathStep, ...]:
        """The longest chain by measured seconds, first action first; () where nothing was executed."""
        name = max(self._executed, key=lambda candidate: self._total[candidate], default="")
        path: list[PathStep] = []
        while name:
            if name in self._executed:
                path.append(self._executed[name])
            name = self._before.get(name, "")
        return tuple(reversed(path))

    def slacks(self) -> tuple[Slack, ...]:
        """For each executed action, how much shorter its longest chain is than the critical path.

        Actions without slack are left out. The least slack comes first.
        """
        after: dict[str, float] = {}
        for name in reversed(self._total):  # consumers stand after their producers
            behind = self._own(name) + after.get(name, 0.0)
            for producer in self._producers[name]:
                after[producer] = max(after.get(producer, 0.0), behind)
        longest = max((self._total[name] for name in self._executed), default=0.0)
        found = [
            Slack(identifier=name, seconds=slack)
            for name in self._executed
            if (slack := longest - self._total[name] - after.get(name, 0.0)) > _ROUNDING
        ]
        return tuple(sorted(found, key=lambda slack: (slack.seconds, slack.identifier)))
