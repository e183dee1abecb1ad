"""A setting that somebody said, and how to tell who said it when it turns out to be a mistake."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlcbuild.errors import Location, MlcbuildError, UsageError, WorkspaceError
from mlcbuild.workspace.execution import ExecutionTable
from mlcbuild.workspace.remote import RemoteTable


@dataclass(frozen=True, kw_only=True)
class Said:
    """A setting's value, where it was said (in a file, or by an option or a variable of that name), and the folder that
    its paths start from, where it may hold some.
    """

    value: Any
    place: Location | str
    folder: Path = Path()

    def mistake(self, message: str, *advice: str) -> MlcbuildError:
        if isinstance(self.place, Location):
            return WorkspaceError(message, location=self.place, advice=advice)
        return UsageError(f"{self.place}: {message}", advice=advice)


def said_in(table: RemoteTable | ExecutionTable | None, folder: Path) -> dict[str, Said]:
    """What a table of a file in `folder` says, by setting."""
    if table is None:
        return {}
    return {name: Said(value=value, place=table.location(name), folder=folder) for name, value in table.values.items()}
