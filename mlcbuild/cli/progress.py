"""How far a build is: a fold over its events, without clock or output."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcbuild.engine.events import (
    ActionFinished,
    ActionsAdded,
    ActionStarted,
    ActionStatus,
    BuildEvent,
)

RAN = frozenset({ActionStatus.EXECUTED_LOCAL, ActionStatus.EXECUTED_RAY})


@dataclass(slots=True)
class Progress:
    """What the events so far add up to. `running` is in the order in which the actions began."""

    total: int = 0
    done: int = 0
    failed: int = 0
    running: dict[str, ActionStarted] = field(default_factory=dict)

    def apply(self, event: BuildEvent) -> None:
        match event:
            case ActionsAdded():
                self.total = event.total
            case ActionStarted():
                self.running[event.identifier] = event
            case ActionFinished():
                self.running.pop(event.identifier, None)
                self.done += 1
                self.failed += event.status is ActionStatus.FAILED
            case _:
                pass

    @property
    def counter(self) -> str:
        """`[12/62]`: done of known."""
        return f"[{self.done}/{max(self.total, self.done)}]"


def action_name(identifier: str) -> str:
    """An action's name without its target: `Export` for `//models:smollm2 Export`."""
    label, _, rest = identifier.partition(" ")
    return rest if rest and label.startswith("//") else identifier
