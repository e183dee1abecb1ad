"""`mlcbuild query`: evaluates an expression and prints its targets."""

from __future__ import annotations

from pathlib import Path

from mlcbuild.cli.arguments.options import QueryOutput
from mlcbuild.cli.output.json_output import print_json
from mlcbuild.cli.workspace.opening import open_workspace
from mlcbuild.query.evaluate import evaluate
from mlcbuild.query.expression import parse_query
from mlcbuild.query.output import json_records, label_kind_lines, label_lines


def print_query(directory: Path, expression: str, *, configuration: str, output: QueryOutput, in_order: bool) -> None:
    """Print the targets of `expression`. Raises UsageError for an error in it, and WorkspaceErrors."""
    query = parse_query(expression)
    opened = open_workspace(directory, to_load=True)
    loaded = opened.load(query.patterns, configuration)
    found = evaluate(query, loaded, current_package=opened.current_package)
    if in_order:
        wanted = frozenset(found)
        found = tuple(label for label in loaded.closure(found) if label in wanted)
    match output:
        case QueryOutput.LABEL:
            lines = label_lines(found)
        case QueryOutput.LABEL_KIND:
            lines = label_kind_lines(found, loaded)
        case QueryOutput.JSON:
            print_json(json_records(found, loaded))
            return
    for line in lines:
        print(line)
