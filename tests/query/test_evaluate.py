"""Queries against plain sets, on random graphs."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.query.evaluate import evaluate
from mlcbuild.query.expression import parse_query
from mlcbuild.query.output import dependencies_first, json_records, label_kind_lines, label_lines
from mlcbuild.workspace.loader import LoadedWorkspace, load
from mlcbuild.workspace.schema import Attribute, AttributeKind, RuleSchema

SCHEMAS = {
    name: RuleSchema(
        name=name,
        doc="A node.",
        attributes=(
            Attribute(name="needs", kind=AttributeKind.LABEL_LIST, allow_files=True, doc="What it needs."),
            Attribute(name="size", kind=AttributeKind.INTEGER, default=1, doc="A number."),
            Attribute(name="note", kind=AttributeKind.STRING, doc="A text."),
            Attribute(name="settings", kind=AttributeKind.TABLE, doc="A table."),
        ),
    )
    for name in ("leaf_rule", "inner_rule")
}


def loaded_graph(root: Path, edges: list[list[int]], texts: tuple[str, ...] = ("//...",)) -> LoadedWorkspace:
    """A workspace with the target `//p:tN` for each node, in packages by parity, manual ones among them."""
    packages: list[list[str]] = [[], []]
    for node, needs in enumerate(edges):
        listed = ", ".join(f'"//p{other % 2}:t{other}"' for other in needs)
        rule = "inner_rule" if needs else "leaf_rule"
        manual = 'tags = ["manual"]' if node % 3 == 0 else ""
        packages[node % 2].append(f'[[{rule}]]\nname = "t{node}"\nneeds = [{listed}]\n{manual}\n')
    (root / "BUILD.toml").write_text('[workspace]\nname = "w"\n')
    for index, tables in enumerate(packages):
        (root / f"p{index}").mkdir(exist_ok=True)
        (root / f"p{index}" / "BUILD.toml").write_text("\n".join(tables))
    return load(root, SCHEMAS, texts)


def answer(loaded: LoadedWorkspace, text: str) -> list[int]:
    return [int(found.name[1:]) for found in evaluate(parse_query(text), loaded)]


@st.composite
def acyclic(draw: st.DrawFn) -> list[list[int]]:
    """Node N needs some of the nodes before it."""
    size = draw(st.integers(1, 9))
    return [draw(st.lists(st.integers(0, node - 1), unique=True, max_size=3)) if node else [] for node in range(size)]


def closure(edges: list[list[int]], starts: set[int], depth: int | None = None) -> set[int]:
    found = set(starts)
    for _ in range(len(edges) if depth is None else depth):
        found |= {other for node in found for other in edges[node]}
    return found


class Model:
    """The language said again with Python's sets; draws an expression and its meaning together."""

    def __init__(self, edges: list[list[int]], draw: st.DrawFn) -> None:
        self.edges = edges
        self.turned = [[before for before, needs in enumerate(edges) if node in needs] for node in range(len(edges))]
        self.draw = draw

    def expression(self, depth: int) -> tuple[str, set[int]]:
        everything = set(range(len(self.edges)))
        choices = ["target", "package", "all", "set"]
        if depth:
            choices += ["operation"] * 4 + ["deps", "rdeps", "allpaths", "kind", "filter"]
        choice = self.draw(st.sampled_from(choices))
        if choice == "target":
            node = self.draw(st.sampled_from(sorted(everything)))
            return f"//p{node % 2}:t{node}", {node}
        if choice == "package":
            return "//p0:all", {node for node in everything if node % 2 == 0}
        if choice == "set":
            nodes = self.draw(st.sets(st.sampled_from(sorted(everything))))
            return f"set({' '.join(f'//p{node % 2}:t{node}' for node in nodes)})", nodes
        if choice == "all":
            return "//...", everything
        text, left = self.expression(depth - 1)
        if choice == "kind":
            return f"kind('^inner', {text})", {node for node in left if self.edges[node]}
        if choice == "filter":
            return f"filter('t[0-4]$', {text})", {node for node in left if node < 5}
        if choice == "deps":
            limit = self.draw(st.one_of(st.none(), st.integers(0, 3)))
            return f"deps({text}{'' if limit is None else f', {limit}'})", closure(self.edges, left, limit)
        other, right = self.expression(depth - 1)
        if choice == "rdeps":
            universe = closure(self.edges, left)
            inside = [[before for before in befores if before in universe] for befores in self.turned]
            limit = self.draw(st.one_of(st.none(), st.integers(0, 3)))
            text = f"rdeps({text}, {other}{'' if limit is None else f', {limit}'})"
            return text, closure(inside, right & universe, limit)
        if choice == "allpaths":
            return f"allpaths({text}, {other})", closure(self.edges, left) & closure(self.turned, right)
        operator = self.draw(st.sampled_from(("+", "union", "-", "except", "^", "intersect")))
        result = {"+": left | right, "u": left | right, "-": left - right, "e": left - right}.get(
            operator[0], left & right
        )
        return f"({text}) {operator} ({other})", result


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[list[int]], list[tuple[str, set[int]]]]:
    edges = draw(acyclic())
    model = Model(edges, draw)
    return edges, [model.expression(3) for _ in range(5)]


