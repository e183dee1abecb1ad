"""Finds cycles among actions that wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence


def find_cycle(roots: Iterable[str], waits_for: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """The first cycle reached from `roots`, beginning with its smallest name; () where there is none.

    Each name waits for the next one, and the last for the first.
    """
    finished: set[str] = set()
    for root in roots:
        path: list[str] = []
        position: dict[str, int] = {}
        stack: list[tuple[str, Sequence[str], int]] = [(root, (), -1)]
        while stack:
            name, nexts, at = stack.pop()
            if at < 0:
                if name in finished:
                    continue
                if name in position:
                    cycle = path[position[name] :]
                    smallest = cycle.index(min(cycle))
                    return tuple(cycle[smallest:] + cycle[:smallest])
                position[name] = len(path)
                path.append(name)
                nexts, at = waits_for(name), 0
            if at < len(nexts):
                stack.append((name, nexts, at + 1))
                stack.append((nexts[at], (), -1))
            else:
                finished.add(name)
                del position[name]
                path.pop()
    return ()
