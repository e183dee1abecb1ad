"""Targets: the checked and typed content of a `[[rule]]` table in a `BUILD.toml`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from mlcbuild.errors import Location
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import COMPATIBLE_WITH, Attribute, AttributeValue, JsonValue, RuleSchema
from mlcbuild.workspace.toml import Origin


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """One target, with its values for the selected configuration and its platform.

    `values` has the values that are set, by attribute. The access methods add the schema's defaults. Each method is for
    attributes of one kind, and raises KeyError for a name that is not in the schema or has no value.
    """

    label: Label
    schema: RuleSchema
    values: Mapping[str, AttributeValue]
    origin: Origin = field(repr=False)
    elsewhere: Mapping[str, Origin] = field(default_factory=dict, repr=False)  # of values not under their own names
    tags: tuple[str, ...] = ()
    visibility: tuple[str, ...] | None = None  # patterns; None: visible to all
    cell: Mapping[str, AttributeValue] = field(default_factory=dict)  # the value of each axis, and what `include` adds
    axes: tuple[str, ...] = ()  # the axes of its matrix; () if no matrix made it
    cell_number: int = 0  # its place among the cells of its matrix, from 0 on
    platform: Label | None = None  # its own, the configuration's, or the workspace's
    compatible_with: tuple[Label | str, ...] = ()  # platforms, and kinds of platforms; (): all

    @property
    def rule(self) -> str:
        """The rule's name."""
        return self.schema.name

    @property
    def location(self) -> Location:
        """Where the target's table begins."""
        return self.origin.location

    def location_of(self, attribute: str) -> Location:
        """Where the attribute's value is written. Without a value, where the target's table begins."""
        origin = self.origin_of(attribute)
        return origin.location if origin else self.location

    def origin_of(self, attribute: str) -> Origin | None:
        """Where the attribute's value is written; None without a value. Nearly all are in the target's own table,
        under their names, so that this need not be kept of each."""
        found = self.elsewhere.get(attribute)
        if found is None and (attribute in self.values or attribute == "name" or self._limits_platforms(attribute)):
            return self.origin.at(attribute)
        return found

    def _limits_platforms(self, attribute: str) -> bool:
        return attribute == COMPATIBLE_WITH and bool(self.compatible_with)

    def get(self, attribute: str) -> AttributeValue | None:
        """The value of any attribute, or its default, or None. Raises KeyError for an unknown name."""
        value = self.values.get(attribute)
        return self._declared(attribute).value_if_absent if value is None else value

    def declares(self, attribute: str) -> bool:
        """Whether targets of the rule have an attribute of a name."""
        return any(one.name == attribute for one in self.schema.attributes)

    def has(self, attribute: str) -> bool:
        """Whether the target or its configuration sets a value. Raises KeyError for an unknown name."""
        return self._declared(attribute).name in self.values

    def string(self, attribute: str) -> str:
        """The value of a STRING or CHOICE."""
        return cast(str, self._present(attribute))

    def optional_string(self, attribute: str) -> str | None:
        return cast("str | None", self.get(attribute))

    def path(self, attribute: str) -> str:
        """The value of a PATH: relative to the workspace root, with `/`."""
        return cast(str, self._present(attribute))

    def optional_path(self, attribute: str) -> str | None:
        return cast("str | None", self.get(attribute))

    def integer(self, attribute: str) -> int:
        return cast(int, self._present(attribute))

    def optional_integer(self, attribute: str) -> int | None:
        return cast("int | None", self.get(attribute))

    def number(self, attribute: str) -> float:
        return cast(float, self._present(attribute))

    def boolean(self, attribute: str) -> bool:
        return cast(bool, self._present(attribute))

    def strings(self, attribute: str) -> tuple[str, ...]:
        """The value of a STRING_LIST."""
        return cast("tuple[str, ...]", self._present(attribute))

    def label_of(self, attribute: str) -> Label:
        """The value of a LABEL."""
        return cast(Label, self._present(attribute))

    def optional_label(self, attribute: str) -> Label | None:
        return cast("Label | None", self.get(attribute))

    def labels(self, attribute: str) -> tuple[Label, ...]:
        """The value of a LABEL_LIST."""
        return cast("tuple[Label, ...]", self._present(attribute))

    def string_map(self, attribute: str) -> Mapping[str, str]:
        return cast("Mapping[str, str]", self._present(attribute))

    def table(self, attribute: str) -> Mapping[str, JsonValue]:
        return cast("Mapping[str, JsonValue]", self._present(attribute))

    @functools.cached_property
    def referenced_labels(self) -> tuple[Label, ...]:
        """Every label in its attributes, in the schema's order, each once: targets and files."""
        found: dict[Label, None] = {}
        for attribute in self.schema.label_attributes:
            value = self.values.get(attribute.name)
            if value is None:
                value = attribute.value_if_absent
            if isinstance(value, Label):
                found[value] = None
            elif value:
                found.update(dict.fromkeys(cast("tuple[Label, ...]", value)))
        return tuple(found)

    def _declared(self, attribute: str) -> Attribute:
        try:
            return self.schema.by_name[attribute]
        except KeyError:
            known = ", ".join(self.schema.by_name) or "none"
            raise KeyError(f"{self.rule} declares no attribute {attribute}: it has {known}") from None

    def _present(self, attribute: str) -> AttributeValue:
        value = self.get(attribute)
        if value is None:
            raise KeyError(f"{self.label} has no value for {attribute!r}")
        return value
