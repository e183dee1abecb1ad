"""Cells: the targets of a matrix, and what a build would do with each."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from mlcbuild.query.output import value_json
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.target import Target


class CellState(enum.Enum):
    """The enum's value is the word in JSON."""

    BUILT = "built"  # every action is up to date
    CACHED = "cached"  # every action has a result, some of them in a cache alone
    WOULD_RUN = "would_run"  # a build would run actions
    FAILED = "failed"  # a build would run an action that failed with the same inputs when it ran last
    SKIPPED = "skipped"  # the target cannot be built for its platform


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """`would_run` counts actions, without those that are announced later, if `announces_more`."""

    target: Target
    state: CellState
    reason: str = ""  # of a cell that failed or is skipped
    actions: int = 0
    would_run: int = 0
    announces_more: bool = False
    shard: int = 0  # from 1 on; 0 if nothing is split

    @property
    def label(self) -> str:
        return str(self.target.label)

    @property
    def runs(self) -> bool:
        """Whether a build would run something."""
        return self.state in (CellState.WOULD_RUN, CellState.FAILED)

    @property
    def word(self) -> str:
        """The state within a few columns: `built`, `run 12`, `run 3+`."""
        if self.state is CellState.WOULD_RUN:
            return f"run {self.would_run:,}{'+' if self.announces_more else ''}"
        return str(self.state.value)

    def axes(self) -> dict[str, str]:
        """The value of each axis as text; of a label its name."""
        return {axis: value_text(value) for axis, value in self.target.cell.items()}

    def document(self) -> dict[str, object]:
        """The cell as JSON. `matrix` is that of `query --output json`."""
        location = self.target.location
        return {
            "label": self.label,
            "rule": self.target.rule,
            "matrix": {axis: value_json(value) for axis, value in self.target.cell.items()},
            "state": self.state.value,
            "reason": self.reason,
            "actions": self.actions,
            "would_run": self.would_run,
            "announces_more": self.announces_more,
            "shard": self.shard or None,
            "location": {"path": location.path, "line": location.line, "column": location.column},
        }


def value_text(value: object) -> str:
    """The value of an axis in a grid or a name."""
    if isinstance(value, Label):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(value_text, value))
    if isinstance(value, Mapping):
        return " ".join(f"{key}={value_text(item)}" for key, item in value.items())
    return str(value)
