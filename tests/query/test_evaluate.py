"""Queries against plain sets, on random graphs."""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlcbuild.query.drawing import dot_lines, mermaid_lines, tree_lines
from mlcbuild.query.evaluate import evaluate
from mlcbuild.query.expression import parse_query
from mlcbuild.query.nodes import QueryGraph, QueryNode, patterns_to_load, sort_key
from mlcbuild.query.output import dependencies_first, json_records, label_kind_lines, label_lines
from mlcbuild.workspace.loader import LoadedWorkspace, load
from mlcbuild.workspace.packages import PackageTree
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


def found_in(loaded: LoadedWorkspace, text: str) -> tuple[QueryNode, ...]:
    return evaluate(parse_query(text), QueryGraph(loaded))


def answer(loaded: LoadedWorkspace, text: str) -> list[int]:
    return [int(str(found).rpartition("t")[2]) for found in found_in(loaded, text)]


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
            found = found_in(loaded, text)
            assert {int(str(label).rpartition("t")[2]) for label in found} == expected
            assert list(found) == sorted(found, key=sort_key)


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
    graph = QueryGraph(load(tmp_path, SCHEMAS, query.patterns))
    assert label_lines(evaluate(query, graph)) == [f"//:{name}" for name in expected]


def test_relative_patterns_start_from_the_current_package(tmp_path: Path) -> None:
    loaded_graph(tmp_path, GRAPH)
    query = parse_query("deps(:t3) - :all")
    loaded = load(tmp_path, SCHEMAS, query.patterns, "p1")
    assert label_lines(evaluate(query, QueryGraph(loaded), current_package="p1")) == ["//p0:t0", "//p0:t2"]


def test_forms_of_an_answer(tmp_path: Path) -> None:
    graph = QueryGraph(loaded_graph(tmp_path, GRAPH))
    found = evaluate(parse_query("deps(//p1:t3)"), graph)
    assert label_lines(found) == ["//p0:t0", "//p0:t2", "//p1:t1", "//p1:t3"]
    assert label_kind_lines(found[2:], graph) == ["inner_rule rule //p1:t1", "inner_rule rule //p1:t3"]
    everything = evaluate(parse_query("//..."), graph)
    assert label_lines(everything) == ["//p0:t0", "//p0:t2", "//p0:t4", "//p1:t1", "//p1:t3"]
    assert label_lines(dependencies_first(everything[1:], graph)) == ["//p0:t2", "//p1:t1", "//p1:t3", "//p0:t4"]
    assert json.loads(json.dumps(json_records(found[3:], graph))) == [
        {
            "label": "//p1:t3",
            "rule": "inner_rule",
            "attributes": {"needs": ["//p1:t1", "//p0:t2"], "size": 1, "settings": {}},
            "matrix": {},
            "tags": ["manual"],
            "compatible_with": [],
            "dependencies": ["//p1:t1", "//p0:t2"],
            "files": [],
            "location": {"path": "p1/BUILD.toml", "line": 6, "column": 1},
        }
    ]


def asked(root: Path, text: str, current_package: str = "") -> tuple[tuple[QueryNode, ...], QueryGraph]:
    query = parse_query(text)
    patterns = patterns_to_load(query.patterns, PackageTree(root), current_package)
    graph = QueryGraph(load(root, SCHEMAS, patterns, current_package))
    return evaluate(query, graph, current_package=current_package), graph


