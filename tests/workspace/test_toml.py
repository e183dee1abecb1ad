"""Places in TOML: every key and value is found where the text holds it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlcbuild.errors import WorkspaceError
from mlcbuild.workspace.toml import Origin, parse, read
from mlcbuild.workspace.toml_depth import DEEPEST, too_deep_at

keys = st.text("ab-_é \u65e5.\U0001f600", min_size=1, max_size=5)
values = st.one_of(st.integers(0, 99), st.text("xyé\U0001f600", max_size=4), st.booleans())


def quoted(text: str) -> str:
    return '"' + text + '"'


def shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else str(value).lower()


@given(st.lists(st.dictionaries(keys, st.lists(values, min_size=1, max_size=3), min_size=1), min_size=1, max_size=4))
def test_places_point_at_what_stands_there(tables: list[dict[str, list[object]]]) -> None:
    lines = []
    for table in tables:
        lines.append("[[thing]]  # é")
        lines += [f"{quoted(key)} = [{', '.join(map(shown, items))}]" for key, items in table.items()]
    file = parse("\n".join(lines), "BUILD.toml")
    for index, table in enumerate(tables):
        origin = Origin(file, ("thing", index))
        header = origin.location
        assert lines[header.line - 1].startswith("[[thing]]")
        assert header.column == 1
        for key, items in table.items():
            place = origin.at(key).key_location
            assert lines[place.line - 1][place.column - 1 :].startswith(quoted(key))
            for position, item in enumerate(items):
                place = origin.at(key, position).location
                assert lines[place.line - 1][place.column - 1 :].startswith(shown(item))


def test_keys_named_like_the_parsers_own_words_are_found() -> None:
    file = parse('[[m]]\nvalue_raw = { key_raw = { value = 1 } }\n[m.value]\nkey = "x"\n', "B")
    assert str(file.location(("m", 0, "value_raw", "key_raw", "value"))) == "B:2:35"
    assert str(file.location(("m", 0, "value", "key"))) == "B:4:7"


def test_table_with_a_header_alone_is_placed_at_the_header() -> None:
    file = parse(
        """\
[a."b.c"]  # first

x = 1
  [d]
[[m]]
[m.n]
""",
        "B",
    )
    assert str(file.location(("a",))) == "B:1:1"
    assert str(file.location(("a", "b.c"))) == "B:1:1"
    assert str(file.location(("d",))) == "B:4:3"
    assert str(file.location(("m", 0))) == "B:5:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a =", "B:1:4: not valid TOML: string values must be quoted, expected literal string"),
        ("\n[x\n", "B:2:3: not valid TOML: unclosed table, expected `]`"),
        ("a = 1\na = 2\n", "B:2:1: not valid TOML: duplicate key"),
        ('name = "é" ;', "B:1:12: not valid TOML: unexpected key or value, expected newline, `#`"),
    ],
)
def test_syntax_error_has_its_place_and_reason(text: str, message: str) -> None:
    with pytest.raises(WorkspaceError) as caught:
        parse(text, "B")
    assert str(caught.value) == message


def test_bytes_that_are_no_text_are_placed(tmp_path: Path) -> None:
    (tmp_path / "BUILD.toml").write_bytes(b'a = 1\nb = "\xff"\n')
    with pytest.raises(WorkspaceError) as caught:
        read(tmp_path / "BUILD.toml", "BUILD.toml")
    assert str(caught.value) == "BUILD.toml:2:6: byte 0xff is not UTF-8, the encoding of TOML"


def test_missing_file_is_an_error_of_the_workspace(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be read: No such file"):
        read(tmp_path / "BUILD.toml", "BUILD.toml")


NOISE = ("", '"]}[{.", ', "1.5, ", "'\"[', ", '"""\n[[[[ \\""" {.""", ', "'''\n{{{ '''  , ")
layers = st.lists(
    st.tuples(st.sampled_from(("list", "table")), st.integers(0, 3), st.sampled_from(NOISE), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(layers, st.integers(95, 105))
@example([("list", 0, "1.5, ", False)], 100)
@example([("table", 0, "1.5, ", False)], 100)
@example([("table", 3, "", True)], 100)
def test_only_what_nests_too_deep_is_refused(kinds: list[tuple[str, int, str, bool]], deepest: int) -> None:
    opened, closed, depth = [], [], 0
    for kind, dots, noise, commented in itertools.cycle(kinds):
        added = 1 if kind == "list" else dots + 1
        if depth + added > deepest:
            break
        depth += added
        if kind == "list":
            opened.append("[" + noise + ("# [[[ {{{ ' \"\n" if commented else ""))
            closed.append("]")
        else:
            opened.append("{ " + ".".join(["a"] * (dots + 1)) + " = ")
            closed.append(" }" if "\n" in noise else f", b = {noise.rstrip(', ') or '1'} }}")
    text = "x = " + "".join(opened) + "1" + "".join(reversed(closed)) + '\ny = "ok"\n'
    assert (too_deep_at(text) is None) == (depth <= DEEPEST)
    if depth <= DEEPEST:
        assert parse(text, "BUILD.toml").content["y"] == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "x = " + "[" * 5000,
        "x = " + "{a = " * 5000 + "1" + "}" * 5000,
        "x." + ".".join("a" * 5000) + " = 1",
        'x."' + '"."'.join("a" * 5000) + '" = 1',
        "x . " + " . ".join("a" * 5000) + " = 1",
        "[" + ".".join("a" * 5000) + "]",
        "[[" + ".".join("a" * 5000) + "]]",
        "x = [\n" * 5000 + "]\n" * 5000,
        'x = "\\"" # "\ny = ' + "[" * 5000,
    ],
)
def test_deep_nesting_is_an_error_with_its_place(text: str) -> None:
    with pytest.raises(
        WorkspaceError, match=r"^BUILD\.toml:\d+:\d+: lists, tables and dotted keys nest deeper than 100$"
    ):
        parse(text, "BUILD.toml")


def test_a_line_of_a_text_that_looks_like_a_deep_header_is_text() -> None:
    deep = "[" + ".".join("a" * 5000) + "]"
    file = parse(f"x = '''\n{deep}\n'''\n[y]\nz = 1\n", "BUILD.toml")
    assert str(Origin(file, ("y",)).location) == "BUILD.toml:4:1"
