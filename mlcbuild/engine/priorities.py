"""Which of several ready actions to run first: the one with the longest path still ahead, in remembered seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlcbuild.engine.action import Action
from mlcbuild.engine.nodes import ActionNode

UNKNOWN_SECONDS = 1.0  # for an action whose kind has never been measured

SecondsOf = Callable[[Action], float]


def unknown_seconds(_action: Action) -> float:
    """What a scheduler without a memory thinks of every action."""
    return UNKNOWN_SECONDS


def rank(nodes: Iterable[ActionNode], seconds_of: SecondsOf) -> None:
    """Give each node that has none its priority: its own seconds, and the most of those that wait for it.

    Priorities already given stay, so that the whole build costs one visit a node and an edge. Nodes on a cycle
    count each other as 0; the scheduler reports the cycle when nothing else is left.
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
