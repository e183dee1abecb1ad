"""Kinds of targets are found, and their attributes become those of `platform`."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlcbuild.rules.backend import Backend, PlatformInfo, backends
from mlcbuild.rules.host import HOST_ATTRIBUTES, host_target
from mlcbuild.rules.platform import PLATFORM, attributes_of
from mlcbuild.rules.rule import RuleContext
from mlcbuild.workspace.schema import Attribute, AttributeKind

RULES = Path(__file__).parents[2] / "rules"
COMPILER = Path(__file__).parents[2] / "mlcbuild/compiler"
SHARED = Attribute(name="shared", kind=AttributeKind.STRING, doc="One.")
OWN = Attribute(name="own", kind=AttributeKind.INTEGER, doc="Another.")


def platform(context: RuleContext) -> PlatformInfo:
    return PlatformInfo(kind="one", target=host_target(context))


def backend(kind: str, *attributes: Attribute) -> Backend:
    return Backend(kind=kind, doc="A kind.", attributes=attributes, platform=platform)


def test_kinds_are_the_files_of_a_folder_and_have_two_halves() -> None:
    kinds = sorted(path.stem for path in (RULES / "backends").glob("*.py") if path.stem != "__init__")
    assert list(backends()) == kinds == sorted(PLATFORM.schema.by_name["kind"].allowed)
    for kind in kinds:
        assert {"schedule.py", "link.py"} <= {path.name for path in (COMPILER / "backends" / kind).iterdir()}


def test_an_attribute_of_several_kinds_is_there_once_and_one_of_some_kinds_says_so() -> None:
    merged = attributes_of([backend("one", SHARED), backend("two", SHARED, OWN)])
    assert [attribute.name for attribute in merged] == ["shared", "own"]
    assert [attribute.doc for attribute in merged] == ["One.", "Another. For kind two alone."]
    third = backend("three", *HOST_ATTRIBUTES)
    assert attributes_of([backend("one", SHARED), backend("two", SHARED, OWN), third])[0].doc == (
        "One. For kind one or two alone."
    )


def test_one_name_for_two_attributes_is_refused() -> None:
    other = Attribute(name="shared", kind=AttributeKind.INTEGER, doc="One.")
    with pytest.raises(ValueError, match="the backends one and two have different attributes 'shared'"):
        attributes_of([backend("one", SHARED), backend("two", other)])


def test_a_kind_without_its_other_half_is_told_by_the_files_that_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlcbuild.rules.backend._MANDATORY", ("__init__", "schedule", "assemble"))
    with pytest.raises(ValueError, match=r"the backend cpu has no assemble\.py in mlcbuild/compiler/backends/cpu"):
        backends.__wrapped__()
