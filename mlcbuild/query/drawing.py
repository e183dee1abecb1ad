"""Draws the results of queries as graphs: a tree of text, Graphviz and Mermaid.

All three show what was found and the edges between these nodes. A dependency that was not found is not shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mlcbuild.query.nodes import QueryGraph, QueryNode, SourceFile

SHOWN_ABOVE = " (*)"  # its dependencies are shown above, as `cargo tree` marks it
# Mermaid's own form of the characters that have a meaning in a text, which is HTML.
_IN_MERMAID = str.maketrans({"#": "#35;", "&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;"})


def tree_lines(found: Sequence[QueryNode], graph: QueryGraph) -> list[str]:
    """A tree from each node that no other one needs. What a node needs is shown once, and marked `(*)` after that."""
    edges = _edges(found, graph)
    needed = {after for afters in edges.values() for after in afters}
    shown: set[QueryNode] = set()
    lines: list[str] = []
    for root in found:
        if root in needed:
            continue
        # One entry a node that is being shown: its dependencies that are left, and the text before them.
        lines.append(str(root))
        shown.add(root)
        stack = [(iter(edges[root]), len(edges[root]), "")]
        while stack:
            remaining, left, before = stack.pop()
            node = next(remaining, None)
            if node is None:
                continue
            stack.append((remaining, left - 1, before))
            is_last = left == 1
            mark = SHOWN_ABOVE if node in shown and edges[node] else ""
            lines.append(f"{before}{'└── ' if is_last else '├── '}{node}{mark}")
            if node not in shown:
                shown.add(node)
                stack.append((iter(edges[node]), len(edges[node]), before + ("    " if is_last else "│   ")))
    return lines


def dot_lines(found: Sequence[QueryNode], graph: QueryGraph) -> list[str]:
    """A graph in the language of Graphviz. Targets are boxes, files are notes."""
    shapes = {node: ' [shape="note"]' if isinstance(node, SourceFile) else "" for node in found}
    return [
        "digraph mlcbuild {",
        '  node [shape="box"];',
        *(f"  {_quoted(node)}{shapes[node]};" for node in found),
        *(f"  {_quoted(node)} -> {_quoted(after)};" for node, after in _pairs(found, graph)),
        "}",
    ]


def mermaid_lines(found: Sequence[QueryNode], graph: QueryGraph) -> list[str]:
    """A flowchart in the language of Mermaid, which GitHub and GitLab draw. Targets are boxes, files are rounded."""
    names = {node: f"n{number}" for number, node in enumerate(found)}
    boxes = []
    for node, name in names.items():
        text = str(node).translate(_IN_MERMAID)
        boxes.append(f'  {name}("{text}")' if isinstance(node, SourceFile) else f'  {name}["{text}"]')
    return ["flowchart TD", *boxes, *(f"  {names[node]} --> {names[after]}" for node, after in _pairs(found, graph))]


def _edges(found: Sequence[QueryNode], graph: QueryGraph) -> dict[QueryNode, list[QueryNode]]:
    wanted = frozenset(found)
    return {node: [after for after in graph.dependencies(node) if after in wanted] for node in found}


def _pairs(found: Sequence[QueryNode], graph: QueryGraph) -> Iterator[tuple[QueryNode, QueryNode]]:
    for node, afters in _edges(found, graph).items():
        yield from ((node, after) for after in afters)


def _quoted(node: QueryNode) -> str:
    escaped = str(node).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
