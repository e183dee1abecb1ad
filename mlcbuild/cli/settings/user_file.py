"""The user's `settings.toml`, which applies to all workspaces: remote cache, execution, limits of the disk cache and of
the history of builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from mlcbuild.errors import WorkspaceError, WorkspaceErrors
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.execution import EXECUTION_TABLE, ExecutionTable, read_execution
from mlcbuild.workspace.remote import REMOTE_TABLE, RemoteTable, read_remote
from mlcbuild.workspace.schema import Attribute, AttributeKind
from mlcbuild.workspace.toml import Origin, TomlFile, read
from mlcbuild.workspace.units import AGE_ADVICE, SIZE_ADVICE, parse_duration, parse_size
from mlcbuild.workspace.values import ValueReader, read_table

SETTINGS_FILE = "settings.toml"
CACHE_TABLE = "cache"
CACHE_SETTINGS: tuple[Attribute, ...] = (
    Attribute(name="max_size", kind=AttributeKind.STRING, doc="The size that `cache gc` keeps: 50G, 50GiB."),
    Attribute(name="max_age", kind=AttributeKind.STRING, doc="How long `cache gc` keeps unused results: 30d."),
)
"""The settings of `[cache]`."""
HISTORY_TABLE = "history"
HISTORY_SETTINGS: tuple[Attribute, ...] = (
    Attribute(
        name="max_builds",
        kind=AttributeKind.INTEGER,
        minimum=0,
        doc="How many builds a workspace remembers; 0 for none.",
    ),
    Attribute(name="max_size", kind=AttributeKind.STRING, doc="The size of what it remembers: 64M, 64MiB."),
)
"""The settings of `[history]`."""
_TABLES = (REMOTE_TABLE, EXECUTION_TABLE, CACHE_TABLE, HISTORY_TABLE)


@dataclass(frozen=True, kw_only=True)
class UserSettings:
    """The settings in the file of `folder`; None for a setting that it does not have."""

    folder: Path
    remote: RemoteTable | None = None
    execution: ExecutionTable | None = None
    max_bytes: int | None = None
    max_age_seconds: float | None = None
    history_builds: int | None = None
    history_bytes: int | None = None


def user_settings_file(environment: Mapping[str, str]) -> Path:
    """`$XDG_CONFIG_HOME/mlcbuild/settings.toml`, by default below `~/.config`. A relative folder is ignored."""
    base = environment.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "mlcbuild" / SETTINGS_FILE


def user_settings(environment: Mapping[str, str]) -> UserSettings:
    """The settings of the user who builds. Raises WorkspaceErrors with all errors in the file; none quotes a secret."""
    return read_user_settings(user_settings_file(environment))


def read_user_settings(path: Path) -> UserSettings:
    """No settings if there is no file. Raises WorkspaceErrors with all errors in the file; none quotes a secret."""
    if not path.exists():
        return UserSettings(folder=path.parent)
    errors = ErrorCollector()
    try:
        file = read(path, str(path))
    except WorkspaceError as error:
        raise WorkspaceErrors((error,)) from None
    for name in file.content:
        if name not in _TABLES:
            errors.add(f'unknown table "{name}"', Origin(file, (name,)), known_values(name, _TABLES), of_key=True)
    remote = _read_remote(file, errors) if REMOTE_TABLE in file.content else None
    execution = read_execution(file, errors) if EXECUTION_TABLE in file.content else None
    limits = _read_limits(file, errors) if CACHE_TABLE in file.content else (None, None)
    history = _read_history(file, errors) if HISTORY_TABLE in file.content else (None, None)
    errors.raise_if_any()
    return UserSettings(
        folder=path.parent,
        remote=remote,
        execution=execution,
        max_bytes=limits[0],
        max_age_seconds=limits[1],
        history_builds=history[0],
        history_bytes=history[1],
    )


def _read_remote(file: TomlFile, errors: ErrorCollector) -> RemoteTable:
    table = read_remote(file, errors, personal=True)
    if "headers" in table.values and "address" not in table.values:
        errors.add(
            f'"headers" in [{REMOTE_TABLE}] lacks the "address" of the server that they are for',
            table.origin.at("headers"),
            of_key=True,
        )
    return table


def _read_limits(file: TomlFile, errors: ErrorCollector) -> tuple[int | None, float | None]:
    origin = Origin(file, (CACHE_TABLE,))
    reader = ValueReader(owner=f"[{CACHE_TABLE}]", package="", errors=errors)
    values = read_table(file.content[CACHE_TABLE], CACHE_SETTINGS, origin, reader)
    size, age = (cast("str | None", values.get(attribute.name)) for attribute in CACHE_SETTINGS)
    max_bytes = _size(size, origin, errors)
    max_age_seconds = parse_duration(age) if age is not None else None
    if age is not None and max_age_seconds is None:
        errors.add(f'"max_age" in [{CACHE_TABLE}] is not an age: "{age}"', origin.at("max_age"), AGE_ADVICE)
    return max_bytes, max_age_seconds


def _read_history(file: TomlFile, errors: ErrorCollector) -> tuple[int | None, int | None]:
    origin = Origin(file, (HISTORY_TABLE,))
    reader = ValueReader(owner=f"[{HISTORY_TABLE}]", package="", errors=errors)
    values = read_table(file.content[HISTORY_TABLE], HISTORY_SETTINGS, origin, reader)
    size = cast("str | None", values.get("max_size"))
    return cast("int | None", values.get("max_builds")), _size(size, origin, errors)


def _size(text: str | None, origin: Origin, errors: ErrorCollector) -> int | None:
    """The bytes of the setting `max_size` in the table of `origin`."""
    size = parse_size(text) if text is not None else None
    if text is not None and size is None:
        table = ".".join(map(str, origin.keys))
        errors.add(f'"max_size" in [{table}] is not a size: "{text}"', origin.at("max_size"), SIZE_ADVICE)
    return size
