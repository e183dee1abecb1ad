"""The chain of executed actions that took longest, one needing the other: what bounds the build's time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mlcbuild.engine.events import PathStep


def critical_path(
    executed: Mapping[str, PathStep], producers_of: Callable[[str], Iterable[str]]
) -> tuple[PathStep, ...]:
    """The longest chain by measured seconds, first action first; () where nothing was executed.

    An action that was not executed took no time but connects those that were. Linear in actions and edges.
    """
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
    if not executed:
        return ()
    name = max(executed, key=lambda candidate: total[candidate])
    path: list[PathStep] = []
    while name:
        if name in executed:
            path.append(executed[name])
        name = before.get(name, "")
    return tuple(reversed(path))
