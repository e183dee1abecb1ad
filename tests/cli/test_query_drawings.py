"""`query --output tree|dot|mermaid`: each drawing is read again, and has the edges of the JSON and no others."""

from __future__ import annotations

import html
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlcbuild.cli.main import main

Capture = pytest.CaptureFixture[str]
Edges = Counter[tuple[str, str]]

PROJECT = Path(__file__).parents[2]
# A name with what the languages write in another way.
ODD = 'a "b"; #35; &amp; <i> [d] -> {e}.txt'
ODD_TARGET = f"""\
[[command]]
name = "odd"
tool = "//odd:sh"
inputs = ['{ODD}', 'x"']
outputs = ["x"]

[[tool]]
name = "sh"
path = "/bin/sh"
"""
EXPRESSIONS = [
    "deps(//...)",
    "deps(//models/perplexity:smollm2-135m-q8f32_1)",
    "deps(//...) - //platforms/...",  # what was left out has no edges
    "//models:*",
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of this repository, and a package whose files have odd names."""
    root = tmp_path_factory.mktemp("project")
    shutil.copy(PROJECT / "BUILD.toml", root)
    for folder in ("models", "platforms"):
        shutil.copytree(PROJECT / folder, root / folder)
    (root / "odd").mkdir()
    (root / "odd/BUILD.toml").write_text(ODD_TARGET)
    for name in (ODD, 'x"'):
        (root / "odd" / name).write_text("")
    return root


def asked(root: Path, expression: str, output: str, capsys: Capture) -> str:
    capsys.readouterr()
    assert main(["-C", str(root), "query", expression, "--output", output]) == 0
    return capsys.readouterr().out


def truth(root: Path, expression: str, capsys: Capture) -> tuple[dict[str, str], Edges]:
    """The nodes with their rules, and the edges between them."""
    records = json.loads(asked(root, expression, "json", capsys))
    nodes = {each["label"]: each["rule"] for each in records}
    edges = (
        (each["label"], after) for each in records for after in (*each.get("dependencies", ()), *each.get("files", ()))
    )
    return nodes, Counter(edge for edge in edges if edge[1] in nodes)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_graphviz_gets_every_edge(expression: str, project: Path, capsys: Capture) -> None:
    nodes, edges = truth(project, expression, capsys)
    statements = list(dot_statements(asked(project, expression, "dot", capsys)))
    assert statements[0] == ["node", "[", "shape", "=", '"box"', "]"]
    drawn = {
        name(words[0]): "source file" if '"note"' in words else "target"
        for words in statements[1:]
        if "->" not in words
    }
    assert drawn == {node: "source file" if rule == "source file" else "target" for node, rule in nodes.items()}
    assert Counter((name(words[0]), name(words[2])) for words in statements[1:] if "->" in words) == edges
    assert edges or expression == "//models:*"


def dot_statements(text: str) -> Iterator[list[str]]:
    """The statements of a graph, as lists of words, by the grammar of Graphviz: only `\\"` is another character in a
    string, and a backslash before another one stands for both.
    """
    words = re.findall(r'"(?:\\.|[^"\\])*"|->|[A-Za-z_]\w*|[][{};=]|\S', text, re.DOTALL)
    assert words[:3] == ["digraph", "mlcbuild", "{"]
    assert words[-1] == "}"
    statement: list[str] = []
    for word in words[3:-1]:
        if word != ";":
            statement.append(word)
            continue
        yield statement
        statement = []
    assert statement == []


def name(word: str) -> str:
    """What Graphviz shows for a node: its name, in which two backslashes are one."""
    assert word[0] == word[-1] == '"', word
    return re.sub(r"\\(.)", r"\1", word[1:-1])


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_mermaid_gets_every_edge(expression: str, project: Path, capsys: Capture) -> None:
    nodes, edges = truth(project, expression, capsys)
    first, *lines = asked(project, expression, "mermaid", capsys).splitlines()
    assert first == "flowchart TD"
    shown: dict[str, str] = {}
    kinds: dict[str, str] = {}
    drawn: Edges = Counter()
    for line in lines:
        if arrow := re.fullmatch(r"  (n\d+) --> (n\d+)", line):
            drawn[shown[arrow[1]], shown[arrow[2]]] += 1
        else:
            box = re.fullmatch(r'  (n\d+)(\["([^"<>&]*)"\]|\("([^"<>&]*)"\))', line)
            assert box, line
            text = box[3] if box[3] is not None else box[4]
            shown[box[1]] = text_of_mermaid(text)
            kinds[shown[box[1]]] = "source file" if box[3] is None else "target"
    assert kinds == {node: "source file" if rule == "source file" else "target" for node, rule in nodes.items()}
    assert drawn == edges


def text_of_mermaid(text: str) -> str:
    """`#quot;` and `#35;` are characters, and so are HTML's entities; every other `#` stands for itself."""
    return html.unescape(re.sub(r"#(\w+);", lambda found: f"&{'#' if found[1].isdigit() else ''}{found[1]};", text))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_tree_has_every_edge(expression: str, project: Path, capsys: Capture) -> None:
    nodes, edges = truth(project, expression, capsys)
    path: list[str] = []
    drawn: Edges = Counter()
    whole: set[str] = set()
    again: set[str] = set()
    for line in asked(project, expression, "tree", capsys).splitlines():
        found = re.fullmatch(r"((?:│   |    )*)(├── |└── )?(.*?)( \(\*\))?", line)
        assert found
        depth = len(found[1]) // 4 + bool(found[2])
        path[depth:] = [found[3]]
        (again if found[4] else whole).add(found[3])
        if depth:
            drawn[path[depth - 1], path[depth]] += 1
    assert whole == set(nodes)
    assert again <= whole
    assert drawn == edges
