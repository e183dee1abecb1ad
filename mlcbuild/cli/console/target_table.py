"""The table at the end of a build without a terminal: what became of each target."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from mlcbuild.cli.console.progress import RAN
from mlcbuild.cli.output import text
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent, BuildStarted, TargetFinished

_MOST_ROWS = 20
_HEAD = ("TARGET", "OUTCOME", "RAN", "CACHED", "TIME")
_HITS = frozenset({ActionStatus.UP_TO_DATE, ActionStatus.DISK_HIT, ActionStatus.REMOTE_HIT})
_BUILT = "built"
_NOT_BUILT = "not built"
_URGENCY = ("failed", "not cached", _NOT_BUILT)


@dataclass(slots=True)
class TargetTable:
    """Collects events. A target has the actions that it owns; those of an action that targets share run in one."""

    requested: tuple[str, ...] = ()
    ended: dict[str, ActionFinished] = field(default_factory=dict)  # by action; one that has run again has its last
    built: set[str] = field(default_factory=set)

    def apply(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self.requested = event.targets
            case ActionFinished():
                self.ended[event.identifier] = event
            case TargetFinished(success=True):
                self.built.add(event.label)
            case _:
                pass

    def lines(self) -> list[str]:
        """The requested targets, and others of which actions ran. Those that failed come first, and those that took
        all from caches last.

        Targets without actions are left out. No lines if all was up to date, or for a single target, of which the
        summary says the same. A time is the sum of the runs of actions, which may have run side by side.
        """
        if all(each.status is ActionStatus.UP_TO_DATE for each in self.ended.values()):
            return []
        rows = self._rows()
        if len(rows) < 2:
            return []
        cells = [
            _HEAD,
            *((label, outcome, f"{ran}", f"{hits}", text.seconds(s)) for label, outcome, ran, hits, s in rows),
        ]
        shown = cells[: _MOST_ROWS + 1]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        lines = [_line(row, widths) for row in shown]
        if len(cells) > len(shown):
            lines.append(f"and {len(cells) - len(shown):,} more targets")
        return lines

    def _rows(self) -> list[tuple[str, str, int, int, float]]:
        statuses: dict[str, Counter[ActionStatus]] = {label: Counter() for label in self.requested}
        seconds: dict[str, float] = {}
        for event in self.ended.values():
            owned = statuses.setdefault(event.owner, Counter())
            owned[event.status] += 1
            if event.status in RAN or event.executor:
                seconds[event.owner] = seconds.get(event.owner, 0.0) + event.time - event.start
        rows = []
        for label, counts in statuses.items():
            ran = sum(counts[status] for status in RAN)
            outcome = self._outcome(label, counts)
            if (counts or outcome != _BUILT) and (label in self.requested or ran or outcome in _URGENCY[:2]):
                hits = sum(counts[status] for status in _HITS)
                rows.append((label, outcome, ran, hits, seconds.get(label, 0.0)))
        urgency = {outcome: place for place, outcome in enumerate(_URGENCY)}
        return sorted(rows, key=lambda row: (urgency.get(row[1], len(urgency)), row[2] == 0, row[0]))

    def _outcome(self, label: str, counts: Counter[ActionStatus]) -> str:
        if counts[ActionStatus.FAILED]:
            return "failed"
        if counts[ActionStatus.NOT_CACHED]:
            return "not cached"
        if label in self.requested:
            return _BUILT if label in self.built else _NOT_BUILT
        return _NOT_BUILT if counts[ActionStatus.SKIPPED] else "needed"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    figures = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*names, *figures])
