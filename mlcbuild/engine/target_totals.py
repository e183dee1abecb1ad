"""What a build has done for each target: how many of its actions ran, how many came from caches, and the seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from mlcbuild.engine.build_events import ActionFinished, ActionStatus

RAN = frozenset({ActionStatus.EXECUTED_LOCAL, ActionStatus.EXECUTED_RAY})
CACHED = frozenset({ActionStatus.UP_TO_DATE, ActionStatus.DISK_HIT, ActionStatus.REMOTE_HIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTotal:
    """`seconds` is the sum of the runs of a target's actions, which may have run side by side, failed ones included."""

    ran: int = 0
    cached: int = 0
    seconds: float = 0.0


class TargetTotals:
    """Collects the ends of actions. A target has the actions that it owns; one that targets share runs in one of them.

    An action that ran again, because its result was lost, counts with its last end.
    """

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, ActionFinished]] = {}  # by owner and action

    def add(self, event: ActionFinished) -> None:
        self._ended.setdefault(event.owner, {})[event.identifier] = event

    def actions(self) -> Iterator[ActionFinished]:
        """The last end of each action, by owner."""
        for owned in self._ended.values():
            yield from owned.values()

    def owners(self) -> tuple[str, ...]:
        return tuple(self._ended)

    def statuses(self, label: str) -> Mapping[ActionStatus, int]:
        """How many actions of a target ended in each way."""
        return Counter(event.status for event in self._ended.get(label, {}).values())

    def of(self, label: str) -> TargetTotal:
        statuses = self.statuses(label)
        return TargetTotal(
            ran=sum(statuses.get(status, 0) for status in RAN),
            cached=sum(statuses.get(status, 0) for status in CACHED),
            seconds=sum((event.seconds for event in self._ended.get(label, {}).values()), 0.0),
        )
