"""The table at the end of a build without a terminal: what became of each target."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlcbuild.cli.output import text
from mlcbuild.engine.build_events import ActionFinished, ActionStatus, BuildEvent, BuildStarted, TargetFinished
from mlcbuild.engine.target_totals import TargetTotals

_MOST_ROWS = 20
_HEAD = ("TARGET", "OUTCOME", "RAN", "CACHED", "TIME")
_BUILT = "built"
_NOT_BUILT = "not built"
_URGENCY = ("failed", "not cached", _NOT_BUILT)


@dataclass(slots=True)
class TargetTable:
    """Collects events."""

    requested: tuple[str, ...] = ()
    totals: TargetTotals = field(default_factory=TargetTotals)
    built: set[str] = field(default_factory=set)

    def apply(self, event: BuildEvent) -> None:
        match event:
            case BuildStarted():
                self.requested = event.targets
            case ActionFinished():
                self.totals.add(event)
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
        if all(each.status is ActionStatus.UP_TO_DATE for each in self.totals.actions()):
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
        rows = []
        for label in self.labels():
            counts, total, outcome = self.totals.statuses(label), self.totals.of(label), self.outcome(label)
            if (counts or outcome != _BUILT) and (label in self.requested or total.ran or outcome in _URGENCY[:2]):
                rows.append((label, outcome, total.ran, total.cached, total.seconds))
        urgency = {outcome: place for place, outcome in enumerate(_URGENCY)}
        return sorted(rows, key=lambda row: (urgency.get(row[1], len(urgency)), row[2] == 0, row[0]))

    def labels(self) -> tuple[str, ...]:
        """The requested targets, and then others that have actions."""
        return tuple(dict.fromkeys((*self.requested, *self.totals.owners())))

    def outcome(self, label: str) -> str:
        counts = self.totals.statuses(label)
        if counts.get(ActionStatus.FAILED):
            return "failed"
        if counts.get(ActionStatus.NOT_CACHED):
            return "not cached"
        if label in self.requested:
            return _BUILT if label in self.built else _NOT_BUILT
        return _NOT_BUILT if counts.get(ActionStatus.SKIPPED) else "needed"


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
    figures = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
    return "  ".join([*names, *figures])
