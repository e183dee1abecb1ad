"""The root `BUILD.toml`: settings of the whole workspace, and its configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from mlcbuild.errors import Location, WorkspaceError, WorkspaceErrors
from mlcbuild.regular_files import read_regular
from mlcbuild.suggestions import closest
from mlcbuild.workspace.configuration import DEFAULT_CONFIGURATION, Configuration
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.execution import EXECUTION_TABLE, ExecutionTable, read_execution
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.packages import BUILD_FILE
from mlcbuild.workspace.remote import REMOTE_TABLE, RemoteTable, read_remote
from mlcbuild.workspace.schema import PLATFORM, Attribute, AttributeKind
from mlcbuild.workspace.toml import Origin, TomlFile, read
from mlcbuild.workspace.values import Reference, ValueReader, read_table

WORKSPACE_TABLE = "workspace"
CONFIGURATION_TABLE = "configuration"

WORKSPACE_SETTINGS: tuple[Attribute, ...] = (
    Attribute(
        name="name",
        kind=AttributeKind.STRING,
        mandatory=True,
        nonempty=True,
        doc="The name of the workspace in messages and reports.",
    ),
    Attribute(
        name="digest",
        kind=AttributeKind.CHOICE,
        allowed=("blake3", "sha256"),
        default="blake3",
        doc="The digest function of the workspace and of every cache that it uses.",
    ),
    Attribute(
        name="rules",
        kind=AttributeKind.LABEL_LIST,
        allow_files=True,
        doc="Files that define the workspace's own rules, such as //build:my_rule.py.",
    ),
    Attribute(
        name="default_platform",
        kind=AttributeKind.LABEL,
        provides=(PLATFORM,),
        doc="The platform of targets that set none.",
    ),
    Attribute(
        name="output",
        kind=AttributeKind.PATH,
        default="mlcbuild-out",
        doc="The folder for outputs, below the root.",
    ),
    Attribute(
        name="ignore",
        kind=AttributeKind.STRING_LIST,
        doc="Folders without packages, as paths from the root.",
    ),
)
"""The settings in `[workspace]`."""

CONFIGURATION_SETTINGS: tuple[Attribute, ...] = (
    Attribute(
        name="platform",
        kind=AttributeKind.LABEL,
        provides=(PLATFORM,),
        doc="The platform of targets that set none. It takes precedence over default_platform.",
    ),
    Attribute(
        name="environment",
        kind=AttributeKind.STRING_MAP,
        doc="Environment variables of every tool. They are part of the keys of its actions.",
    ),
    Attribute(
        name="defaults",
        kind=AttributeKind.TABLE,
        doc="Values of attributes, for targets that set none.",
    ),
    Attribute(
        name="overrides",
        kind=AttributeKind.TABLE,
        doc="Values of attributes that replace those of targets, except for axes of a matrix.",
    ),
)
"""The settings in `[configuration.NAME]`."""


@dataclass(frozen=True, kw_only=True)
class RuleFile:
    """A Python file of the workspace that defines rules: `path` is relative to the workspace root."""

    path: str
    origin: Origin = field(repr=False)

    @property
    def location(self) -> Location:
        """Where the root `BUILD.toml` names it."""
        return self.origin.location


@dataclass(frozen=True, kw_only=True)
class WorkspaceSettings:
    """The root `BUILD.toml`'s `[workspace]` table and configurations. Every workspace has the one named default."""

    root: Path
    name: str
    digest: str = "blake3"  # or "sha256": a DigestFunction's value
    rules: tuple[RuleFile, ...] = ()
    default_platform: Label | None = None
    output: str = "mlcbuild-out"  # a folder below the root
    ignore: tuple[str, ...] = ()
    remote: RemoteTable | None = None
    execution: ExecutionTable | None = None
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    references: tuple[Reference, ...] = field(default=(), repr=False)  # labels that the loader checks

    @property
    def ignored_folders(self) -> frozenset[str]:
        """The folders without packages, including the output folder."""
        return frozenset((*self.ignore, self.output))


def find_root(start: Path) -> Path:
    """The nearest folder at or above `start` whose `BUILD.toml` has `[workspace]`. Raises WorkspaceError."""
    misspelt = []
    for folder in (start.absolute(), *start.absolute().parents):
        try:
            text = read_regular(folder / BUILD_FILE).decode(errors="replace")
        except OSError:
            continue
        # The file may be invalid TOML. It is a root all the same if it has such a line.
        if any(line.strip().startswith(f"[{WORKSPACE_TABLE}") for line in text.splitlines()):
            return folder
        for number, line in enumerate(text.splitlines(), 1):
            table = line.strip()
            if table.startswith("[") and closest(table.strip("[]"), [WORKSPACE_TABLE]):
                misspelt.append(f"{folder / BUILD_FILE}:{number} has {table}: did you mean [{WORKSPACE_TABLE}]?")
    raise WorkspaceError(
        f"no workspace at or above {start}",
        advice=(
            *misspelt,
            f"the root of a workspace has a {BUILD_FILE} with a [{WORKSPACE_TABLE}] table",
            "`mlcbuild init` writes one here",
        ),
    )


