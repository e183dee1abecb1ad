"""`mlcbuild query`."""

from __future__ import annotations

from typing import Annotated

import typer

from mlcbuild.cli.arguments.completion import complete_pattern
from mlcbuild.cli.arguments.help_format import examples
from mlcbuild.cli.arguments.options import ConfigOption, QueryOutput, global_options

QUERY_EXAMPLES = examples(
    "mlcbuild query //models/...                            all targets below models/",
    "mlcbuild query 'deps(//models:smollm2-135m-cpu)'       what it is made of",
    "mlcbuild query 'kind(platform, //...)' --output label_kind",
)


def query(
    context: typer.Context,
    expression: Annotated[
        str,
        typer.Argument(
            metavar="EXPRESSION",
            show_default=False,
            autocompletion=complete_pattern,
            help="A pattern, or functions of patterns, in quotes.",
        ),
    ],
    config: ConfigOption = "",
    output: Annotated[
        QueryOutput,
        typer.Option(
            "--output",
            metavar="label|label_kind|json",
            show_default=False,
            help="Labels, rules with labels, or targets with attributes. Default: label.",
        ),
    ] = QueryOutput.LABEL,
    order: Annotated[bool, typer.Option("--order", help="Dependencies first, instead of by name.")] = False,
) -> None:
    """Ask which targets there are and how they depend on each other.

    \b
    An expression is a pattern or one of
      deps(x)  deps(x, depth)     x and all that it needs, at most depth steps away
      rdeps(universe, x)          x and all in the universe that needs it
      allpaths(a, b)              every target on a way from a to b
      somepath(a, b)              the targets on one shortest way, in order
      kind(regex, x)              those of x whose rule matches
      attr(name, regex, x)        those of x whose attribute matches
      filter(regex, x)            those of x whose label matches
      set(a b c)  (x)             several patterns; parentheses
    joined by + - ^ (or union, except, intersect).
    """
    from mlcbuild.cli.inspection.query import print_query

    print_query(global_options(context).directory, expression, configuration=config, output=output, in_order=order)
