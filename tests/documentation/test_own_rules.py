"""The page of own rules names each kind of attribute, and the methods that read it."""

from __future__ import annotations

import re

from mlcbuild.workspace.schema import AttributeKind
from mlcbuild.workspace.target import Target
from tests.documentation.pages import PROJECT

PAGE = PROJECT / "docs/own-rules.md"


def test_each_kind_of_attribute_is_in_the_table_with_methods_that_there_are() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|.*\| ([^|]*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {kind for kind, _ in rows} == {kind.name for kind in AttributeKind}
    assert len(rows) == len(AttributeKind)
    readers = {name for _, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert {name for name in readers if not callable(getattr(Target, name, None))} == set()
    readable = {name for name in vars(Target) if name.startswith("optional_")}
    assert readable <= readers, "a method that the page does not name"