@settings(max_examples=60, deadline=None)
@given(questions())
def test_language_means_what_sets_mean(asked: tuple[list[list[int]], list[tuple[str, set[int]]]]) -> None:
    edges, expressions = asked
    with tempfile.TemporaryDirectory() as folder:
        loaded = loaded_graph(Path(folder), edges)
        for text, expected in expressions:
            found = evaluate(parse_query(text), loaded)
            assert {int(label.name[1:]) for label in found} == expected
            assert list(found) == sorted(found)


@settings(max_examples=40, deadline=None)
@given(acyclic(), st.data())
def test_some_path_is_a_way_if_there_is_one(edges: list[list[int]], data: st.DataObject) -> None:
    start, goal = (data.draw(st.integers(0, len(edges) - 1)) for _ in range(2))
    with tempfile.TemporaryDirectory() as folder:
        path = answer(loaded_graph(Path(folder), edges), f"somepath(//p{start % 2}:t{start}, //p{goal % 2}:t{goal})")
    if goal in closure(edges, {start}):
        assert path[0] == start
        assert path[-1] == goal
        assert all(after in edges[node] for node, after in itertools.pairwise(path))
    else:
        assert path == []


GRAPH: list[list[int]] = [[], [0], [0], [1, 2], [3]]


def test_operators_apply_from_the_left(tmp_path: Path) -> None:
    loaded = loaded_graph(tmp_path, GRAPH)
    assert answer(loaded, "//p0:t0 + //p1:t1 ^ //p1:t1 - //p1:t3") == [1]
    assert answer(loaded, "//... - //p0:all + //p0:t4") == [4, 1, 3]


def test_manual_targets_are_in_wildcards(tmp_path: Path) -> None:
    loaded = loaded_graph(tmp_path, GRAPH)
    assert answer(loaded, "//...") == [0, 2, 4, 1, 3]
    assert [found.name for found in loaded.requested] == ["t2", "t4", "t1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("attr(note, '^big thing$', //...)", ["b"]),
        ("attr(size, '^1$', //...)", ["a", "c"]),
        ("attr(size, 7, //...)", ["b"]),
        ("attr(tags, '\\bmanual\\b', //...)", ["c"]),
        ("attr(tags, '^\\[\\]$', //...)", ["a", "b"]),
        ("attr(needs, '//:a', //...)", ["b"]),
        ("attr(name, 'a|c', //...)", ["a", "c"]),
        ("attr(settings, 'deep: \\[1, true\\]', //...)", ["c"]),
        ("attr(unknown, '', //...)", []),
        ("kind('leaf_rule rule', //...)", ["a", "c"]),
        ("kind(leaf, //...) - attr(name, a, //...)", ["c"]),
        ("filter(':b$', //...)", ["b"]),
    ],
)
def test_functions_that_look_at_a_target(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "BUILD.toml").write_text(
        '[workspace]\nname = "w"\n[[leaf_rule]]\nname = "a"\n'
        '[[inner_rule]]\nname = "b"\nneeds = [":a", "file.txt"]\nsize = 7\nnote = "big thing"\n'
        '[[leaf_rule]]\nname = "c"\ntags = ["manual", "x"]\nsettings = { deep = [1, true] }\n'
    )
    (tmp_path / "file.txt").write_text("")
    query = parse_query(text)
    assert [found.name for found in evaluate(query, load(tmp_path, SCHEMAS, query.patterns))] == expected


def test_relative_patterns_start_from_the_current_package(tmp_path: Path) -> None:
    loaded_graph(tmp_path, GRAPH)
    query = parse_query("deps(:t3) - :all")
    loaded = load(tmp_path, SCHEMAS, query.patterns, "p1")
    assert label_lines(evaluate(query, loaded, current_package="p1")) == ["//p0:t0", "//p0:t2"]


def test_forms_of_an_answer(tmp_path: Path) -> None:
    loaded = loaded_graph(tmp_path, GRAPH)
    found = evaluate(parse_query("deps(//p1:t3)"), loaded)
    assert label_lines(found) == ["//p0:t0", "//p0:t2", "//p1:t1", "//p1:t3"]
    assert label_kind_lines(found[2:], loaded) == ["inner_rule rule //p1:t1", "inner_rule rule //p1:t3"]
    everything = evaluate(parse_query("//..."), loaded)
    assert [label.name for label in everything] == ["t0", "t2", "t4", "t1", "t3"]
    assert [label.name for label in dependencies_first(everything[1:], loaded)] == ["t2", "t1", "t3", "t4"]
    assert json.loads(json.dumps(json_records(found[3:], loaded))) == [
        {
            "label": "//p1:t3",
            "rule": "inner_rule",
            "attributes": {"needs": ["//p1:t1", "//p0:t2"], "size": 1, "settings": {}},
            "tags": ["manual"],
            "dependencies": ["//p1:t1", "//p0:t2"],
            "files": [],
            "location": {"path": "p1/BUILD.toml", "line": 6, "column": 1},
        }
    ]
