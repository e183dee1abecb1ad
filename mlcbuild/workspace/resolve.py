"""The value of an attribute, which a matrix, a configuration and a platform may all set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mlcbuild.suggestions import known_values
from mlcbuild.workspace.configuration import Configuration
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.matrix import substitute
from mlcbuild.workspace.matrix_axes import NO_CELL, Cell
from mlcbuild.workspace.schema import PLATFORM, Attribute, AttributeKind, AttributeValue, RuleSchema
from mlcbuild.workspace.settings import CONFIGURATION_TABLE, WorkspaceSettings
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.values import DEFAULT as DEFAULT_BRANCH
from mlcbuild.workspace.values import Reference, ValueReader, describe

PLATFORM_KEY = Attribute(name="select", kind=AttributeKind.LABEL, provides=(PLATFORM,), doc="A platform by its label.")

Resolved = tuple[tuple[AttributeValue, Origin | None] | None, bool]
"""A value and its place (None: in the target's table, under the attribute's name), or None if there is none or an
error; and whether the files set the attribute at all."""

NOT_GIVEN: Resolved = (None, False)
INVALID: Resolved = (None, True)


@dataclass(frozen=True, kw_only=True)
class Resolver:
    """Selects and reads values, for one workspace and configuration.

    `references` and `paths` are those in values of configurations. Those of a target are in its reader.
    """

    settings: WorkspaceSettings
    configuration: Configuration
    errors: ErrorCollector
    references: list[Reference] = field(default_factory=list)
    paths: list[tuple[str, Attribute, Origin]] = field(default_factory=list)

    @property
    def platform(self) -> Label | None:
        """The platform of targets that set none."""
        return self.configuration.platform or self.settings.default_platform

    def value(
        self,
        attribute: Attribute,
        table: Mapping[str, Any],
        origin: Origin,
        reader: ValueReader,
        cell: Cell,
        platform: Label | None,
    ) -> Resolved:
        """The value of a target's attribute, if one is set.

        The order of precedence is: an axis of the matrix, the configuration's overrides, the target's table, the
        configuration's defaults. Values by platform without one for this platform are skipped.
        """
        name = attribute.name
        if name in cell:
            return (cell[name].value, cell[name].origin), True
        configuration = self.configuration
        found = NOT_GIVEN
        if configuration.overrides and name in configuration.overrides:
            found = self._configured(configuration, "overrides", attribute, platform)
        if not found[1]:
            if name in table:
                raw, where = table[name], origin.at(name)
                if not cell and type(raw) is not dict:
                    value = reader.read(attribute, raw, where)
                    return (None if value is None else (value, None)), True
                found = self._written(attribute, raw, where, reader, cell, platform)
            elif "select" in table and type(table["select"]) is dict and name in table["select"]:
                raw, where = table["select"][name], origin.at("select", name)
                found = self._read(attribute, raw, where, reader, cell, platform, depends=True)
        if not found[1] and configuration.defaults and name in configuration.defaults:
            found = self._configured(configuration, "defaults", attribute, platform)
        return found

    def check_configurations(self, schemas: Mapping[str, RuleSchema]) -> None:
        """Check the attributes in all configurations against every rule with an attribute of that name."""
        if not any(each.has_values for each in self.settings.configurations.values()):
            return
        known: dict[str, list[Attribute]] = {}
        for schema in schemas.values():
            for attribute in schema.attributes:
                known.setdefault(attribute.name, []).append(attribute)
        for configuration in self.settings.configurations.values():
            for table, values in (("defaults", configuration.defaults), ("overrides", configuration.overrides)):
                for name in values:
                    for attribute in known.get(name, ()):
                        self._configured(configuration, table, attribute, None)
                    if name not in known and configuration.origin is not None:
                        self.errors.add(
                            f'no rule has an attribute "{name}", in [{CONFIGURATION_TABLE}.{configuration.name}]',
                            configuration.origin.at(table, name),
                            known_values(name, sorted(known)),
                            of_key=True,
                        )

    def _configured(
        self, configuration: Configuration, table: str, attribute: Attribute, platform: Label | None
    ) -> Resolved:
        values = configuration.defaults if table == "defaults" else configuration.overrides
        raw = values[attribute.name]
        assert configuration.origin is not None, "a configuration with values comes from a file"
        where = configuration.origin.at(table, attribute.name)
        reader = ValueReader(
            owner=f"[{CONFIGURATION_TABLE}.{configuration.name}]",
            package="",
            errors=self.errors,
            references=self.references,
            paths=self.paths,
        )
        return self._written(attribute, raw, where, reader, NO_CELL, platform)

    def _written(
        self, attribute: Attribute, raw: Any, where: Origin, reader: ValueReader, cell: Cell, platform: Label | None
    ) -> Resolved:
        """Read a value that may be a table of values by platform or configuration."""
        depends = type(raw) is dict and not attribute.is_table
        if depends and attribute.by_pattern:
            keys = [key for key in raw if key != DEFAULT_BRANCH]
            patterns = [key for key in keys if not self._is_chooser(key)]
            if patterns and len(patterns) < len(keys):
                other = next(key for key in keys if key not in patterns)
                self.errors.add(
                    f'"{attribute.name}" of {reader.owner} has keys of two kinds: "{other}" is a platform or '
                    f'configuration, "{patterns[0]}" a pattern of names',
                    where.at(patterns[0]),
                    f'write a table of patterns for each platform or configuration: "{other}" = '
                    f'{{ {DEFAULT_BRANCH} = …, "{patterns[0]}" = … }}',
                    of_key=True,
                )
                return INVALID
            depends = not patterns
        return self._read(attribute, raw, where, reader, cell, platform, depends=depends)

    def _is_chooser(self, key: str) -> bool:
        """Whether a key names a platform or a configuration. The names of parameters have neither ":" nor "/"."""
        return ":" in key or "/" in key or key in self.settings.configurations

    def _read(
        self,
        attribute: Attribute,
        raw: Any,
        where: Origin,
        reader: ValueReader,
        cell: Cell,
        platform: Label | None,
        *,
        depends: bool,
    ) -> Resolved:
        if depends:
            return self._choose(attribute, raw, where, reader, cell, platform)
        if cell:
            raw = substitute(raw, cell, attribute, where, reader)
        value = reader.read(attribute, raw, where)
        return (None if value is None else (value, where)), True

    def _choose(
        self,
        attribute: Attribute,
        raw: Any,
        where: Origin,
        reader: ValueReader,
        cell: Cell,
        platform: Label | None,
    ) -> Resolved:
        """Read every branch of a value that depends on platform or configuration, and take the one that applies.

        The platform's branch takes precedence over the configuration's, and that over "default". If none applies, the
        attribute is not set.
        """
        if type(raw) is not dict or not raw:
            what = describe(raw) if type(raw) is not dict else "an empty one"
            self.errors.add(
                f'"{attribute.name}" in "select" of {reader.owner} must be a table of values, not {what}', where
            )
            return INVALID
        branches: dict[Label | str, Resolved] = {}
        for key, branch in raw.items():
            chooser = self._chooser(key, attribute, where.at(key), reader)
            found = self._read(attribute, branch, where.at(key), reader, cell, platform, depends=False)
            if chooser in branches:
                self.errors.add(
                    f'two keys of "{attribute.name}" of {reader.owner} name {chooser}', where.at(key), of_key=True
                )
            elif chooser is not None:
                branches[chooser] = found
        keys: tuple[Label | str | None, ...] = (platform, self.configuration.name, DEFAULT_BRANCH)
        return next((branches[key] for key in keys if key in branches), NOT_GIVEN)

    def _chooser(self, key: str, attribute: Attribute, where: Origin, reader: ValueReader) -> Label | str | None:
        """What the key of a branch names: a platform by its label, or a configuration by its name."""
        if ":" in key or "/" in key:
            if attribute.name == PLATFORM:
                self.errors.add(
                    f'"{PLATFORM}" in {reader.owner} cannot depend on a platform, only on the configuration',
                    where,
                    of_key=True,
                )
                return None
            return reader.read_key(key, attribute, PLATFORM_KEY, where)
        if key != DEFAULT_BRANCH and key not in self.settings.configurations:
            self.errors.add(
                f'unknown configuration "{key}" in "{attribute.name}" of {reader.owner}',
                where,
                known_values(key, [DEFAULT_BRANCH, *self.settings.configurations]),
                "a platform is named by its label, with a colon: :cuda, //platforms:cuda",
                of_key=True,
            )
            return None
        return key