@pytest.fixture
def with_files(tmp_path: Path) -> Path:
    """`//m:a` needs a folder, `//m:b` a file in it and `//m:a`, and `//m:weights` has the name of a folder."""
    (tmp_path / "BUILD.toml").write_text('[workspace]\nname = "w"\n')
    (tmp_path / "m" / "weights" / "deep").mkdir(parents=True)
    for path in ("m/weights/config.json", "m/weights/deep/x.bin", "m/weights/.hidden", "m/alone.txt"):
        (tmp_path / path).write_text("")
    (tmp_path / "m" / "BUILD.toml").write_text(
        '[[inner_rule]]\nname = "a"\nneeds = ["weights/deep", "weights/config.json"]\n'
        '[[inner_rule]]\nname = "b"\nneeds = [":a", "weights/config.json"]\n'
        '[[leaf_rule]]\nname = "c-{size}"\nmatrix = { size = [1, 22] }\n'
    )
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rdeps(//..., m/weights/config.json)", ["//m:a", "//m:b", "m/weights/config.json"]),
        ("rdeps(//..., //m:weights/deep/x.bin)", ["//m:a", "//m:b", "m/weights/deep/x.bin"]),
        ("rdeps(//..., m/alone.txt)", []),
        ("m/alone.txt", ["m/alone.txt"]),
        ("deps(//m:a)", ["//m:a", "m/weights/config.json", "m/weights/deep/x.bin"]),
        ("kind(rule, deps(//m:b))", ["//m:a", "//m:b"]),
        ("kind('source file', deps(//m:b, 1))", ["m/weights/config.json"]),
        ("somepath(//m:b, m/weights/deep/x.bin)", ["//m:b", "//m:a", "m/weights/deep/x.bin"]),
        ("m/weights", ["m/weights/config.json", "m/weights/deep/x.bin"]),
        ("filter('json$', m/weights)", ["m/weights/config.json"]),
        ("attr(name, a, deps(//m:a))", ["//m:a"]),
        ("//m:c-*", ["//m:c-1", "//m:c-22"]),
        ("//...:*-22 + //m:b", ["//m:b", "//m:c-22"]),
        ("attr(size, '^22$', //...)", ["//m:c-22"]),
    ],
)
def test_files_and_names_with_wildcards_are_found(with_files: Path, text: str, expected: list[str]) -> None:
    assert label_lines(asked(with_files, text)[0]) == expected


def test_a_file_is_named_from_the_current_package(with_files: Path) -> None:
    assert label_lines(asked(with_files, "rdeps(:all, weights/config.json)", "m")[0])[:2] == ["//m:a", "//m:b"]


def test_json_has_axes_and_files(with_files: Path) -> None:
    found, graph = asked(with_files, "//m:c-22 + //m:b + m/alone.txt")
    b, c, alone = json.loads(json.dumps(json_records(found, graph)))
    assert (b["dependencies"], b["files"], b["matrix"]) == (["//m:a"], ["m/weights/config.json"], {})
    assert c["matrix"] == {"size": 22}
    assert (alone["label"], alone["rule"]) == ("m/alone.txt", "source file")


def test_an_answer_is_drawn_as_a_tree(tmp_path: Path) -> None:
    found, graph = asked((loaded_graph(tmp_path, GRAPH), tmp_path)[1], "//...")
    assert tree_lines(found, graph) == [
        "//p0:t4",
        "└── //p1:t3",
        "    ├── //p1:t1",
        "    │   └── //p0:t0",
        "    └── //p0:t2",
        "        └── //p0:t0",
    ]
    loaded_graph(tmp_path, [[], [0], [1], [1, 2]])
    found, graph = asked(tmp_path, "//...")
    assert tree_lines(found, graph) == [
        "//p1:t3",
        "├── //p1:t1",
        "│   └── //p0:t0",
        "└── //p0:t2",
        "    └── //p1:t1 (*)",
    ]


def test_a_very_deep_graph_is_drawn(tmp_path: Path) -> None:
    loaded_graph(tmp_path, [[node - 1] if node else [] for node in range(1500)])
    assert len(tree_lines(*asked(tmp_path, "//..."))) == 1500


def test_an_answer_is_drawn_for_graphviz_and_mermaid(with_files: Path) -> None:
    found, graph = asked(with_files, "deps(//m:b) - m/weights/deep")
    assert dot_lines(found, graph) == [
        "digraph mlcbuild {",
        '  node [shape="box"];',
        '  "//m:a";',
        '  "//m:b";',
        '  "m/weights/config.json" [shape="note"];',
        '  "//m:a" -> "m/weights/config.json";',
        '  "//m:b" -> "//m:a";',
        '  "//m:b" -> "m/weights/config.json";',
        "}",
    ]
    assert mermaid_lines(found, graph) == [
        "flowchart TD",
        '  n0["//m:a"]',
        '  n1["//m:b"]',
        '  n2("m/weights/config.json")',
        "  n0 --> n2",
        "  n1 --> n0",
        "  n1 --> n2",
    ]
