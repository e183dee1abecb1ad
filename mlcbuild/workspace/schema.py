"""What a rule declares: typed and documented attributes, and what its targets provide.

The workspace knows rules only by their schemas. Rules get targets that are checked against the schema.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlcbuild.workspace.label import Label

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
AttributeValue = bool | int | float | str | Label | tuple[str, ...] | tuple[Label, ...] | Mapping[str, JsonValue]

PLATFORM = "platform"
"""The attribute with the platform of a target, and the provider of the targets that it may name.

Without the attribute the configuration's `platform` is used, and then the workspace's `default_platform`. It selects
the values that depend on the platform.
"""

PLATFORM_KIND = "kind"
"""The attribute of platforms that says their kind."""

COMPATIBLE_WITH = "compatible_with"
"""The attribute with the platforms, or kinds of platforms, that a target can be built for."""

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]*")


class AttributeKind(enum.Enum):
    """The type of an attribute. The enum's value is its name in messages."""

    STRING = "string"  # str
    INTEGER = "integer"  # int
    NUMBER = "number"  # float, written with or without a point
    BOOLEAN = "boolean"  # bool
    STRING_LIST = "list of strings"  # tuple[str, ...]
    LABEL = "label"  # Label
    LABEL_LIST = "list of labels"  # tuple[Label, ...]
    STRING_MAP = "table of strings"  # Mapping[str, str]
    TABLE = "table"  # Mapping[str, JsonValue]
    CHOICE = "choice"  # str, one of `allowed`
    SIZE = "size"  # int, bytes: written 4GiB
    DURATION = "duration"  # float, seconds: written 10m
    PATH = "path"  # str: written relative to the package, stored relative to the workspace root, with "/"


_EMPTY: dict[AttributeKind, AttributeValue] = {
    AttributeKind.BOOLEAN: False,
    AttributeKind.STRING_LIST: (),
    AttributeKind.LABEL_LIST: (),
    AttributeKind.STRING_MAP: {},
    AttributeKind.TABLE: {},
}


@dataclass(frozen=True, kw_only=True)
class Attribute:
    """One attribute of a rule. Raises ValueError for a contradictory declaration.

    `default` is the value if a target sets none. Without a `default`, a boolean is false, a list or table is empty, and
    an attribute of any other kind has no value (see `Target.optional_string` and similar methods).
    """

    name: str
    kind: AttributeKind
    doc: str
    mandatory: bool = False
    default: AttributeValue | None = None
    allowed: tuple[str, ...] = ()  # the known values of a CHOICE, or of each item of a STRING_LIST
    meant: tuple[tuple[str, str], ...] = ()  # words that a CHOICE has not → what is said to who writes them
    by_pattern: bool = False  # a CHOICE may be a table of such values by patterns of names, with the key "default"
    file_suffix: str = ""  # a CHOICE with this ending is a PATH instead; "": none is
    provides: tuple[str, ...] = ()  # a label's target must provide one of these (`RuleSchema.provides`); empty: any
    rules: tuple[str, ...] = ()  # … or have one of these rules; both empty: any target
    allow_files: bool = False  # a label may name a file or folder if no target has that name
    placeholders: tuple[str, ...] = ()  # words in braces that the rule replaces itself; a matrix ignores them
    nonempty: bool = False  # whether an empty string, list or table is an error
    minimum: float | None = None  # the least value of an INTEGER or a NUMBER
    maximum: float | None = None  # the greatest value of an INTEGER or a NUMBER
    fields: tuple[Attribute, ...] = ()  # the keys that a TABLE may have; empty: any keys
    # Derived; fields because they are asked for with every value that is read.
    is_label: bool = field(init=False, repr=False, compare=False)
    is_table: bool = field(init=False, repr=False, compare=False)  # so values by platform are under `select`

    def __post_init__(self) -> None:
        kinds = AttributeKind
        object.__setattr__(self, "is_label", self.kind in (kinds.LABEL, kinds.LABEL_LIST))
        object.__setattr__(self, "is_table", self.kind in (kinds.STRING_MAP, kinds.TABLE))
        if self.nonempty and self.kind in (kinds.INTEGER, kinds.NUMBER, kinds.BOOLEAN, kinds.LABEL):
            raise ValueError(f"attribute {self.name!r}: a {self.kind.value} is never empty")
        if not _IDENTIFIER.fullmatch(self.name):
            raise ValueError(f"not an attribute name (lower-case letters, digits, _): {self.name!r}")
        if not self.doc.strip():
            raise ValueError(f"attribute {self.name!r} is not documented")
        if self.kind is AttributeKind.CHOICE and not self.allowed:
            raise ValueError(f"attribute {self.name!r} is a choice of nothing: `allowed` is empty")
        if self.allowed and self.kind not in (AttributeKind.CHOICE, AttributeKind.STRING_LIST):
            raise ValueError(f"attribute {self.name!r}: `allowed` is for choices and lists of strings")
        if self.meant and (self.kind is not kinds.CHOICE or set(dict(self.meant)).intersection(self.allowed)):
            raise ValueError(f"attribute {self.name!r}: `meant` is for words that a choice does not have")
        if (self.by_pattern or self.file_suffix) and self.kind is not AttributeKind.CHOICE:
            raise ValueError(f"attribute {self.name!r}: `by_pattern` and `file_suffix` are for choices")
        if (self.provides or self.rules or self.allow_files) and not self.is_label:
            raise ValueError(f"attribute {self.name!r}: `provides`, `rules` and `allow_files` are for labels")
        limits = [limit for limit in (self.minimum, self.maximum) if limit is not None]
        if limits and self.kind not in (kinds.INTEGER, kinds.NUMBER):
            raise ValueError(f"attribute {self.name!r}: a minimum and a maximum are for numbers")
        if limits != sorted(limits):
            raise ValueError(f"attribute {self.name!r}: the minimum {limits[0]:g} is above the maximum {limits[1]:g}")
        if self.fields and self.kind is not kinds.TABLE:
            raise ValueError(f"attribute {self.name!r}: `fields` are for tables")
        if any(member.is_label for member in self.fields):
            raise ValueError(f"attribute {self.name!r}: a label must be an attribute, not a field of a table")
        names = [member.name for member in self.fields]
        if len(set(names)) != len(names):
            raise ValueError(f"attribute {self.name!r} declares a field twice: {', '.join(names)}")
        if self.mandatory and self.default is not None:
            raise ValueError(f"attribute {self.name!r} is mandatory and has the default {self.default!r}")
        if self.kind is AttributeKind.CHOICE and self.default is not None and self.default not in self.allowed:
            raise ValueError(f"attribute {self.name!r}: the default {self.default!r} is not among {self.allowed!r}")

    @property
    def range_text(self) -> str:
        """The permitted numbers as messages and documentation show them: "from 1 to 8", "at least 1", "at most 8"."""
        if self.minimum is not None and self.maximum is not None:
            if self.minimum == self.maximum:
                return f"{self.minimum:.15g}"
            return f"from {self.minimum:.15g} to {self.maximum:.15g}"
        if self.minimum is not None:
            return f"at least {self.minimum:.15g}"
        return f"at most {self.maximum:.15g}" if self.maximum is not None else ""

    def allows_number(self, value: float) -> bool:
        """Whether a number is within the declared range."""
        return (self.minimum is None or value >= self.minimum) and (self.maximum is None or value <= self.maximum)

    @property
    def value_if_absent(self) -> AttributeValue | None:
        return _EMPTY.get(self.kind) if self.default is None else self.default


