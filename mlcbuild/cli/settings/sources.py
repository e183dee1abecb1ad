"""Settings with their sources: an option, an environment variable, or a table of a file."""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from mlcbuild.errors import Location, MlcbuildError, UsageError, WorkspaceError
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.schema import Attribute, AttributeKind

_SWITCH = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}


class Precedence(enum.IntEnum):
    """The kinds of sources. The greatest one that has a setting counts."""

    WORKSPACE = 0
    USER_FILE = 1
    VARIABLE = 2
    OPTION = 3


@dataclass(frozen=True, kw_only=True)
class SettingSource:
    """Where a setting stands: `place` in a file, or the name of an option or a variable.

    Relative paths in its value start from `folder`.
    """

    precedence: Precedence
    place: Location | str
    folder: Path = Path()

    def error(self, message: str, *advice: str) -> MlcbuildError:
        """The error to raise for a wrong value: a WorkspaceError for a file, else a UsageError."""
        if isinstance(self.place, Location):
            return WorkspaceError(message, location=self.place, advice=advice)
        return UsageError(f"{self.place}: {message}", advice=advice)

    @contextmanager
    def names_errors(self, *advice: str) -> Iterator[None]:
        """Turn a ValueError of the block into an error that names this source."""
        try:
            yield
        except ValueError as error:
            raise self.error(str(error), *advice) from None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A typed value and its source."""

    value: Any = field(repr=False)  # may hold credentials
    source: SettingSource

    def path(self) -> Path:
        """The file that the value names. Raises UsageError or WorkspaceError for the home of an unknown user."""
        try:
            return self.source.folder / Path(self.value).expanduser()
        except RuntimeError:
            raise self.source.error("the file is in the home of an unknown user") from None


Settings = dict[str, Setting]
"""By the setting's name; a setting that no source has is absent."""


class SettingsTable(Protocol):
    """A table of a file, as `mlcbuild.workspace` reads it: what it sets, without defaults."""

    @property
    def values(self) -> Mapping[str, Any]: ...

    def location(self, name: str) -> Location: ...


def table_settings(table: SettingsTable | None, folder: Path, precedence: Precedence) -> Settings:
    """The settings of a table in a file of `folder`; none without a table."""
    if table is None:
        return {}
    return {
        name: Setting(
            value=value, source=SettingSource(precedence=precedence, place=table.location(name), folder=folder)
        )
        for name, value in table.values.items()
    }


def variable_settings(environment: Mapping[str, str], known: Mapping[str, Attribute]) -> Settings:
    """The settings of environment variables; `known` maps a variable to its setting. An empty variable sets nothing.

    Raises UsageError for a value of the wrong type.
    """
    return {
        attribute.name: Setting(
            value=_read(attribute, environment[variable], variable),
            source=SettingSource(precedence=Precedence.VARIABLE, place=variable, folder=Path.cwd()),
        )
        for variable, attribute in known.items()
        if environment.get(variable)
    }


def option_setting(option: str, value: Any) -> Setting:
    """The setting of an option of the command line."""
    return Setting(value=value, source=SettingSource(precedence=Precedence.OPTION, place=option, folder=Path.cwd()))


def merged(*sources: Settings) -> Settings:
    """Each setting from the source that counts most. `sources` are in ascending precedence."""
    settings: Settings = {}
    for source in sources:
        settings.update(source)
    return settings


def _read(attribute: Attribute, text: str, variable: str) -> Any:
    """The typed value of a variable. Lists are separated by colons, tables have a line for each entry."""
    match attribute.kind:
        case AttributeKind.CHOICE if text not in attribute.allowed:
            raise UsageError(f'{variable}: unknown value "{text}"', advice=(known_values(text, attribute.allowed),))
        case AttributeKind.BOOLEAN:
            if text.lower() not in _SWITCH:
                raise UsageError(f'{variable} must be 1 or 0, not "{text}"')
            return _SWITCH[text.lower()]
        case AttributeKind.INTEGER:
            if not (text.isascii() and text.isdigit()):
                raise UsageError(f'{variable} must be a number, not "{text}"')
            if attribute.minimum is not None and int(text) < attribute.minimum:
                raise UsageError(f"{variable} must be at least {attribute.minimum:g}, not {text}")
            return int(text)
        case AttributeKind.STRING_LIST:
            return tuple(part for part in text.split(os.pathsep) if part)
        case AttributeKind.STRING_MAP:
            entries = {}
            for line in filter(None, map(str.strip, text.splitlines())):
                name, mark, value = line.partition(":")
                if not mark:
                    raise UsageError(f"{variable} must have lines of the form NAME: VALUE")
                entries[name.strip()] = value.strip()
            return entries
        case _:
            return text
