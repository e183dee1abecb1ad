"""What differs between two keys is found component by component, down to functions and to places in parameters."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlcbuild.cache.digest import DigestFunction
from mlcbuild.engine.action import Action, Input, SourceArtifact, StageCall
from mlcbuild.engine.code_listing import WHOLE_MODULE, CodeListing, code_changes
from mlcbuild.engine.executor import FileEntry
from mlcbuild.engine.key_difference import KeyContent, differences
from mlcbuild.engine.keys import KeySource
from mlcbuild.engine.normal_form import read_module

BLAKE3 = DigestFunction.BLAKE3
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=8,
)


def content(parameters: dict[str, Any], data: bytes = b"1", code: CodeListing | None = None) -> KeyContent:
    action = Action(
        identifier="//:a Stage",
        mnemonic="Stage",
        owner="//:a",
        inputs=(Input(path="in/x", artifact=SourceArtifact(path="x")),),
        outputs=("out/y",),
        command=StageCall(function="m:run", parameters=tuple(sorted(parameters.items()))),
        toolchains=("tvm",),
    )
    source = KeySource(
        action=action,
        inputs=(FileEntry(path="in/x", digest=BLAKE3.of_bytes(data)),),
        toolchains=(("tvm", "ab"),),
        implementation=code.digest if code else "ef",
        function=BLAKE3,
    )
    return KeyContent.of_source(source, code)


def value_at(document: Any, path: str) -> Any:
    for part in path.replace("[", ".[").split(".")[1:]:
        document = document[int(part[1:-1])] if part.startswith("[") else document[part]
    return document


@given(json_values, json_values)
def test_values_at_the_places_that_are_told_differ_and_no_others(before: Any, now: Any) -> None:
    found = differences(content({"p": before}), content({"p": now}))
    assert bool(found) == (json.dumps(before, sort_keys=True) != json.dumps(now, sort_keys=True))
    for place, old, new in (each for difference in found for each in difference.inside):
        assert old != new
        for document, text in ((before, old), (now, new)):
            if text is not None:
                assert json.dumps(value_at(document, place), sort_keys=True, separators=(",", ":")) == text


def test_inputs_that_are_not_known_are_not_compared() -> None:
    before, now = content({}, b"1"), content({}, b"2")
    assert [each.name for each in differences(before, now)] == ["in/x"]
    assert differences(before, now, with_inputs=False) == ()


SOURCE = """\
import a
LIMIT = 3

@cache
def first(x):
    return x + 1

class Shape:
    size = 1

    def area(self):
        return 1

    def name(self):
        return "shape"

if LIMIT:
    first(2)
"""


def listing(source: str) -> CodeListing:
    form = read_module(source.encode(), name="m", is_package=False)
    return CodeListing(
        digest=form.digest, modules={"m": {WHOLE_MODULE: form.digest, **dict(form.definitions)}}, parts={}
    )


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ("return x + 1", "return x + 2", [("first", "changed")]),
        ("@cache", "@other", [("first", "changed")]),
        ("return 1", "return 2", [("Shape.area", "changed")]),
        ("size = 1", "size = 2", [("Shape", "changed")]),
        ("def name(", "def title(", [("Shape.name", "gone"), ("Shape.title", "new")]),
        ("LIMIT = 3", "LIMIT = 4", [("LIMIT", "changed")]),
        ("first(2)", "first(3)", [("", "changed")]),
        ("import a", "import b", [("", "changed")]),
        ("LIMIT = 3\n", "LIMIT = 3  # three\n", []),
        ("import a\nLIMIT = 3\n", "LIMIT = 3\nimport a\n", [(WHOLE_MODULE, "changed")]),
        ("return x + 1", "return x + 2\n\ndef second(): pass", [("first", "changed"), ("second", "new")]),
    ],
)
def test_exactly_the_definitions_that_changed_are_named(old: str, new: str, changes: list[tuple[str, str]]) -> None:
    assert old in SOURCE
    found = code_changes(listing(SOURCE), listing(SOURCE.replace(old, new)))
    assert [(each.name, each.kind) for each in found] == changes


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)))
def test_modules_with_other_digests_always_have_a_difference(order: list[int], edited: set[int]) -> None:
    def source(numbers: list[int], changed: set[int]) -> str:
        return "\n".join(f"def f{number}():\n    return {number in changed}" for number in numbers)

    before, now = listing(source(list(range(6)), set())), listing(source(order, edited))
    found = code_changes(before, now)
    assert bool(found) == (before.digest != now.digest)
    if edited:
        assert {each.name for each in found} == {f"f{number}" for number in edited}


def test_modules_and_distributions_that_come_and_go_are_told() -> None:
    before = CodeListing(digest="1", modules={"a": {"f": "1"}}, parts={"distribution numpy": "1", "python ": "3.11"})
    now = CodeListing(digest="2", modules={"b": {"f": "1"}}, parts={"distribution numpy": "2", "python ": "3.11"})
    assert [str(each) for each in code_changes(before, now)] == [
        "module a gone",
        "module b new",
        "distribution numpy changed",
    ]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":2,"modules":{},"parts":{}}'])
def test_bytes_that_are_no_listing_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CodeListing.decode(data)


def test_a_listing_is_read_as_it_was_written() -> None:
    written = listing(SOURCE)
    assert CodeListing.decode(written.encode()) == written
