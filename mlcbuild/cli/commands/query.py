"""`mlcbuild query`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.choices import QueryOutput
from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import ConfigOption, SetOption, ShardOption, TimingsOption, global_options

QUERY_EXAMPLES = examples(
    "mlcbuild query //models/...                            all targets below models/",
    "mlcbuild query 'deps(//models:smollm2-135m-cpu)'       its dependencies",
    "mlcbuild query 'rdeps(//..., models/x/config.json)'    the targets that need a file",
    "mlcbuild query 'kind(rule, deps(//models:x))' --output tree",
    "mlcbuild query //models/... --shard 1/4                what `build --shard 1/4` takes of them",
)


def query(
    context: typer.Context,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            show_default=False,
            autocompletion=complete_pattern,
            help="A pattern, or functions of patterns; quote it.",
        ),
    ],
    config: ConfigOption = "",
    overrides: SetOption = None,
    output: Annotated[
        QueryOutput,
        typer.Option(
            "--output",
            metavar="label|label_kind|tree|dot|mermaid|json",
            show_default=False,
            help="Labels, labels with rules, a graph as text, for Graphviz or for Mermaid, or all attributes. "
            "Default: label.",
        ),
    ] = QueryOutput.LABEL,
    order: Annotated[bool, typer.Option("--order", help="List dependencies first, instead of by name.")] = False,
    shard: ShardOption = "",
    timings: TimingsOption = None,
) -> None:
    """List targets and files, and how they depend on each other.

    \b
    An expression is a pattern, the path of a file, or one of
      deps(x)  deps(x, depth)  x and its dependencies, at most depth steps away;
                               files are among them, kind(rule, …) has none
      rdeps(universe, x)       x, and what of the universe depends on it
      allpaths(a, b)           every target on a path from a to b
      somepath(a, b)           the targets on one shortest path, in order
      kind(regex, x)           the targets of x whose rule matches
      attr(name, regex, x)     the targets of x whose attribute or axis matches
      filter(regex, x)         the targets of x whose label matches
      set(a b c)  (x)          several patterns; parentheses
    Join expressions by + - ^ (or union, except, intersect).

    With --shard: the targets of what is found that a build would take for that part.
    """
    from mlcbuild.cli.inspection.query import QueryRequest, print_query

    request = QueryRequest(
        expression=expression,
        configuration=config,
        overrides=tuple(overrides or ()),
        shard=shard,
        timings=tuple(timings or ()),
        in_order=order,
    )
    print_query(request, output, global_options(context))
