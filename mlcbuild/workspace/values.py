"""From TOML values to typed values of attributes."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from mlcbuild.errors import Location
from mlcbuild.suggestions import known_values
from mlcbuild.workspace.error_collector import ErrorCollector
from mlcbuild.workspace.label import Label, LabelError, quoted, read_label
from mlcbuild.workspace.schema import Attribute, AttributeKind, AttributeValue
from mlcbuild.workspace.toml import Origin
from mlcbuild.workspace.units import DURATION_ADVICE, SIZE_ADVICE, parse_duration, parse_size


class Reference(NamedTuple):
    """A label in a file, with the attribute that it is a value of."""

    label: Label
    attribute: Attribute
    origin: Origin
    owner: str
    package: str  # of the target with the label
    is_key: bool = False  # whether it is a key in a table of values by platform
    is_bare: bool = False  # whether it is written as a path is, without a colon or slashes in front

    @property
    def role(self) -> str:
        """What the label is for, as messages say it."""
        article = "a key of" if self.is_key else "the"
        return f'{article} "{self.attribute.name}" of {self.owner}'

    @property
    def location(self) -> Location:
        return self.origin.key_location if self.is_key else self.origin.location


_STRING = AttributeKind.STRING
DEFAULT = "default"
"""The key for all else, of values by platform or configuration and of those by patterns of names."""


@dataclass(slots=True, kw_only=True)
class ValueReader:
    """Reads the values of one target or other table, which messages call `owner`.

    Labels and paths are relative to `package`. They are collected in `references` and `paths` for the checks that need
    other files.
    """

    owner: str
    package: str
    errors: ErrorCollector
    references: list[Reference] = field(default_factory=list)
    paths: list[tuple[str, Attribute, Origin]] = field(default_factory=list)

    def read(self, attribute: Attribute, raw: Any, origin: Origin) -> AttributeValue | None:
        """The typed value. None after an error, which is collected."""
        kind = attribute.kind
        value: AttributeValue | None
        if kind is _STRING and type(raw) is str and raw:
            return raw
        if kind is AttributeKind.LABEL:
            value = self._label(attribute, raw, origin)
        elif kind is AttributeKind.LABEL_LIST:
            value = self._labels(attribute, raw, origin)
        elif kind is AttributeKind.STRING_LIST:
            value = self._strings(attribute, raw, origin)
        elif kind is AttributeKind.STRING_MAP:
            value = self._string_map(attribute, raw, origin)
        elif kind is AttributeKind.TABLE:
            value = self._table(attribute, raw, origin)
        elif kind is AttributeKind.SIZE or kind is AttributeKind.DURATION:
            value = self._measure(attribute, raw, origin)
        elif kind is AttributeKind.PATH:
            value = self._path(attribute, raw, origin)
        elif kind is AttributeKind.INTEGER:
            value = self._of_type(attribute, raw, origin, int)
        elif kind is AttributeKind.NUMBER:
            value = self._number(attribute, raw, origin)
        elif kind is AttributeKind.BOOLEAN:
            value = self._of_type(attribute, raw, origin, bool)
        elif kind is AttributeKind.CHOICE:
            value = self._choice(attribute, raw, origin)
        else:
            value = self._of_type(attribute, raw, origin, str)
        if attribute.range_text and isinstance(value, (int, float)) and not attribute.allows_number(value):
            self.errors.add(f'"{attribute.name}" must be {attribute.range_text}, not {raw}, in {self.owner}', origin)
            return None
        if attribute.nonempty and value is not None and not value:
            self.errors.add(f'"{attribute.name}" in {self.owner} must not be empty', origin)
            return None
        return value

    def unknown(self, what: str, value: str, known: tuple[str, ...], origin: Origin, *, meant: str = "") -> None:
        """Add an error for an unknown value. `meant` says what it may have meant, in place of the word most like it."""
        told = f"known: {', '.join(known)}        {meant}" if meant else known_values(value, known)
        self.errors.add(f'unknown {what} "{value}" in {self.owner}', origin, told)

    def wrong_type(self, attribute: Attribute, raw: Any, origin: Origin, *, wanted: str = "") -> None:
        """Add an error for a value of the wrong type."""
        wanted = wanted or f"be {_WANTED[attribute.kind]}"
        self.errors.add(f'"{attribute.name}" must {wanted}, not {describe(raw)}, in {self.owner}', origin)

    def _choice(self, attribute: Attribute, raw: Any, origin: Origin) -> AttributeValue | None:
        if attribute.by_pattern and type(raw) is dict:
            return self._choices(attribute, raw, origin)
        if attribute.file_suffix and type(raw) is str and raw.endswith(attribute.file_suffix):
            return self._path(attribute, raw, origin)
        value: str | None = self._of_type(attribute, raw, origin, str)
        if value is not None and value not in attribute.allowed:
            self.unknown(attribute.name, value, attribute.allowed, origin, meant=dict(attribute.meant).get(value, ""))
            return None
        return value

    def _choices(self, attribute: Attribute, raw: dict[str, Any], origin: Origin) -> Mapping[str, str] | None:
        """Choices by patterns of names, in the order in which they are written."""
        wrong = [key for key, value in raw.items() if type(value) is not str or value not in attribute.allowed]
        for key in wrong:
            if type(raw[key]) is str:
                self.unknown(attribute.name, raw[key], attribute.allowed, origin.at(key))
            else:
                self.wrong_type(attribute, raw[key], origin.at(key), wanted=f'have a string for "{key}"')
        if DEFAULT not in raw:
            advice = f"add {DEFAULT} = …, for all names that match no pattern"
            self.errors.add(f'"{attribute.name}" of {self.owner} lacks "{DEFAULT}"', origin, advice)
        return None if wrong or DEFAULT not in raw else dict(raw)

    def _number(self, attribute: Attribute, raw: Any, origin: Origin) -> float | None:
        """Finite numbers only: TOML also has infinities and not-a-number."""
        if type(raw) in (int, float) and math.isfinite(raw):
            return float(raw)
        self.wrong_type(attribute, raw, origin)
        return None

    def _of_type(self, attribute: Attribute, raw: Any, origin: Origin, wanted: type) -> Any:
        if type(raw) is wanted:
            return raw
        self.wrong_type(attribute, raw, origin)
        return None

    def read_key(
        self, key: str, attribute: Attribute, asked: Attribute, origin: Origin, *, of_key: bool = True
    ) -> Label | None:
        """The label in a key of the attribute's values, or in a text of them. Its target must satisfy `asked`."""
        label = self._label(asked, key, origin, of_key=True)
        if label is not None:
            asked = dataclasses.replace(asked, name=attribute.name)
            self.references.append(Reference(label, asked, origin, self.owner, self.package, is_key=of_key))
        return label

    def _label(
        self, attribute: Attribute, raw: Any, origin: Origin, wanted: str = "", *, of_key: bool = False
    ) -> Label | None:
        if type(raw) is not str:
            self.wrong_type(attribute, raw, origin, wanted=wanted)
            return None
        try:
            label = read_label(raw, self.package)
        except LabelError as error:
            self.errors.add(
                f'bad label {quoted(raw)} for "{attribute.name}" in {self.owner}: {error.message}',
                origin,
                *error.advice,
                of_key=of_key,
            )
            return None
        if not of_key:
            is_bare = not raw.startswith((":", "//", "@"))
            self.references.append(Reference(label, attribute, origin, self.owner, self.package, is_bare=is_bare))
        return label

    def _labels(self, attribute: Attribute, raw: Any, origin: Origin) -> tuple[Label, ...] | None:
        if type(raw) is not list:
            self.wrong_type(attribute, raw, origin)
            return None
        labels = [self._label(attribute, item, origin.at(i), "contain labels") for i, item in enumerate(raw)]
        read = dict.fromkeys(label for label in labels if label is not None)
        if len(read) < len(labels) and None not in labels:
            index = next(i for i, label in enumerate(labels) if label in labels[:i])
            self.errors.add(f'{labels[index]} appears twice in "{attribute.name}" in {self.owner}', origin.at(index))
            return None
        return tuple(read) if len(read) == len(labels) else None

    def _strings(self, attribute: Attribute, raw: Any, origin: Origin) -> tuple[str, ...] | None:
        if type(raw) is not list:
            self.wrong_type(attribute, raw, origin)
            return None
        right = True
        for index, item in enumerate(raw):
            if type(item) is not str:
                self.wrong_type(attribute, item, origin.at(index), wanted="contain strings")
                right = False
            elif attribute.allowed and item not in attribute.allowed:
                self.unknown(attribute.name, item, attribute.allowed, origin.at(index))
                right = False
        return tuple(raw) if right else None

    def _string_map(self, attribute: Attribute, raw: Any, origin: Origin) -> Mapping[str, str] | None:
        if type(raw) is not dict:
            self.wrong_type(attribute, raw, origin)
            return None
        wrong = [key for key, value in raw.items() if type(value) is not str]
        for key in wrong:
            self.wrong_type(attribute, raw[key], origin.at(key), wanted=f'have a string for "{key}"')
        return None if wrong else dict(raw)

    def _table(self, attribute: Attribute, raw: Any, origin: Origin) -> Mapping[str, Any] | None:
        if type(raw) is not dict:
            self.wrong_type(attribute, raw, origin)
            return None
        if attribute.fields:
            return self._fields(attribute, raw, origin)
        return dict(raw) if self._is_json(attribute, raw, origin) else None

    def _fields(self, attribute: Attribute, raw: dict[str, Any], origin: Origin) -> Mapping[str, Any] | None:
        """The values of a table with declared keys, without defaults."""
        known = {member.name: member for member in attribute.fields}
        inner = ValueReader(
            owner=f'"{attribute.name}" of {self.owner}',
            package=self.package,
            errors=self.errors,
            references=self.references,
            paths=self.paths,
        )
        values: dict[str, Any] = {}
        for name, item in raw.items():
            if name in known:
                values[name] = inner.read(known[name], item, origin.at(name))
            else:
                message = f'unknown key "{name}" in {inner.owner}'
                self.errors.add(message, origin.at(name), known_values(name, known), of_key=True)
                values[name] = None
        for name, member in known.items():
            if member.mandatory and name not in raw:
                self.errors.add(f'{inner.owner} lacks "{name}"', origin, f"{name}: {member.doc}")
                values[name] = None
        return None if None in values.values() else values

    def _measure(self, attribute: Attribute, raw: Any, origin: Origin) -> float | None:
        is_size = attribute.kind is AttributeKind.SIZE
        if type(raw) is not str:
            self.wrong_type(attribute, raw, origin)
            return None
        value = parse_size(raw) if is_size else parse_duration(raw)
        if not value:
            what, advice = ("size", SIZE_ADVICE) if is_size else ("duration", DURATION_ADVICE)
            self.errors.add(f'"{attribute.name}" in {self.owner} is not a {what}: "{raw}"', origin, advice)
            return None
        return value

    def _is_json(self, attribute: Attribute, raw: Any, origin: Origin) -> bool:
        """Whether JSON can represent the value. It has no dates, infinities or not-a-number."""
        if isinstance(raw, dict):
            members = [self._is_json(attribute, value, origin.at(key)) for key, value in raw.items()]
            return all(members)
        if isinstance(raw, list):
            members = [self._is_json(attribute, item, origin.at(i)) for i, item in enumerate(raw)]
            return all(members)
        if isinstance(raw, (str, bool, int)) or (isinstance(raw, float) and math.isfinite(raw)):
            return True
        self.wrong_type(attribute, raw, origin, wanted="contain only what JSON can represent")
        return False

    def _path(self, attribute: Attribute, raw: Any, origin: Origin) -> str | None:
        if type(raw) is not str:
            self.wrong_type(attribute, raw, origin)
            return None
        if raw.startswith("/") or "\\" in raw or any(part in ("", ".", "..") for part in raw.split("/")):
            self.errors.add(
                f'bad path "{raw}" for "{attribute.name}" in {self.owner}',
                origin,
                "write a path below the package's folder, relative to it, with / and without . and ..",
            )
            return None
        path = f"{self.package}/{raw}" if self.package else raw
        self.paths.append((path, attribute, origin))
        return path


