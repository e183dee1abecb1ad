"""Mistakes: collected as they are found, told together, each with what is known and what may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mlcbuild.errors import Location, WorkspaceError, WorkspaceErrors
from mlcbuild.workspace.toml import Origin

_MOST_SHOWN = 8


class Problems:
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

    def raise_if_any(self) -> None:
        """Raise WorkspaceErrors with all of them: in file order, then those without a place."""
        if self._errors:
            raise WorkspaceErrors(tuple(self._errors[key] for key in sorted(self._errors)))


def known_values(value: str, known: Iterable[str], *, intro: str = "known") -> str:
    """One line of advice: the known values, and those that look like `value`; "" where nothing is known."""
    candidates = list(dict.fromkeys(known))
    if not candidates:
        return ""
    shown = ", ".join(candidates[:_MOST_SHOWN]) + (", …" if len(candidates) > _MOST_SHOWN else "")
    guess = did_you_mean(value, candidates)
    return f"{intro}: {shown}" + (f"        {guess}" if guess else "")


def did_you_mean(value: str, known: Sequence[str]) -> str:
    """The question that names the closest known value; "" where none is close."""
    import difflib

    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(value.casefold(), folded, n=1)
    return f'did you mean "{folded[close[0]]}"?' if close else ""


def _place(location: Location | None) -> tuple[str, int, int]:
    # U+10FFFF sorts after every path.
    return (location.path, location.line, location.column) if location else ("\U0010ffff", 0, 0)
