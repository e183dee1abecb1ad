"""The chain of executed actions that took longest, one needing the other: what bounds the build's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mlcbuild.engine.events import PathStep, Slack

_ROUNDING = 1e-9  # seconds


def critical_path(
    executed: Mapping[str, PathStep], producers_of: Callable[[str], Iterable[str]]
) -> tuple[PathStep, ...]:
    """The longest chain by measured seconds, first action first; () where nothing was executed.

    An action that was not executed took no time but connects those that were. Linear in actions and edges.
    """
    total, before = _lengths(executed, producers_of)
    if not executed:
        return ()
    name = max(executed, key=lambda candidate: total[candidate])
    path: list[PathStep] = []
    while name:
        if name in executed:
            path.append(executed[name])
        name = before.get(name, "")
    return tuple(reversed(path))


def slacks(executed: Mapping[str, PathStep], producers_of: Callable[[str], Iterable[str]]) -> tuple[Slack, ...]:
    """For each executed action how much shorter than the longest chain the longest one is that it is part of.

    Those that are on one of the longest chains are left out. The least slack comes first.
    """
    total, _ = _lengths(executed, producers_of)
    after: dict[str, float] = {}
    for name in reversed(total):  # consumers stand after their producers
        own = executed[name].seconds if name in executed else 0.0
        behind = own + after.get(name, 0.0)
        for producer in producers_of(name):
            after[producer] = max(after.get(producer, 0.0), behind)
    longest = max((total[name] for name in executed), default=0.0)
    found = [
        Slack(identifier=name, seconds=slack)
        for name in executed
        if (slack := longest - total[name] - after.get(name, 0.0)) > _ROUNDING
    ]
    return tuple(sorted(found, key=lambda slack: (slack.seconds, slack.identifier)))


def _lengths(
    executed: Mapping[str, PathStep], producers_of: Callable[[str], Iterable[str]]
) -> tuple[dict[str, float], dict[str, str]]:
    """The seconds of the longest chain that ends with each action, producers first, and the action before it there."""
    total: dict[str, float] = {}
    before: dict[str, str] = {}
    for root in executed:
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, expanded = stack.pop()
            if name in total:
                continue
            producers = tuple(producers_of(name))
            if not expanded:
                stack.append((name, True))
                stack += [(producer, False) for producer in producers if producer not in total]
                continue
            own = executed[name].seconds if name in executed else 0.0
            longest = max(producers, key=lambda producer: total.get(producer, 0.0), default="")
            total[name] = own + total.get(longest, 0.0)
            if longest:
                before[name] = longest
    return total, before
