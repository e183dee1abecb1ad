"""Priorities of actions: the longest path ahead, in remembered seconds. The action with the most runs first."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlcbuild.engine.action import Action
from mlcbuild.engine.nodes import ActionNode

UNKNOWN_SECONDS = 1.0  # of an action whose kind was never measured

SecondsOf = Callable[[Action], float]


def unknown_seconds(_action: Action) -> float:
    """The seconds of every action where nothing is remembered."""
    return UNKNOWN_SECONDS


def rank(nodes: Iterable[ActionNode], seconds_of: SecondsOf) -> None:
    """Give a priority to each node without one: its own seconds, and the highest priority of those that wait for it.

    Existing priorities stay, so that each node and edge is visited once in a build. Nodes on a cycle count each other
    as 0. The scheduler reports the cycle when nothing else is left to do.
    """
    for root in nodes:
        stack = [root]
        while stack:
            node = stack[-1]
            if node.priority >= 0:
                stack.pop()
                continue
            first_visit = node.priority == -1.0
            node.priority = -2.0
            unknown = [waiter for waiter in node.waiters if isinstance(waiter, ActionNode) and waiter.priority == -1.0]
            if first_visit and unknown:
                stack += unknown
                continue
            ahead = max((w.priority for w in node.waiters if isinstance(w, ActionNode)), default=0.0)
            node.priority = seconds_of(node.action) + max(ahead, 0.0)
            stack.pop()
