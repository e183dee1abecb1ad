"""`mlcbuild query`: evaluates an expression and prints its targets and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlcbuild.cli.arguments.options import QueryOutput
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.query.drawing import dot_lines, mermaid_lines, tree_lines
from mlcbuild.query.evaluate import evaluate
from mlcbuild.query.expression import Query, parse_query
from mlcbuild.query.nodes import QueryGraph, QueryNode, patterns_to_load
from mlcbuild.query.output import dependencies_first, json_records, label_kind_lines, label_lines
from mlcbuild.rules.repositories import repositories
from mlcbuild.workspace.packages import PackageTree


def print_query(
    directory: Path,
    expression: str,
    *,
    configuration: str,
    overrides: Sequence[str],
    output: QueryOutput,
    in_order: bool,
) -> None:
    """Print what `expression` finds. Raises UsageError for an error in it, and WorkspaceErrors."""
    query = parse_query(expression)
    opened = open_workspace(directory, to_load=True)
    found, graph = answer(query, opened, configuration, overrides)
    if in_order:
        found = dependencies_first(found, graph)
    match output:
        case QueryOutput.LABEL:
            lines = label_lines(found)
        case QueryOutput.LABEL_KIND:
            lines = label_kind_lines(found, graph)
        case QueryOutput.TREE:
            lines = tree_lines(found, graph)
        case QueryOutput.DOT:
            lines = dot_lines(found, graph)
        case QueryOutput.MERMAID:
            lines = mermaid_lines(found, graph)
        case QueryOutput.JSON:
            print_json(json_records(found, graph))
            return
    for line in lines:
        print(line)


def answer(
    query: Query, opened: OpenWorkspace, configuration: str, overrides: Sequence[str] = ()
) -> tuple[tuple[QueryNode, ...], QueryGraph]:
    """What a query finds, and the graph of all that it had to load. Raises WorkspaceErrors."""
    tree = PackageTree(opened.root, ignored=opened.settings.ignored_folders, repositories=repositories())
    patterns = patterns_to_load(query.patterns, tree, opened.current_package)
    graph = QueryGraph(opened.load(patterns, configuration, overrides))
    return evaluate(query, graph, current_package=opened.current_package), graph
