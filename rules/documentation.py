"""The reference of rules, `docs/rules.md`, made from their schemas: `python -m mlcbuild.rules.documentation`."""

from __future__ import annotations

from collections.abc import Iterable

from mlcbuild.rules.registry import BUILT_IN, load_rules
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.schema import COMMON_ATTRIBUTES, Attribute, RuleSchema

_HEAD = """\
<!-- help: rules: every rule and attribute -->
# Rules

Made from the rules' own declarations by `python -m mlcbuild.rules.documentation`.
A label may name a target of another package, `//package:name`, or of this one, `:name`; where the type says so, also
a file or folder of the workspace. Values that depend on the platform or configuration are explained in
[workspace.md](workspace.md).
"""


def reference(schemas: Iterable[RuleSchema]) -> str:
    """The whole page, in Markdown."""
    parts = [_HEAD]
    for schema in schemas:
        parts.append(f"## {schema.name}\n\n{schema.doc}\n\n{_table(schema.attributes)}")
    parts.append(f"## Attributes that every rule has\n\n{_table(COMMON_ATTRIBUTES)}")
    return "\n".join(parts)


def _table(attributes: Iterable[Attribute]) -> str:
    rows = ["| attribute | type | default | meaning |", "|---|---|---|---|"]
    for attribute in attributes:
        rows.append(_row(attribute.name, attribute))
        rows += [_row(f"{attribute.name}.{member.name}", member) for member in attribute.fields]
    return "\n".join(rows) + "\n"


def _row(name: str, attribute: Attribute) -> str:
    kind = attribute.kind.value
    if attribute.is_label and attribute.allow_files:
        kind = "targets or files" if kind.startswith("list") else "target or file"
    if attribute.range_text:
        kind += f", {attribute.range_text}"
    meaning = attribute.doc.replace("|", "\\|")
    if attribute.allowed:
        meaning += f" One of: {', '.join(attribute.allowed)}."
    return f"| `{name}` | {kind} | {_default(attribute)} | {meaning} |"


def _default(attribute: Attribute) -> str:
    if attribute.mandatory:
        return "*mandatory*"
    value = attribute.value_if_absent
    if value is None or value == () or value == {}:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"`{value}`" if isinstance(value, str | int | float | Label) else f"`{', '.join(map(str, value))}`"


if __name__ == "__main__":
    from pathlib import Path

    built_in = load_rules(Path(), ())
    print(reference(rule.schema for rule in built_in.values()), end="")
    assert len(built_in) == len(BUILT_IN)
