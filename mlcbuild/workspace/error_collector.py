"""Mistakes: collected as they are found, then told together."""

from __future__ import annotations

from mlcbuild.errors import Location, WorkspaceError, WorkspaceErrors
from mlcbuild.workspace.toml import Origin


class ErrorCollector:
    """The mistakes found so far; an equal one at the same place (another cell of a matrix) is told once."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, int, int, str], WorkspaceError] = {}

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, message: str, origin: Origin | Location | None, *advice: str, of_key: bool = False) -> None:
        """Note a mistake at a place; `of_key` points at the key that leads to the value."""
        if isinstance(origin, Origin):
            origin = origin.key_location if of_key else origin.location
        hints = tuple(hint for hint in advice if hint)
        self.add_error(WorkspaceError(message, location=origin, advice=hints))

    def add_error(self, error: WorkspaceError) -> None:
        if isinstance(error, WorkspaceErrors):
            for inner in error.errors:
                self.add_error(inner)
            return
        self._errors.setdefault((*_place(error.location), error.message), error)

    @property
    def errors(self) -> tuple[WorkspaceError, ...]:
        """All of them: in file order, then those without a place."""
        return tuple(self._errors[key] for key in sorted(self._errors))

    def raise_if_any(self) -> None:
        """Raise WorkspaceErrors with all of them."""
        if self._errors:
            raise WorkspaceErrors(self.errors)


def _place(location: Location | None) -> tuple[str, int, int]:
    # U+10FFFF sorts after every path.
    return (location.path, location.line, location.column) if location else ("\U0010ffff", 0, 0)
