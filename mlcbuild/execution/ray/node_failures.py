"""On which nodes each action has failed by the fault of the node."""

from __future__ import annotations

import threading


class NodeFailures:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, set[str]] = {}  # by the identifier of the action

    def add(self, action: str, node: str) -> frozenset[str]:
        """The nodes on which the action has failed, this one included."""
        with self._lock:
            nodes = self._nodes.setdefault(action, set())
            if node:
                nodes.add(node)
            return frozenset(nodes)

    def nodes_of(self, action: str) -> frozenset[str]:
        with self._lock:
            return frozenset(self._nodes.get(action, ()))

    def forget(self, action: str) -> None:
        with self._lock:
            self._nodes.pop(action, None)