COMMON_ATTRIBUTES: tuple[Attribute, ...] = (
    Attribute(
        name="name",
        kind=AttributeKind.STRING,
        mandatory=True,
        doc="The target's name, unique in its package; with a matrix a template such as {model}-{platform}.",
    ),
    Attribute(
        name="tags",
        kind=AttributeKind.STRING_LIST,
        doc='Words to find the target by. "manual" leaves it out of patterns such as //models/... and :all.',
    ),
    Attribute(
        name="visibility",
        kind=AttributeKind.STRING_LIST,
        doc="Patterns of the targets that may depend on this one, besides those of its own package. "
        "Left out: everybody; an empty list: nobody else.",
    ),
    Attribute(
        name="matrix",
        kind=AttributeKind.TABLE,
        doc="One target for each combination of these lists of values, 10,000 at most. An axis named like an "
        "attribute sets it; {axis} in any string stands for the value (for a label: its name).",
    ),
    Attribute(
        name="exclude",
        kind=AttributeKind.TABLE,
        doc="The combinations of the matrix to leave out: tables with the values of one or more axes.",
    ),
    Attribute(
        name="include",
        kind=AttributeKind.TABLE,
        doc="Further cells of the matrix, each with a value for every axis, and further values for cells: tables with "
        "values of axes, which choose the cells, and of other attributes, which these cells get.",
    ),
    Attribute(
        name=COMPATIBLE_WITH,
        kind=AttributeKind.STRING_LIST,
        nonempty=True,
        doc="The platforms that the target can be built for: their labels, or kinds such as cuda. Patterns such as "
        "//models/... leave it out for others. Left out: all that the rule allows.",
    ),
    Attribute(
        name="select",
        kind=AttributeKind.TABLE,
        doc="Values that depend on the platform or the configuration, by attribute: the way for attributes "
        "that are tables themselves, as in select.overrides.",
    ),
)
"""The attributes that every rule has. The loader handles them."""

_COMMON_NAMES = frozenset(attribute.name for attribute in COMMON_ATTRIBUTES)


@dataclass(frozen=True, kw_only=True)
class RuleSchema:
    """A rule as the workspace sees it. Raises ValueError for a contradictory declaration.

    Documentation and dependencies follow the order of `attributes`. `provides` are names that label attributes of other
    rules may require.
    """

    name: str
    doc: str
    attributes: tuple[Attribute, ...] = ()
    provides: tuple[str, ...] = ()
    by_name: Mapping[str, Attribute] = field(init=False, repr=False, compare=False)
    label_attributes: tuple[Attribute, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _IDENTIFIER.fullmatch(self.name):
            raise ValueError(f"not a rule name (lower-case letters, digits, _): {self.name!r}")
        if self.name in ("workspace", "configuration", "remote", "execution"):
            raise ValueError(f"{self.name!r} is a table of its own in BUILD.toml and cannot be a rule")
        if not self.doc.strip():
            raise ValueError(f"rule {self.name!r} is not documented")
        by_name: dict[str, Attribute] = {}
        for attribute in self.attributes:
            if attribute.name in by_name:
                raise ValueError(f"rule {self.name!r} declares attribute {attribute.name!r} twice")
            if attribute.name in _COMMON_NAMES:
                raise ValueError(f"rule {self.name!r} declares {attribute.name!r}, which every rule has")
            by_name[attribute.name] = attribute
        object.__setattr__(self, "by_name", by_name)
        object.__setattr__(self, "label_attributes", tuple(found for found in self.attributes if found.is_label))
