"""Collects the errors in a workspace, so that they are reported together."""

from __future__ import annotations

from mlcbuild.errors import Location, WorkspaceError, WorkspaceErrors
from mlcbuild.workspace.toml import Origin


class ErrorCollector:
    """The errors found so far. Equal errors at one place, from several cells of a matrix, are reported once."""

    def __init__(self) -> None:
        self._errors: dict[tuple[str, int, int, str], WorkspaceError] = {}

    def __len__(self) -> int:
        return len(self._errors)

    def add(self, message: str, origin: Origin | Location | None, *advice: str, of_key: bool = False) -> None:
        """Add an error. With `of_key` its place is that of the key, not of the value."""
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
        """All errors: in file order, then those without a place."""
        return tuple(self._errors[key] for key in sorted(self._errors))

    def raise_if_any(self) -> None:
        """Raise WorkspaceErrors if there are any errors."""
        if self._errors:
            raise WorkspaceErrors(self.errors)


def _place(location: Location | None) -> tuple[str, int, int]:
    # U+10FFFF sorts after every path.
    return (location.path, location.line, location.column) if location else ("\U0010ffff", 0, 0)
