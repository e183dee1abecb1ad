"""An attribute that the command line sets for one build: `--set //pkg:name.attribute=value`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import toml_rs

from mlcbuild.errors import Location, WorkspaceError
from mlcbuild.workspace.label import Label, parse_label, quoted
from mlcbuild.workspace.schema import Attribute, AttributeKind
from mlcbuild.workspace.toml import Key, Origin, TomlFile

_FORM = "it must be --set LABEL.ATTRIBUTE=VALUE, as in --set //models:llama.quantization=q4f16_1"
_TEXTS = (AttributeKind.STRING, AttributeKind.LABEL, AttributeKind.CHOICE, AttributeKind.PATH)


class _Option(TomlFile):
    """Stands for the file that a value comes from: every place in it is the option."""

    def location(self, keys: tuple[Key, ...], *, of_key: bool = False) -> Location:  # noqa: ARG002  as in the base class
        return Location(path=self.path)


@dataclass(frozen=True, kw_only=True)
class AttributeOverride:
    """One `--set`. `text` is the value as given."""

    label: Label
    attribute: str
    text: str
    origin: Origin

    def raw(self, attribute: Attribute) -> Any:
        """The value as a `BUILD.toml` would have it: TOML, or a text without quotes."""
        try:
            value = toml_rs.loads(f"value = {self.text}")["value"]
        except (toml_rs.TOMLDecodeError, KeyError):
            return self.text
        if attribute.by_pattern and type(value) is dict:
            return value
        return self.text if attribute.kind in _TEXTS and type(value) is not str else value


def parse_override(text: str, current_package: str) -> AttributeOverride:
    """Read the argument of `--set`. Raises WorkspaceError if it has another form, or its label is none."""
    named, equals, value = text.partition("=")
    label, dot, attribute = named.rpartition(".")
    if not (equals and dot and label and attribute and value):
        raise WorkspaceError(f"--set {quoted(text)} cannot be read", advice=(_FORM,))
    place = f"--set {text}"
    return AttributeOverride(
        label=parse_label(label, package=current_package, location=Location(path=place)),
        attribute=attribute,
        text=value,
        origin=Origin(_Option(path=place, text=""), ()),
    )