def package_of(root: Path, folder: Path) -> str:
    """The package that patterns are relative to in `folder`. Raises WorkspaceError if it is not in the workspace."""
    try:
        relative = folder.absolute().relative_to(root.absolute()).as_posix()
    except ValueError:
        raise WorkspaceError(f"{folder} is not in the workspace {root}") from None
    return "" if relative == "." else relative


def load_settings(root: Path, *, tolerant: bool = False) -> WorkspaceSettings:
    """Read the settings in the root `BUILD.toml`.

    Raises WorkspaceErrors. With `tolerant` wrong settings are ignored: a `load` that follows reports them, together
    with all other errors.
    """
    errors = ErrorCollector()
    try:
        file = read(root / BUILD_FILE, BUILD_FILE)
    except WorkspaceError as error:
        raise WorkspaceErrors((error,)) from None
    settings = read_settings(root, file, errors)
    if not tolerant:
        errors.raise_if_any()
    return settings


def read_settings(root: Path, file: TomlFile, errors: ErrorCollector) -> WorkspaceSettings:
    """The settings of a parsed root file. Errors are collected, and defaults replace wrong values."""
    origin = Origin(file, (WORKSPACE_TABLE,))
    reader = ValueReader(owner=f"[{WORKSPACE_TABLE}]", package="", errors=errors)
    values = read_table(file.content.get(WORKSPACE_TABLE, {}), WORKSPACE_SETTINGS, origin, reader)
    configurations, references = _read_configurations(file, errors)
    remote = read_remote(file, errors) if REMOTE_TABLE in file.content else None
    execution = read_execution(file, errors) if EXECUTION_TABLE in file.content else None
    labels = cast("tuple[Label, ...]", values.get("rules", ()))
    reader.references.extend(references)
    return WorkspaceSettings(
        root=root,
        name=cast(str, values.get("name", root.name)),
        digest=cast(str, values["digest"]),
        rules=_rule_files(root, labels, origin.at("rules"), errors),
        default_platform=cast("Label | None", values.get("default_platform")),
        output=cast(str, values["output"]),
        ignore=tuple(folder.strip("/") for folder in cast("tuple[str, ...]", values.get("ignore", ()))),
        remote=remote,
        execution=execution,
        configurations=configurations,
        references=tuple(found for found in reader.references if found.attribute.name != "rules"),
    )


def _read_configurations(
    file: TomlFile, errors: ErrorCollector
) -> tuple[dict[str, Configuration], tuple[Reference, ...]]:
    configurations = {DEFAULT_CONFIGURATION: Configuration()}
    references: list[Reference] = []
    tables = file.content.get(CONFIGURATION_TABLE, {})
    origin = Origin(file, (CONFIGURATION_TABLE,))
    if type(tables) is not dict:
        errors.add(
            "configurations are written [configuration.NAME], not as a list",
            origin,
            "for instance [configuration.release]",
        )
        return configurations, ()
    for name, raw in tables.items():
        where = origin.at(name)
        if not name or "/" in name or ":" in name or name.startswith((".", "-")):
            errors.add(
                f'bad configuration name "{name}"',
                where,
                'it is the name of a folder: it must not contain "/" or ":", nor begin with "." or "-"',
                of_key=True,
            )
            continue
        reader = ValueReader(owner=f"[{CONFIGURATION_TABLE}.{name}]", package="", errors=errors)
        values = read_table(raw, CONFIGURATION_SETTINGS, where, reader)
        references.extend(reader.references)
        configurations[name] = Configuration(
            name=name,
            platform=cast("Label | None", values.get("platform")),
            environment=cast("Mapping[str, str]", values.get("environment", {})),
            defaults=cast("Mapping[str, object]", values.get("defaults", {})),
            overrides=cast("Mapping[str, object]", values.get("overrides", {})),
            origin=where,
        )
    return configurations, tuple(references)


def _rule_files(root: Path, labels: tuple[Label, ...], origin: Origin, errors: ErrorCollector) -> tuple[RuleFile, ...]:
    found = []
    for index, label in enumerate(labels):
        # As a label, //build/my_rule.py is a target in a package of that name. Here it means the file.
        candidates = [label.path]
        if label.name == label.package.rpartition("/")[2]:
            candidates.insert(0, label.package)
        path = next((candidate for candidate in candidates if (root / candidate).is_file()), None)
        if path is None:
            errors.add(f'no rule file "{candidates[0]}"', origin.at(index))
        elif not path.endswith(".py"):
            errors.add(f'the rule file "{path}" is not a Python file: its name must end in .py', origin.at(index))
        else:
            found.append(RuleFile(path=path, origin=origin.at(index)))
    return tuple(found)
