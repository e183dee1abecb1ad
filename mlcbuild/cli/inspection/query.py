"""`mlcbuild query`: evaluates an expression and prints its targets and files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlcbuild.cli.arguments.choices import QueryOutput
from mlcbuild.cli.arguments.options import GlobalOptions
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.workspace.opening import OpenWorkspace, open_workspace
from mlcbuild.errors import UsageError
from mlcbuild.query.drawing import dot_lines, mermaid_lines, tree_lines
from mlcbuild.query.evaluate import evaluate, remarks
from mlcbuild.query.expression import Query, parse_query
from mlcbuild.query.nodes import QueryGraph, QueryNode, patterns_to_load
from mlcbuild.query.output import dependencies_first, json_records, label_kind_lines, label_lines
from mlcbuild.rules.repositories import repositories
from mlcbuild.workspace.label import Label
from mlcbuild.workspace.packages import PackageTree
from mlcbuild.workspace.pattern import MANUAL_TAG, parse_pattern


@dataclass(frozen=True, kw_only=True)
class QueryRequest:
    """What the command line asks for. `shard` is "" for all that is found, `overrides` are those of `--set`."""

    expression: str
    configuration: str = ""
    overrides: tuple[str, ...] = ()
    shard: str = ""
    timings: tuple[Path, ...] = ()
    in_order: bool = False


def print_query(request: QueryRequest, output: QueryOutput, options: GlobalOptions) -> None:
    """Print what the expression finds. Raises UsageError for an error in it, and WorkspaceErrors."""
    query = parse_query(request.expression)
    opened = open_workspace(options.directory, to_load=True)
    found, graph = answer(query, opened, request.configuration, request.overrides)
    for remark in remarks(query, graph, found):
        options.note(remark)
    if request.shard:
        found = _of_shard(found, graph, query, opened, request, options)
    elif request.timings:
        raise UsageError("--timings is for --shard", advice=("leave it out, or give --shard I/N",))
    if request.in_order:
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


def _of_shard(
    found: Sequence[QueryNode],
    graph: QueryGraph,
    query: Query,
    opened: OpenWorkspace,
    request: QueryRequest,
    options: GlobalOptions,
) -> tuple[QueryNode, ...]:
    """The targets that a build of what was found would take for the shard: no files, none that cannot be built for its
    platform, and of targets tagged "manual" those that the expression names.
    """
    from mlcbuild.cli.sharding.part import part_of
    from mlcbuild.cli.workspace.skipped import REASONS

    patterns = [parse_pattern(text, package=opened.current_package) for text in query.patterns]
    built = frozenset(graph.loaded.select(patterns)) | frozenset(
        node for node in found if isinstance(node, Label) and MANUAL_TAG not in graph.loaded.targets[node].tags
    )
    wanted = tuple(node for node in found if isinstance(node, Label) and node in built)
    loaded = replace(graph.loaded, named=frozenset())
    analysis = opened.analyse(loaded, requested=wanted, expression=request.expression)
    part = part_of(analysis, opened.root, shard=request.shard, timings=request.timings, reasons=REASONS)
    for note in part.notes:
        options.note(note)
    taken = frozenset(target.label for target in part.analysis.requested)
    return tuple(node for node in wanted if node in taken)


def answer(
    query: Query, opened: OpenWorkspace, configuration: str, overrides: Sequence[str] = ()
) -> tuple[tuple[QueryNode, ...], QueryGraph]:
    """What a query finds, and the graph of all that it had to load. Raises WorkspaceErrors."""
    tree = PackageTree(opened.root, ignored=opened.settings.ignored_folders, repositories=repositories())
    patterns = patterns_to_load(query.patterns, tree, opened.current_package)
    graph = QueryGraph(opened.load(patterns, configuration, overrides))
    return evaluate(query, graph, current_package=opened.current_package), graph
