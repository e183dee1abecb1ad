"""From the tables of one `BUILD.toml` to targets, with all checks that need no other file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from mlcbuild.suggestions import closest, known_values
from mlcbuild.workspace.attribute_override import AttributeOverride
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.execution import EXECUTION_TABLE
from mlcbuild.workspace.label import Label, LabelError, label_of, quoted
from mlcbuild.workspace.matrix import NO_MATRIX, Matrix, expand, is_matrix, substitute
from mlcbuild.workspace.matrix_axes import NO_CELL, Cell, name_pattern, placeholders
from mlcbuild.workspace.remote import REMOTE_TABLE
from mlcbuild.workspace.resolve import NOT_GIVEN, PLATFORM_KEY, Resolved, Resolver
from mlcbuild.workspace.schema import (
    COMMON_ATTRIBUTES,
    COMPATIBLE_WITH,
    PLATFORM,
    PLATFORM_KIND,
    Attribute,
    AttributeValue,
    RuleSchema,
)
from mlcbuild.workspace.settings import CONFIGURATION_TABLE, WORKSPACE_TABLE
from mlcbuild.workspace.target import Target
from mlcbuild.workspace.toml import Origin, TomlFile
from mlcbuild.workspace.values import Reference, ValueReader, describe

_COMMON = {attribute.name: attribute for attribute in COMMON_ATTRIBUTES}


@dataclass(kw_only=True)
class Package:
    """The targets of one file. `incomplete` if the file could not be read, so that its targets are unknown."""

    name: str
    targets: dict[str, Target] = field(default_factory=dict)
    unfinished: dict[str, Origin] = field(default_factory=dict)  # names of tables with errors
    unfinished_patterns: list[str] = field(default_factory=list)  # name templates of matrices with errors
    references: list[Reference] = field(default_factory=list)
    paths: list[tuple[str, Attribute, Origin]] = field(default_factory=list)
    incomplete: bool = False

    def known_names(self) -> list[str]:
        """The names of all targets with a table, also of tables with errors."""
        return sorted({*self.targets, *self.unfinished})

    def may_define(self, name: str) -> bool:
        """Whether there is a target of that name, or might be without an error that is already reported."""
        return (
            self.incomplete
            or name in self.targets
            or name in self.unfinished
            or any(name_pattern(template).fullmatch(name) for template in self.unfinished_patterns)
        )


_ROOT_TABLES = (WORKSPACE_TABLE, CONFIGURATION_TABLE, REMOTE_TABLE, EXECUTION_TABLE)


@dataclass(frozen=True, kw_only=True)
class PackageReader:
    """Reads packages, for one set of rules."""

    schemas: Mapping[str, RuleSchema]
    resolver: Resolver
    errors: ErrorCollector
    overrides: dict[tuple[Label, str], AttributeOverride] = field(default_factory=dict)
    _asked_for: dict[tuple[str, ...], tuple[Attribute, ...]] = field(default_factory=dict)

    def read_package(self, name: str, file: TomlFile) -> Package:
        """Read every target of a file. Errors are collected."""
        package = Package(name=name)
        for rule, tables in file.content.items():
            origin = Origin(file, (rule,))
            if rule in _ROOT_TABLES:
                if name:
                    self.errors.add(f"[{rule}] is allowed only in the root's BUILD.toml", origin, of_key=True)
                continue
            if type(tables) is not list:
                self._tell_of_no_list(rule, tables, origin, is_root=not name)
                if type(tables) is dict:
                    self._leave_unfinished(package, tables.get("name"), is_matrix(tables), origin)
                continue
            for index, table in enumerate(tables):
                self._read_table(package, rule, table, origin.at(index))
        return package

    def _tell_of_no_list(self, rule: str, value: object, origin: Origin, *, is_root: bool) -> None:
        message, advice = f'"{rule}" must be a list of tables, not {describe(value)}', ""
        if type(value) is dict:
            advice = f"write [[{rule}]], with two pairs of brackets"
            if rule not in self.schemas:
                message = f"unknown table [{rule}]"
                tables = {name: f"[{name}]" for name in _ROOT_TABLES if is_root}
                known = {**{name: f"[[{name}]]" for name in self.schemas}, **tables}
                meant = closest(rule, tables) or closest(rule, tuple(known))
                advice = f"did you mean {known[meant]}?" if meant else "a target is written as [[rule]]"
        self.errors.add(message, origin, advice, of_key=True)

    def _read_table(self, package: Package, rule: str, table: Any, origin: Origin) -> None:
        schema = self.schemas.get(rule)
        if type(table) is not dict:
            self.errors.add(f'"{rule}" must be a list of tables, but contains {describe(table)}', origin)
            return
        name = table.get("name")
        owner = f"//{package.name}:{name}" if type(name) is str and name else f"a {rule} without a name"
        reader = ValueReader(owner=owner, package=package.name, errors=self.errors)
        if schema is None:
            self.errors.add(f'unknown rule "{rule}" in {owner}', origin, known_values(rule, self.schemas))
            self._leave_unfinished(package, name, is_matrix(table), origin)
            return
        common = self._read_common(schema, table, origin, reader)
        matrix = expand(table, schema, origin, reader) if is_matrix(table) else NO_MATRIX
        if not matrix.cells:
            self._leave_unfinished(package, name, True, origin)
            self._check_without_cells(schema, table, origin, reader)
        for number in range(len(matrix.cells)):
            self._read_cell(package, schema, table, origin, reader, matrix, number, common)
        package.references.extend(reader.references)
        package.paths.extend(reader.paths)

    def _check_without_cells(
        self, schema: RuleSchema, table: Mapping[str, Any], origin: Origin, reader: ValueReader
    ) -> None:
        """Check the other attributes of a table with a wrong matrix, unless they have placeholders."""
        for attribute in schema.attributes:
            if attribute.name in table and not _has_brace(table[attribute.name]):
                self.resolver.value(attribute, table, origin, reader, NO_CELL, None)

    def _leave_unfinished(self, package: Package, name: Any, is_matrix: bool, origin: Origin) -> None:
        if type(name) is not str:
            return
        if is_matrix:
            package.unfinished_patterns.append(name)
        else:
            package.unfinished.setdefault(name, origin.at("name"))

    def _read_common(
        self, schema: RuleSchema, table: Mapping[str, Any], origin: Origin, reader: ValueReader
    ) -> dict[str, AttributeValue]:
        """Check the names of attributes, and read the common ones except name, matrix and exclude."""
        common: dict[str, AttributeValue] = {}
        for key in table:
            if key in schema.by_name:
                continue
            attribute = _COMMON.get(key)
            if attribute is None:
                self.errors.add(
                    f'unknown attribute "{key}" of {schema.name} in {reader.owner}',
                    origin.at(key),
                    known_values(key, [*schema.by_name, *_COMMON]),
                    of_key=True,
                )
            elif key in ("tags", "visibility"):
                value = reader.read(attribute, table[key], origin.at(key))
                if value is not None:
                    common[key] = value
            elif key == "select":
                self._check_select(schema, table, origin.at(key), reader)
            elif key == "exclude" and "matrix" not in table:
                self.errors.add(f'"exclude" without "matrix" in {reader.owner}', origin.at(key), of_key=True)
        return common

    def _check_select(self, schema: RuleSchema, table: Mapping[str, Any], origin: Origin, reader: ValueReader) -> None:
        selects = table["select"]
        if type(selects) is not dict:
            reader.wrong_type(_COMMON["select"], selects, origin)
            return
        for name in selects:
            if name not in schema.by_name:
                self.errors.add(
                    f'unknown attribute "{name}" of {schema.name} in "select" of {reader.owner}',
                    origin.at(name),
                    known_values(name, schema.by_name),
                    of_key=True,
                )
            elif name in table:
                self.errors.add(
                    f'"{name}" of {reader.owner} is set twice: by "select" and directly',
                    origin.at(name),
                    of_key=True,
                )

    def _read_cell(
        self,
        package: Package,
        schema: RuleSchema,
        table: Mapping[str, Any],
        origin: Origin,
        reader: ValueReader,
        matrix: Matrix,
        number: int,
        common: Mapping[str, AttributeValue],
    ) -> None:
        """Read one target: that of the table, or of one cell of its matrix."""
        before = len(self.errors)
        cell = matrix.cells[number]
        label = self._label(package, schema, table, origin, reader, cell)
        platform = self.resolver.platform
        values: dict[str, AttributeValue] = {}
        elsewhere: dict[str, Origin] = {}
        if COMPATIBLE_WITH in cell:
            elsewhere[COMPATIBLE_WITH] = cell[COMPATIBLE_WITH].origin
        # Nearly all targets have their values from nowhere else, and leave most attributes out.
        is_in_table = not (cell or self.overrides or "select" in table or self.resolver.configuration.has_values)
        for attribute in self._attributes_of(schema, table) if is_in_table else _in_order(schema):
            name = attribute.name
            if name in values:
                continue
            if is_in_table and name not in table:
                found, given = NOT_GIVEN
            else:
                found, given = self._overridden(label, attribute, reader)
                if not given:
                    found, given = self.resolver.value(attribute, table, origin, reader, cell, platform)
            if not given and attribute.is_label:
                if name == PLATFORM and platform:
                    values[name], elsewhere[name] = platform, origin
                    continue
                _refer_to_default(attribute, origin, reader)
            if found is not None:
                values[name], where = found
                if where is not None:
                    elsewhere[name] = where
                if name == PLATFORM and isinstance(found[0], Label):
                    platform = found[0]
            elif not given and attribute.mandatory:
                self.errors.add(
                    f'{reader.owner} lacks "{name}", which every {schema.name} must have',
                    origin,
                    f"{name}: {attribute.doc}",
                )
        if label is None:
            return
        duplicate = package.targets.get(label.name)
        first = duplicate.origin_of("name") if duplicate else package.unfinished.get(label.name)
        if duplicate is not None and duplicate.origin == origin:
            self.errors.add(
                f'two cells of the matrix of {reader.owner} are both named "{label.name}"',
                origin.at("name"),
                _missing_axes(cell, table["name"]),
            )
        elif first is not None:
            self.errors.add(f"{label} is defined twice", origin.at("name"), f"first defined at {first.location}")
        elif len(self.errors) > before:
            package.unfinished[label.name] = origin.at("name")
        else:
            tags = cast("tuple[str, ...]", common.get("tags", ()))
            if cell and tags:
                tags = tuple(substitute(list(tags), cell, _COMMON["tags"], origin.at("tags"), reader))
            package.targets[label.name] = Target(
                label=label,
                schema=schema,
                values=values,
                origin=origin,
                elsewhere=elsewhere,
                tags=tags,
                visibility=cast("tuple[str, ...] | None", common.get("visibility")),
                cell={name: entry.value for name, entry in cell.items() if name != COMPATIBLE_WITH},
                axes=matrix.axes,
                cell_number=number,
                platform=platform,
                compatible_with=self._compatible_with(table, origin, reader, cell),
            )

    def _attributes_of(self, schema: RuleSchema, table: Mapping[str, Any]) -> tuple[Attribute, ...]:
        """The attributes that a table has, and those that count without it. Most tables of a rule have the same."""
        keys = (schema.name, *table)
        found = self._asked_for.get(keys)
        if found is None:
            found = self._asked_for[keys] = tuple(
                each for each in _in_order(schema) if each.name in table or each.mandatory or each.is_label
            )
        return found

    def _compatible_with(
        self, table: Mapping[str, Any], origin: Origin, reader: ValueReader, cell: Cell
    ) -> tuple[Label | str, ...]:
        """The platforms by their labels, and kinds of platforms: those of the cell, if `include` gives it any, or else
        those of the table. Errors are collected.
        """
        attribute = _COMMON[COMPATIBLE_WITH]
        if COMPATIBLE_WITH in cell:
            raw: Any = list(cast("tuple[str, ...]", cell[COMPATIBLE_WITH].value))
            where = cell[COMPATIBLE_WITH].origin
        elif COMPATIBLE_WITH in table:
            raw, where = table[COMPATIBLE_WITH], origin.at(COMPATIBLE_WITH)
        else:
            return ()
        written = reader.read(attribute, substitute(raw, cell, attribute, where, reader) if cell else raw, where)
        found: list[Label | str] = []
        for index, entry in enumerate(cast("tuple[str, ...]", written or ())):
            if ":" in entry or "/" in entry:
                label = reader.read_key(entry, attribute, PLATFORM_KEY, where.at(index), of_key=False)
                found += [label] if label is not None else []
            elif entry in (kinds := self._platform_kinds()):
                found.append(entry)
            else:
                self.errors.add(
                    f'unknown kind of platform "{entry}" in "{COMPATIBLE_WITH}" of {reader.owner}',
                    where.at(index),
                    known_values(entry, kinds),
                    "a platform is named by its label, with a colon: :cuda, //platforms:cuda",
                )
        return tuple(found)

    def _platform_kinds(self) -> tuple[str, ...]:
        of_platforms = (schema for schema in self.schemas.values() if PLATFORM in schema.provides)
        kinds = (schema.by_name.get(PLATFORM_KIND) for schema in of_platforms)
        return tuple(allowed for kind in kinds if kind is not None for allowed in kind.allowed)

    def _overridden(self, label: Label | None, attribute: Attribute, reader: ValueReader) -> Resolved:
        """The value that the command line sets."""
        override = self.overrides.get((label, attribute.name)) if label is not None and self.overrides else None
        if override is None:
            return NOT_GIVEN
        value = reader.read(attribute, override.raw(attribute), override.origin)
        return (None if value is None else (value, override.origin)), True

    def _label(
        self,
        package: Package,
        schema: RuleSchema,
        table: Mapping[str, Any],
        origin: Origin,
        reader: ValueReader,
        cell: Cell,
    ) -> Label | None:
        """The target's label. None after an error, which is collected."""
        attribute = _COMMON["name"]
        if "name" not in table:
            self.errors.add(f'a {schema.name} lacks "name"', origin, f"name: {attribute.doc}")
            return None
        where = origin.at("name")
        name = table["name"]
        if type(name) is not str:
            reader.wrong_type(attribute, name, where)
            return None
        if cell:
            template, name = name, substitute(name, cell, attribute, where, reader)
            if not placeholders(template).issubset(cell):
                package.unfinished_patterns.append(name)
                return None
        elif placeholders(name):
            self.errors.add(f'the name "{name}" has a placeholder, but its target has no matrix', where)
            return None
        try:
            return label_of(package.name, name)
        except LabelError as error:
            self.errors.add(f"bad target name {quoted(name)}: {error.message}", where, *error.advice)
            return None


def _in_order(schema: RuleSchema) -> tuple[Attribute, ...]:
    """The attributes as they are read. The platform comes first: it selects the values that depend on it."""
    platform = schema.by_name.get(PLATFORM)
    return schema.attributes if platform is None else (platform, *schema.attributes)


def _missing_axes(cell: Cell, template: str) -> str:
    absent = [f"{{{axis}}}" for axis, entry in cell.items() if f"{{{axis}}}" not in template and entry.text is not None]
    return f"add {', '.join(absent)} to the name" if absent else "the values of its axes have equal names"


def _refer_to_default(attribute: Attribute, origin: Origin, reader: ValueReader) -> None:
    """Check default labels of a rule like those in a target."""
    default = attribute.default
    for label in (default,) if isinstance(default, Label) or not isinstance(default, tuple) else default:
        if isinstance(label, Label):
            reader.references.append(Reference(label, attribute, origin, reader.owner, reader.package))


def _has_brace(raw: Any) -> bool:
    if isinstance(raw, dict):
        raw = list(raw.values())
    return any(_has_brace(item) for item in raw) if isinstance(raw, list) else isinstance(raw, str) and "{" in raw