def read_table(
    raw: Any, attributes: Sequence[Attribute], origin: Origin, reader: ValueReader
) -> dict[str, AttributeValue]:
    """The values of a table of settings, with defaults."""
    known = {attribute.name: attribute for attribute in attributes}
    values = {name: found.default for name, found in known.items() if found.default is not None}
    if type(raw) is not dict:
        reader.errors.add(f"{reader.owner} must be a table, not {describe(raw)}", origin)
        return values
    for name, value in raw.items():
        attribute = known.get(name)
        if attribute is None:
            reader.errors.add(
                f'unknown setting "{name}" in {reader.owner}', origin.at(name), known_values(name, known), of_key=True
            )
        elif (read_value := reader.read(attribute, value, origin.at(name))) is not None:
            values[name] = read_value
    for name, attribute in known.items():
        if attribute.mandatory and name not in raw:
            reader.errors.add(f'{reader.owner} lacks "{name}"', origin, f"{name}: {attribute.doc}")
    return values


_WANTED = {
    AttributeKind.STRING: "a string",
    AttributeKind.CHOICE: "a string",
    AttributeKind.INTEGER: "an integer",
    AttributeKind.NUMBER: "a number",
    AttributeKind.BOOLEAN: "true or false",
    AttributeKind.STRING_LIST: "a list of strings",
    AttributeKind.LABEL: "a label",
    AttributeKind.LABEL_LIST: "a list of labels",
    AttributeKind.STRING_MAP: "a table of strings",
    AttributeKind.TABLE: "a table",
    AttributeKind.PATH: "a path",
    AttributeKind.SIZE: "a size such as 4GiB",
    AttributeKind.DURATION: "a duration such as 10m",
}


def describe(raw: Any) -> str:
    """A TOML value as messages say it."""
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, int):
        return f"the integer {raw}"
    if isinstance(raw, float):
        return f"the float {raw}"
    if isinstance(raw, str):
        return f'the string "{raw}"'
    if isinstance(raw, list):
        return "a list"
    if isinstance(raw, dict):
        return "a table"
    if isinstance(raw, (datetime.date, datetime.time)):
        return "a date or time"
    raise TypeError(f"not a TOML value: {raw!r}")
