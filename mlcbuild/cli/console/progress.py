"""The progress of a build, computed from its events without clock or output."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mlcbuild.cli.output import text
from mlcbuild.engine.build_events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
)


@dataclass(slots=True)
class Progress:
    """The sum of the events so far. `running` is in the order in which the actions began."""

    total: int = 0
    ended: dict[str, ActionStatus] = field(
        default_factory=dict
    )  # the last status: a lost result makes an action run again
    running: dict[str, ActionStarted] = field(default_factory=dict)
    executors: dict[str, set[str]] = field(
        default_factory=dict
    )  # those that ran actions, with the machines seen so far

    def apply(self, event: BuildEvent) -> None:
        match event:
            case ActionsAdded():
                self.total = event.total
            case ActionStarted():
                self.ended.pop(event.identifier, None)
                self.running[event.identifier] = event
                self.executors.setdefault(event.executor, set())
            case ActionFinished():
                self.running.pop(event.identifier, None)
                self.ended[event.identifier] = event.status
                if event.node:
                    self.executors.setdefault(event.executor, set()).add(event.node)
            case _:
                pass

    @property
    def failed(self) -> int:
        return sum(status is ActionStatus.FAILED for status in self.ended.values())

    def is_not_cached(self, identifier: str) -> bool:
        return self.ended.get(identifier) is ActionStatus.NOT_CACHED

    @property
    def places(self) -> str:
        """Where actions run, `4 local, 8 on 3 nodes of ray`; "" if all run in one place."""
        if len(self.executors) < 2 and not any(self.executors.values()):
            return ""
        counts = Counter(action.executor for action in self.running.values())
        places = []
        for executor, nodes in self.executors.items():
            if counts[executor] and nodes:
                places.append(f"{counts[executor]} on {text.plural(len(nodes), 'node')} of {executor}")
            elif counts[executor]:
                places.append(f"{counts[executor]} {executor}")
        return ", ".join(places)

    @property
    def counter(self) -> str:
        """`[12/62]`: done of known."""
        done = len(self.ended)
        return f"[{done}/{max(self.total, done)}]"
